"""Real matrices that come with the package; README.md beside them names source and licence."""

from importlib.resources import files
from pathlib import Path

from gemmulate.errors import FileError

NAMES = ("bcsstk13", "cryg2500", "karate", "lp_afiro", "olm1000", "west0067", "zenios")


def path_of(name: str) -> Path:
    """The Matrix Market file of one of `NAMES`.

    Raises:
        FileError: no matrix of that name comes with the package.

    >>> path_of("karate").name
    'karate.mtx.gz'
    """
    if name not in NAMES:
        raise FileError(f"no matrix {name!r} comes with gemmulate; it has {', '.join(NAMES)}")
    # A wheel is always unpacked on disk, and an editable install reads the source tree.
    return Path(str(files(__name__).joinpath(f"{name}.mtx.gz")))
