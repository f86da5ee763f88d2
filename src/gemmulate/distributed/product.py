"""`gm.distributed.matmul`: the product of dask arrays, bit for bit the one of `gm.matmul`, whatever the chunks."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmulate.distributed.graph import Tasks, float_tasks, integer_tasks
from gemmulate.distributed.runner import Runner
from gemmulate.engines.base import Array
from gemmulate.plan.matmul import Accuracy, Overflow, check_options
from gemmulate.plan.operands import as_operand, common_kind
from gemmulate.schemes.accuracy import Bits, Grade

if TYPE_CHECKING:
    from dask.array import Array as DaskArray
else:
    DaskArray = Any


def matmul(
    a: Any,
    b: Any,
    *,
    accuracy: Accuracy | Bits = "fp64",
    modulus: int | None = None,
    overflow: Overflow = "raise",
    engine: str | None = None,
    threads: int | None = 1,
) -> DaskArray:
    """The matrix product of dask arrays as a lazy dask array whose bits are those of `gm.matmul` of the whole operands.

    Shapes, types, grades, `modulus` and `overflow` are those of `gm.matmul` (no gm.DoubleDouble). Chunks may be any, of
    k too; the result has a's chunks of rows and b's of columns. An operand that is no dask array is cut by dask's
    default. Nothing is read before the result is computed; a result that does not fit raises ResultOverflow then.

    Parts over k are exact integers (residues for `modulus`) until the one rounding, so that no order of summation
    counts. A task holds one block of each operand and one of the result, whose sums take 8 to 48 bytes an element; a
    task that adds parts holds eight of the result. (Where the exponents of one block's floats spread over more than
    about 300 bits in both operands together, "exact" sums Python ints: slow, and some 100 bytes an element.)
    The bits of a float result depend on the whole operands, which are therefore surveyed before they are multiplied:
    where dask cannot keep all blocks in memory in between, it spills them or, on one machine, memory must hold them.

    Stacks are multiplied matrix by matrix; where no matrix is chunked, chunk by chunk.

    `threads` are those of one task: one, since dask runs a task on each core.

    Raises TypeError, ValueError (naming the argument), EngineUnavailable; ResultOverflow when computed.

    >>> import gemmulate as gm, numpy as np, dask.array as da
    >>> x = da.from_array(np.array([[2.0**60, 1.0, -(2.0**60)]]), chunks=(1, 1))
    >>> gm.distributed.matmul(x, da.ones((3, 1), chunks=1), accuracy="exact").compute()
    array([[1.]])
    """
    grade = check_options(accuracy, modulus, overflow)
    try:
        import dask.array  # noqa: F401
    except ImportError as error:
        raise ImportError('gemmulate.distributed needs dask: pip install "dask[array]"') from error
    x, y = _as_dask(a, "a"), _as_dask(b, "b")
    # A product of two zeros: every complaint about types and options, and the result's type.
    samples = np.zeros((1, 1), dtype=x.dtype), np.zeros((1, 1), dtype=y.dtype)
    runner = Runner(engine, threads)
    dtype = runner.matmul(*samples, accuracy=accuracy, modulus=modulus, overflow=overflow).dtype
    left = x[None, :] if x.ndim == 1 else x
    right = y[:, None] if y.ndim == 1 else y
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(
            f"a has shape {x.shape} and b has shape {y.shape}: a's last dimension ({left.shape[-1]}) must equal b's "
            f"{'only' if y.ndim == 1 else 'second last'} one ({right.shape[-2]})"
        )
    product = _Product(runner, grade, accuracy, modulus, overflow, dtype)
    result = product.matrices(left, right) if left.ndim == right.ndim == 2 else product.stacks(left, right)
    if y.ndim == 1:
        result = result[..., 0]
    return result[..., 0] if x.ndim == y.ndim == 1 else result[..., 0, :] if x.ndim == 1 else result


def _as_dask(x: Any, name: str) -> DaskArray:
    import dask.array as da

    if not isinstance(x, da.Array):
        operand = as_operand(x, name)
        return da.from_array(operand, chunks=-1 if operand.dtype == object else "auto")
    if any(math.isnan(size) for size in x.shape):
        raise ValueError(f"{name} has chunks of unknown size {x.chunks}; call {name}.compute_chunk_sizes() first")
    if x.ndim == 0:
        raise ValueError(f"{name} is 0-dimensional; a product needs vectors, matrices or stacks (use * for scalars)")
    return x


class _Product:
    """The options of one product, and its tasks by shape."""

    def __init__(
        self,
        runner: Runner,
        grade: Grade | Bits,
        accuracy: Accuracy | Bits,
        modulus: int | None,
        overflow: Overflow,
        dtype: np.dtype[Any],
    ) -> None:
        self.runner, self.grade, self.dtype = runner, grade, dtype
        self.accuracy, self.modulus, self.overflow = accuracy, modulus, overflow

    def stacks(self, a: DaskArray, b: DaskArray) -> DaskArray:
        """Operands (…, m, k) and (…, k, n)."""
        import dask.array as da

        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise ValueError(
                f"a has shape {a.shape} and b has shape {b.shape}: the stacks {a.shape[:-2]} and {b.shape[:-2]} "
                "do not broadcast"
            ) from None
        shape = (*batch, a.shape[-2], b.shape[-1])
        if 0 in (*shape, a.shape[-1]):
            return da.zeros(shape, dtype=self.dtype)
        if all(len(chunks) == 1 for chunks in (*a.chunks[-2:], *b.chunks[-2:])):
            return da.apply_gufunc(
                self._multiply_stack, "(m,k),(k,n)->(m,n)", a, b, meta=np.empty((0,) * len(shape), dtype=self.dtype)
            )
        x, y = da.broadcast_to(a, (*batch, *a.shape[-2:])), da.broadcast_to(b, (*batch, *b.shape[-2:]))
        products = [self.matrices(x[index], y[index]) for index in np.ndindex(*batch)]
        return da.stack(products).reshape(shape)

    def _multiply_stack(self, a: Any, b: Any) -> Any:
        options = {"accuracy": self.accuracy, "modulus": self.modulus, "overflow": self.overflow}
        return self.runner.matmul(a, b, **options)

    def matrices(self, a: DaskArray, b: DaskArray) -> DaskArray:
        """Operands (m, k) and (k, n)."""
        import dask.array as da
        from dask.base import tokenize
        from dask.highlevelgraph import HighLevelGraph

        (m, k), n = a.shape, b.shape[1]
        if 0 in (m, k, n):
            return da.zeros((m, n), dtype=self.dtype, chunks=(a.chunks[0], b.chunks[1]))
        rows, columns = _not_empty(a.chunks[0]), _not_empty(b.chunks[1])
        depths = _common_cuts(a.chunks[1], b.chunks[0])
        left, right = a.rechunk((rows, depths)), b.rechunk((depths, columns))
        offsets = [[sum(sizes[:i]) for i in range(len(sizes))] for sizes in (rows, columns)]
        kind = common_kind(np.zeros((1, 1), dtype=a.dtype), np.zeros((1, 1), dtype=b.dtype))[2]
        token = tokenize(left.name, right.name, self.runner, self.accuracy, self.modulus, self.overflow)
        tasks, keys = Tasks(token), (_keys(left), _keys(right))
        if kind in ("float", "complex"):
            types = a.dtype, b.dtype
            blocks = float_tasks(tasks, self.runner, *keys, self.grade, types, (m, k, n), self.accuracy, offsets)
        else:
            overflow = "object" if kind == "object" else self.overflow
            blocks = integer_tasks(tasks, self.runner, *keys, self.modulus, overflow, self.dtype, offsets)
        name = f"gemmulate-matmul-{token}"
        layer = tasks.graph | {(name, i, j): key for i, of_row in enumerate(blocks) for j, key in enumerate(of_row)}
        graph = HighLevelGraph.from_collections(name, layer, dependencies=[left, right])
        return da.Array(graph, name, (rows, columns), meta=np.empty((0, 0), dtype=self.dtype))


def _keys(x: DaskArray) -> Array:
    """The keys of a matrix's blocks, by their places."""
    keys = np.empty(x.numblocks, dtype=object)
    for index in np.ndindex(*x.numblocks):
        keys[index] = (x.name, *index)
    return keys


def _not_empty(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in sizes if size)


def _common_cuts(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The coarsest chunks that cut wherever a or b does."""
    cuts = sorted({0, *np.cumsum(a).tolist(), *np.cumsum(b).tolist()})
    return tuple(stop - start for start, stop in pairwise(cuts))
