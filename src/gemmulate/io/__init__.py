"""Matrix files: npy, npz, Matrix Market and CSV, read strictly and written whole or not at all."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemmulate.io.archive import archive_members, write_archive
    from gemmulate.io.atomic import check_target, write_atomically
    from gemmulate.io.files import check_output, read_matrix, write_matrix

__all__ = [
    "archive_members",
    "check_output",
    "check_target",
    "read_matrix",
    "write_archive",
    "write_atomically",
    "write_matrix",
]

# Public name -> module: NumPy loads with the first matrix, not with `gemmulate --help`.
_MODULES = {
    "archive": ("archive_members", "write_archive"),
    "atomic": ("check_target", "write_atomically"),
    "files": ("check_output", "read_matrix", "write_matrix"),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
