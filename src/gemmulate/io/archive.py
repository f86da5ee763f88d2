"""Several arrays in one npz archive: their names, and an archive written whole or not at all."""

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gemmulate.errors import FileError
from gemmulate.io.atomic import write_atomically


def archive_members(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names in an npz archive, sorted; none where the file is missing or no archive (reading it says what it is).

    >>> archive_members("/no/such/file.npz")
    ()
    """
    if not os.fspath(path).lower().endswith(".npz") or not Path(path).is_file():
        return ()
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(sorted(i.filename.removesuffix(".npy") for i in archive.infolist() if not i.is_dir()))
    except zipfile.BadZipFile:
        return ()


def write_archive(path: str | os.PathLike[str], members: Mapping[str, NDArray[np.generic]]) -> None:
    """Write arrays as members of an npz archive, as `numpy.load` reads it: the same arrays give the same bytes.

    Raises:
        FileError: another suffix, or a place that cannot be written.

    >>> write_archive("/tmp/gemmulate-doctest.npz", {"hi": np.ones(2), "lo": np.zeros(2)})
    >>> archive_members("/tmp/gemmulate-doctest.npz")
    ('hi', 'lo')
    >>> os.remove("/tmp/gemmulate-doctest.npz")
    """
    name = os.fspath(path)
    if not name.lower().endswith(".npz"):
        raise FileError(f"{name}: several arrays are written as .npz; name the file so")
    try:
        with write_atomically(name) as stream, zipfile.ZipFile(stream, "w") as archive:
            for member, array in members.items():
                # ZipInfo's own date, 1980, instead of the time of day.
                with archive.open(zipfile.ZipInfo(f"{member}.npy"), "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    except OSError as error:
        raise FileError(f"{name}: cannot be written: {error.strerror or error}") from error
