"""Reproducibility: the same bits on every engine, thread count and blocking."""

import hashlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gemmulate.cli.output import print_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.generic]
    Product = Callable[[Matrix, Matrix], Matrix]

TITLE = "Comparing bits across engines, threads and blocks"
# Enough to show that bits differ for NumPy, and little work for the obvious engine.
_SIZE = 64
_THREADS = (1, 2, 3)


class Run(msgspec.Struct, frozen=True):
    """One way to compute the same product: SHA-256 of the bytes, None where there is no such choice."""

    how: str
    exact: str
    fp64: str | None
    numpy: str | None


def measure() -> list[Run]:
    """Compute one product in many ways."""
    import numpy as np

    import gemmulate as gm
    from gemmulate.data import path_of
    from gemmulate.io import read_matrix

    a = read_matrix(path_of("bcsstk13"))[:_SIZE, :_SIZE].copy()

    def run(how: str, numpy: str | None, **options: Any) -> Run:
        exact, fp64 = (_digest(gm.matmul(a, a, accuracy=accuracy, **options)) for accuracy in ("exact", "fp64"))
        return Run(how, exact, fp64, numpy)

    # fp64 keeps as many bits as the whole product needs, so only exact promises the same bits for parts of it.
    def cut(how: str, product: "Callable[[Product], Matrix]") -> Run:
        return Run(how, _digest(product(partial(gm.matmul, accuracy="exact"))), None, _digest(product(np.matmul)))

    rows = [slice(i, i + 1) for i in range(_SIZE)]
    strips = [slice(j, j + 7) for j in range(0, _SIZE, 7)]
    order = np.random.default_rng(20261129).permutation(_SIZE)
    return [
        run("as it is", _digest(np.matmul(a, a))),
        *(run(f"engine {e.name}", None, engine=e.name) for e in gm.engines() if e.available and e.device == "cpu"),
        *(run(f"threads {threads}", _numpy_with(threads, a), threads=threads) for threads in _THREADS),
        cut("row by row", lambda matmul: np.vstack([matmul(a[i], a) for i in rows])),
        cut("7 columns at a time", lambda matmul: np.hstack([matmul(a, a[:, j]) for j in strips])),
        cut("terms in another order", lambda matmul: matmul(a[:, order], a[order])),
    ]


def _numpy_with(threads: int, a: "Matrix") -> str | None:
    import numpy as np

    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return None
    with threadpool_limits(threads, user_api="blas"):
        return _digest(np.matmul(a, a))


def _digest(array: "Matrix") -> str:
    import numpy as np

    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def show(record: list[Run]) -> None:
    """Print the first digits of each digest."""
    first = record[0]
    rows = [
        [run.how, _marked(run.exact, first.exact), _marked(run.fp64, first.fp64), _marked(run.numpy, first.numpy)]
        for run in record
    ]
    print_table(
        ["computed", "exact", "fp64", "NumPy"],
        rows,
        title=f"3. Reproducibility: SHA-256 of the bits of one product (leading {_SIZE}² of bcsstk13, squared)",
    )


def _marked(digest: str | None, first: str | None) -> str:
    if digest is None:
        return "–"
    return digest[:8] + ("" if digest == first else " DIFFERS")
