"""Double-double matrices on the command line: npz archives of two members, hi and lo."""

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gemmulate import DoubleDouble

    Matrix = NDArray[np.generic] | DoubleDouble

MEMBERS = ("hi", "lo")
DTYPE = "double-double"


def read_operand(path: str, limit: int) -> "Matrix":
    """The matrix of a file; a DoubleDouble where an archive holds hi and lo, and no member of it was named."""
    from gemmulate import DoubleDouble
    from gemmulate.io import archive_members, read_matrix

    if archive_members(path) != MEMBERS:
        return read_matrix(path, max_bytes=limit)
    return DoubleDouble(*(read_matrix(f"{path}:{member}", max_bytes=limit) for member in MEMBERS))


def as_pairs(x: "Matrix") -> "Matrix":
    """The matrix as a DoubleDouble, exactly; what pairs cannot hold is left for the product to refuse."""
    from gemmulate import DoubleDouble

    return x if isinstance(x, DoubleDouble) or x.dtype.kind not in "biuf" else DoubleDouble.from_values(x)


def dtype_name(x: "Matrix") -> str:
    """The element type as messages and JSON name it."""
    from gemmulate import DoubleDouble

    return DTYPE if isinstance(x, DoubleDouble) else str(x.dtype)


def check_pair_output(output: str | None, is_pair: bool) -> None:
    """FileError, before any work is done, where the file cannot take the result."""
    from gemmulate.errors import FileError
    from gemmulate.io import check_output, check_target

    if output is None:
        return
    archive = output.lower().endswith(".npz")
    if is_pair and not archive:
        raise FileError(f"{output}: a double-double product has two parts; name a .npz file, which gets hi and lo")
    if archive and not is_pair:
        raise FileError(f"{output}: cannot write .npz files but for double-double products; write .npy, .mtx or .csv")
    if archive:
        check_target(output)
    else:
        check_output(output)


def write_result(output: str, product: "Matrix") -> None:
    """Write an array, or both parts of a DoubleDouble."""
    from gemmulate import DoubleDouble
    from gemmulate.io import write_archive, write_matrix

    if isinstance(product, DoubleDouble):
        write_archive(output, dict(zip(MEMBERS, (product.hi, product.lo), strict=True)))
    else:
        write_matrix(output, product)


def shown(product: "Matrix") -> str:
    """The result as text; both parts of a DoubleDouble, as it has no shorter decimal form that reads back."""
    from gemmulate import DoubleDouble

    return f"hi\n{product.hi}\nlo\n{product.lo}" if isinstance(product, DoubleDouble) else str(product)


def digest(x: "Matrix") -> str:
    """SHA-256 of the elements in C order: their little-endian bytes (of hi, then of lo), or lines of hexadecimal digits
    for Python ints."""
    import numpy as np

    from gemmulate import DoubleDouble

    if not isinstance(x, DoubleDouble) and x.dtype == object:
        return hashlib.sha256("\n".join(format(value, "x") for value in x.ravel().tolist()).encode()).hexdigest()
    total = hashlib.sha256()
    parts: tuple[Any, ...] = (x.hi, x.lo) if isinstance(x, DoubleDouble) else (x,)
    for part in parts:
        total.update(np.ascontiguousarray(part.astype(part.dtype.newbyteorder("<"))).data)
    return total.hexdigest()
