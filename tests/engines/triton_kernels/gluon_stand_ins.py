"""Stand-ins for the operations of Gluon that `warpgroup_gemm` uses, so that its source runs as Python.

What the hardware may do at any time between two points is done here at one of the two, as asked: a copy by TMA fills
its buffer when it is started or when its barrier is waited for, a product reads its buffers when it is started or when
it is waited for. The first half of a product's rows stands for a group of warps that is as fast as can be; the second
half, for a group that lags behind until the barrier of all warps. Where two SMs share a program they are its halves,
and only the barrier of both holds the slow one's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

Early = bool


class Tensor(np.ndarray):
    """NumPy's array with Gluon's conversions."""

    def to(self, dtype: Any, bitcast: bool = False) -> Tensor:
        return self.view(dtype) if bitcast else self.astype(dtype)


def tensor(x: Any) -> Tensor:
    return np.asarray(x).view(Tensor)


class Pointer:
    """A place in a flat array."""

    def __init__(self, memory: np.ndarray, at: Any = 0) -> None:
        self.memory, self.at = memory, at

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.memory, self.at + offset)


class Descriptor:
    """A matrix and the block that is read of it; zeros outside."""

    layout = "of the tensor instructions"

    def __init__(self, matrix: np.ndarray, block: tuple[int, int]) -> None:
        self.matrix, self.block = matrix, block
        self.nbytes_per_cta = block[0] * block[1]

    def read(self, row: int, column: int) -> np.ndarray:
        assert row >= 0
        assert column >= 0
        found = np.zeros(self.block, dtype=np.int8)
        part = self.matrix[row : row + self.block[0], column : column + self.block[1]]
        found[: part.shape[0], : part.shape[1]] = part
        return found


class Barrier:
    """Phases done; bytes that the present one still expects; copies that have not arrived."""

    def __init__(self) -> None:
        self.done, self.expected, self.armed, self.copies = 0, 0, False, []
        self.started, self.awaited = 0, 0  # phases

    def arrived(self, size: int) -> None:
        self.expected -= size
        assert self.expected >= 0, "more bytes than the barrier expects"
        if self.armed and self.expected == 0:
            self.done, self.armed = self.done + 1, False


class Buffers:
    """Shared memory in slots."""

    def __init__(self, slots: list[Any]) -> None:
        self.slots = slots

    def index(self, slot: int) -> Any:
        assert slot in range(len(self.slots))
        return self.slots[slot]


class Buffer:
    def __init__(self, shape: tuple[int, int]) -> None:
        self.data = np.full(shape, 99, dtype=np.int8)  # what a kernel that ran before has left

    def permute(self, order: tuple[int, int]) -> Any:
        assert order == (1, 0)
        return SimpleNamespace(transposed=self)


class Product:
    """Sums, and the products of steps that have not reached them."""

    def __init__(self, sums: np.ndarray) -> None:
        self.sums, self.started, self.lagging = sums, [], []


class Device:
    """One program's view: `run` executes a kernel's source with these operations."""

    def __init__(self, program: int, programs: int, ctas: int, copies: Early, products: Early) -> None:
        self.program, self.programs, self.ctas = program, programs, ctas
        self.early_copies, self.early_products = copies, products
        self.current: Product | None = None
        self.barriers: list[Barrier] = []

    # TMA and its barriers

    def expect(self, barrier: Barrier, size: int, there: Any) -> None:
        if there:
            assert not barrier.armed, "a barrier is armed twice in one phase"
            barrier.armed, barrier.expected = True, barrier.expected + size
            barrier.started += 1

    def load(
        self,
        descriptor: Descriptor,
        at: list[Any],
        barrier: Barrier,
        buffer: Buffer,
        there: Any,
        multicast: bool = False,
    ) -> None:
        assert not multicast or self.ctas > 1
        if not there:
            return

        def copy() -> None:
            buffer.data[:] = descriptor.read(*map(int, at))
            barrier.arrived(buffer.data.nbytes)

        buffer.data[:] = 77  # from now on it may be anything
        if self.early_copies:
            copy()
        else:
            barrier.copies.append(copy)

    def wait(self, barrier: Barrier, phase: int) -> None:
        while barrier.copies:
            barrier.copies.pop(0)()
        assert barrier.done % 2 != phase, "the program waits for ever"
        barrier.awaited = barrier.done

    # Products

    def multiply(self, a: Buffer, b: Any, sums: Any, is_async: bool) -> Product:
        assert is_async
        product = sums if isinstance(sums, Product) else Product(np.array(sums))
        half = len(product.sums) // 2

        def step(rows: slice) -> None:
            left, right = a.data[rows].astype(np.int64), b.transposed.data.astype(np.int64)
            product.sums[rows] += (left @ right.T).astype(np.int32)

        halves = [lambda: step(slice(0, half)), lambda: step(slice(half, None))]
        if self.early_products:
            step(slice(None))
            halves = [lambda: None, lambda: None]
        product.started.append(halves)
        self.current = product
        return product

    def wait_products(self, left: int, deps: tuple[Product]) -> Any:
        (product,) = deps
        while len(product.started) > left:
            fast, slow = product.started.pop(0)
            fast()
            product.lagging.append(slow)
        if left:
            return product
        self.barrier_of(product)
        return tensor(product.sums)

    def barrier_of(self, product: Product | None) -> None:
        while product and product.lagging:
            product.lagging.pop(0)()

    # The kernel's source

    def names(self) -> dict[str, Any]:
        def nothing(*arguments: Any, **options: Any) -> None:
            return None

        def allocate(dtype: Any, shape: list[int], layout: Any) -> Buffers:
            return Buffers([Buffer((shape[1], shape[2])) for _ in range(shape[0])])

        def barriers(batch: int) -> Buffers:
            self.barriers = [Barrier() for _ in range(batch)]
            return Buffers(self.barriers)

        def barrier(cluster: bool = False) -> None:
            if self.ctas == 1:
                self.barrier_of(self.current)

        def high(a: Any, b: Any) -> Tensor:
            return tensor(((a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32))

        def store(pointer: Pointer, values: Any, mask: Any) -> None:
            mask = np.broadcast_to(mask, values.shape)
            pointer.memory[np.asarray(pointer.at)[mask]] = np.asarray(values)[mask]

        gl = SimpleNamespace(
            int8=np.int8, int32=np.int32, int64=np.int64, uint8=np.uint8, uint32=np.uint32, constexpr=nothing,
            allocate_shared_memory=allocate, static_range=range, num_warps=lambda: 8, umulhi=high, store=store,
            NVMMADistributedLayout=nothing, BlockedLayout=nothing, SliceLayout=nothing,
            program_id=lambda axis: self.program, num_programs=lambda axis: self.programs, minimum=min,
            zeros=lambda shape, dtype, layout: np.zeros(shape, dtype), cast=lambda x, dtype: int(x),
            arange=lambda start, end, layout: tensor(np.arange(start, end, dtype=np.int32)),
            where=lambda condition, x, y: x if condition else y, convert_layout=lambda x, layout: x,
            load=lambda pointer: tensor(pointer.memory[pointer.at]), barrier=barrier, num_ctas=lambda: self.ctas,
        )  # fmt: skip
        mbarrier = SimpleNamespace(allocate_mbarrier=barriers, init=nothing, expect=self.expect, wait=self.wait)
        return {
            "gl": gl,
            "mbarrier": mbarrier,
            "cluster": SimpleNamespace(barrier=lambda relaxed: self.barrier_of(self.current)),
            "fence_async_shared": nothing,
            "tma": SimpleNamespace(async_load=self.load),
            "warpgroup_mma": self.multiply,
            "warpgroup_mma_wait": self.wait_products,
        }

    def run(self, kernel: Callable[..., Any], helpers: list[Callable[..., Any]], *arguments: Any) -> None:
        names: dict[str, Any] = {**vars(__import__("builtins")), **self.names()}
        for function in helpers:
            names[function.__name__] = FunctionType(function.__code__, names)
        FunctionType(kernel.__code__, names)(*arguments)
        assert self.current is None or not self.current.started, "a product is left in flight"
        # A copy would arrive in memory that another program has by then.
        assert all(barrier.awaited == barrier.started for barrier in self.barriers), "a copy is left in flight"
