"""Files that appear complete or not at all: written beside the target, then renamed over it."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gemmulate.errors import FileError


def check_target(path: str | os.PathLike[str]) -> Path:
    """The regular file that writing to `path` would create or replace, symbolic links followed.

    Meant to be called before long work, so that hours of computing do not end in "permission denied".

    Raises:
        FileError: `path` is a directory or a device, its folder is missing, or it may not be written.

    >>> check_target("/no/such/folder/c.npy")
    Traceback (most recent call last):
    gemmulate.errors.FileError: /no/such/folder/c.npy: the folder /no/such/folder does not exist; create it first
    """
    try:
        # A link stays a link: what it points to is replaced.
        target = Path(os.path.realpath(path, strict=False))
        found: os.stat_result | None = target.stat()
    except FileNotFoundError:
        found = None
    except OSError as error:
        raise FileError(f"{os.fspath(path)}: {error.strerror}") from error
    except ValueError as error:  # a null byte in the name
        raise FileError(f"{os.fspath(path)!r}: {error}") from error
    folder = target.parent
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise FileError(f"{os.fspath(path)}: is a directory; name a file in it")
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise FileError(f"{os.fspath(path)}: is not a regular file; results are written to regular files only")
    if not folder.is_dir():
        reason = "is not a directory" if folder.exists() else "does not exist; create it first"
        raise FileError(f"{os.fspath(path)}: the folder {folder} {reason}")
    # Renaming would replace even a file that its owner made read-only.
    if found is not None and not os.access(target, os.W_OK):
        raise FileError(f"{os.fspath(path)}: is write-protected")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(f"{os.fspath(path)}: the folder {folder} may not be written")
    return target


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends well and leaves no trace when it does not.

    The bytes are on disk (fsync of file and folder) before the name is; the permission bits of a file that is
    replaced are kept; until then readers see the old file.

    Raises:
        FileError: as `check_target`.

    >>> with write_atomically("/tmp/gemmulate-doctest.txt") as file:
    ...     _ = file.write(b"whole")
    >>> Path("/tmp/gemmulate-doctest.txt").read_bytes()
    b'whole'
    >>> Path("/tmp/gemmulate-doctest.txt").unlink()
    """
    target = check_target(path)
    # A short name of its own: the target's may already be as long as the file system allows.
    beside = target.parent / f".gemmulate-{secrets.token_hex(8)}.tmp"
    try:
        # os.open, not mkstemp: a new file gets the mode that the umask grants, like any other.
        try:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:  # a read-only file system, which permission bits do not show
            raise FileError(f"{os.fspath(path)}: cannot be written: {error.strerror}") from error
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:  # Ctrl-C too must leave nothing behind
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    # Some network file systems cannot sync a folder; the file itself is on disk by then.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
