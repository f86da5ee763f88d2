"""Matrix files: npy, npz, Matrix Market and CSV, read strictly and written whole or not at all."""

from gemmulate.io.atomic import check_target, write_atomically
from gemmulate.io.files import READABLE, WRITABLE, check_output, read_matrix, write_matrix

__all__ = ["READABLE", "WRITABLE", "check_output", "check_target", "read_matrix", "write_atomically", "write_matrix"]
