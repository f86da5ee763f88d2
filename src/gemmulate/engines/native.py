"""The native engine: C++ kernels of one instruction set, chosen at run time, with OpenMP threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, final

import numpy as np
import numpy.typing as npt

from gemmulate.engines import progress
from gemmulate.engines.base import (
    AnchoredOutcome,
    Array,
    Engine,
    FloatOutcome,
    Int32,
    Norms,
    Operand,
    PairSurvey,
    Scan,
    dtype_name,
)
from gemmulate.engines.digit_system import DigitSystem, digit_system
from gemmulate.engines.residue_system import LIMB_BITS, ResidueSystem, digits_for, widest_bits

# Time of a product modulo 2^32 or 2^64 in INT8 products of a residue system, conversion and reconstruction included:
# n = 1024 to 2048, one thread, processor time, EPYC Zen 5, 2026-11-30 (9.0 to 10.5 and 4.2 bare INT8 products with
# AVX512-VNNI, where a residue product takes 1.0 to 1.2). AVX-VNNI was not run: instruction counts (VPDPBUSD 32
# products, VPMULLD 8, three VPMULUDQ 4).
_WRAPPED_COST = {
    "scalar": {4: 0.5, 8: 1.4},
    "avx2": {4: 1.4, 8: 7.7},
    "avxvnni": {4: 6.0, 8: 25.0},
    "avx512vnni": {4: 4.0, 8: 9.0},
}

# Least of m, k, n from which one level of Strassen and Winograd's algorithm over residues pays: time of the halved over
# the plain product, 14 moduli, 2 threads, EPYC Zen 5, 2026-11-30: scalar 0.92 (256), 0.90 (512); AVX2 1.06 (1,024),
# 0.96 (2,048); AVX512-VNNI 1.04 (2,048), 1.04 (4,096), 1.00 (6,144), 0.99 (8,192): what it saves in multiplications it
# loses in traffic, 7/4 of the residues. AVX-VNNI was not run.
_HALVING_SIZE = {"scalar": 256, "avx2": 2048, "avxvnni": math.inf, "avx512vnni": math.inf}
# The same of a product by anchored sums (17.5 bare INT8 products with AVX512-VNNI, 9.2 with AVX2, measured as above;
# with AVX-VNNI 14.7, Zen 5, n = 512 and 1,024, one thread, 14.5 to 15.6 of 14 runs, 2026-11-30, and in proportion to
# AVX512-VNNI's). No kernel without FMA.
_ANCHORED_COST = {"scalar": math.inf, "avx2": 7.0, "avxvnni": 13.5, "avx512vnni": 16.0}


@lru_cache(maxsize=1)
def load() -> Any:
    """The extension module, or None where it was not built."""
    try:
        return import_module("gemmulate._native")
    except ImportError:
        return None


@lru_cache(maxsize=1)
def instruction_sets() -> dict[str, bool]:
    """Instruction sets compiled in, slowest first, and whether this processor has them."""
    module = load()
    return {} if module is None else dict(module.instruction_sets())


@lru_cache(maxsize=256)
def _moduli(system: ResidueSystem, digits: int, left: bool) -> Any:
    # The core takes digits in pairs: two weights of 16 bits in a word.
    pairs = system.coefficients(digits + digits % 2, left).astype("<i2").view("<i4").astype(np.int32)
    return load().Moduli(np.array(system.moduli, dtype=np.int32), pairs, system.halved)


@lru_cache(maxsize=256)
def _crt(system: ResidueSystem, shift: int = 0) -> Any:
    moduli = np.array(system.moduli, dtype=np.int32)
    return load().Crt(moduli, system.shifted_weights(shift), 1.0 / moduli, system.shifted_product(shift))


@lru_cache(maxsize=256)
def _crt_modulo(system: ResidueSystem, p: int) -> Any:
    moduli = np.array(system.moduli, dtype=np.int32)
    weights, product = system.weights_modulo(p)
    return load().Crt(moduli, weights, 1.0 / moduli, product)


def _float_target(out: Array) -> tuple[Array, str]:
    """The result as the core writes it, and its format: 16-bit floats travel as uint16."""
    return out.view(np.uint16) if out.dtype.itemsize == 2 else out, dtype_name(out.dtype)


@final
class NativeEngine(Engine):
    """Kernels of the instruction set `isa` on `threads` threads."""

    def __init__(self, name: str, isa: str, threads: int | None) -> None:
        self.name = name
        self._isa = isa
        self._core = load()
        self._threads = threads if threads is not None else int(self._core.default_threads())

    @property
    def widest_bits(self) -> int:
        return widest_bits()

    def scan(self, x: Array, inner: Int32 | None) -> Scan:
        return Scan(*self._core.scan(self._isa, x, inner, self._threads, progress.current()))

    def norms(self, x: Array, top: Int32, inner: Int32 | None) -> Norms:
        return Norms(*self._core.norms(self._isa, x, top, inner, self._threads, progress.current()))

    def depths(self, x: Array, top: Int32, inner: Int32 | None, bins: int) -> npt.NDArray[np.int64]:
        result: npt.NDArray[np.int64] = self._core.depths(x, top, inner, bins, self._threads, progress.current())
        return result

    def integer_range(self, x: Array) -> tuple[int, int]:
        low, high = self._core.integer_range(self._isa, x, self._threads, progress.current())
        return int(low), int(high)

    def pack_floats(
        self, left: bool, x: Array, shift: Int32, inner: Int32 | None, system: ResidueSystem, bits: int, count: bool
    ) -> Operand:
        moduli = _moduli(system, digits_for(bits), left)
        operand: Operand = self._core.pack_floats(
            self._isa, left, x, shift, inner, moduli, count, self._threads, progress.current()
        )
        return operand

    def survey_pairs(self, high: Array, low: Array, inner: Int32 | None) -> PairSurvey:
        return PairSurvey(*self._core.survey_pairs(self._isa, high, low, inner, self._threads, progress.current()))

    def pack_pairs(
        self,
        left: bool,
        high: Array,
        low: Array,
        shift: Int32,
        inner: Int32 | None,
        system: ResidueSystem,
        bits: int,
    ) -> Operand:
        moduli = _moduli(system, digits_for(bits), left)
        operand: Operand = self._core.pack_pairs(
            self._isa, left, high, low, shift, inner, moduli, self._threads, progress.current()
        )
        return operand

    def pack_integers(self, left: bool, x: Array, system: ResidueSystem, bits: int) -> Operand:
        moduli = _moduli(system, digits_for(bits), left)
        operand: Operand = self._core.pack_integers(self._isa, left, x, moduli, 0, self._threads, progress.current())
        return operand

    def pack_reduced(self, left: bool, x: Array, system: ResidueSystem, bits: int, p: int) -> Operand:
        moduli = _moduli(system, digits_for(bits), left)
        operand: Operand = self._core.pack_integers(self._isa, left, x, moduli, p, self._threads, progress.current())
        return operand

    def digits(self, p: int) -> DigitSystem | None:
        return digit_system(p)

    def pack_digits(self, left: bool, x: Array, system: DigitSystem) -> Operand:
        cut = system.modulus, system.bits, system.digits
        operand: Operand = self._core.pack_digits(self._isa, left, x, *cut, self._threads, progress.current())
        return operand

    def multiply_digits(self, left: Operand, right: Operand, system: DigitSystem, out: Array) -> None:
        cut = system.modulus, system.bits, system.digits
        self._core.multiply_digits(left, right, *cut, out, self._threads, progress.current())

    def pack_words(self, left: bool, x: npt.NDArray[np.uint32], system: ResidueSystem, bits: int) -> Operand:
        moduli = _moduli(system, digits_for(bits), left)
        operand: Operand = self._core.pack_words(self._isa, left, x, moduli, self._threads, progress.current())
        return operand

    def pack_direct(self, left: bool, x: Array, zero_point: int) -> Operand:
        operand: Operand = self._core.pack_direct(self._isa, left, x, zero_point, self._threads, progress.current())
        return operand

    def pack_magnitudes(self, left: bool, x: Array, top: Int32, inner: Int32 | None) -> Operand:
        operand: Operand = self._core.pack_magnitudes(self._isa, left, x, top, inner, self._threads, progress.current())
        return operand

    def multiply_floats(
        self,
        left: Operand,
        right: Operand,
        system: ResidueSystem,
        row_exponent: Int32,
        column_exponent: Int32,
        out: Array,
        check: tuple[int, int] | None,
    ) -> FloatOutcome:
        bits_left, bits_right = check or (0, 0)
        uncertain, zeros = self._core.multiply_floats(
            left,
            right,
            _crt(system),
            row_exponent,
            column_exponent,
            check is not None,
            bits_left,
            bits_right,
            *_float_target(out),
            self._threads,
            progress.current(),
        )
        return FloatOutcome(uncertain.reshape(-1, 2), int(zeros))

    def multiply_pairs(
        self,
        left: Operand,
        right: Operand,
        system: ResidueSystem,
        row_exponent: Int32,
        column_exponent: Int32,
        high: Array,
        low: Array,
    ) -> int:
        crt, report = _crt(system), progress.current()
        return int(
            self._core.multiply_pairs(left, right, crt, row_exponent, column_exponent, high, low, self._threads, report)
        )

    def multiply_integers(self, left: Operand, right: Operand, system: ResidueSystem, out: Array) -> int:
        return int(self._core.multiply_integers(left, right, _crt(system), out, self._threads, progress.current()))

    def multiply_words(self, left: Operand, right: Operand, system: ResidueSystem, out: npt.NDArray[np.uint64]) -> int:
        return int(self._core.multiply_words(left, right, _crt(system), out, self._threads, progress.current()))

    def multiply_limbs(
        self,
        left: Sequence[Operand],
        right: Sequence[Operand],
        system: ResidueSystem,
        limb_bits: int,
        out: npt.NDArray[np.uint64],
    ) -> None:
        # Every coefficient's limbs of 40 bits are to fall on the result's.
        tables = [_crt(system, limb_bits * s % LIMB_BITS) for s in range(len(left) + len(right) - 1)]
        report = progress.current()
        self._core.multiply_limbs(list(left), list(right), limb_bits, tables, out, self._threads, report)

    def multiply_modular(self, left: Operand, right: Operand, system: ResidueSystem, modulus: int, out: Array) -> None:
        crt = _crt_modulo(system, modulus)
        self._core.multiply_modular(left, right, crt, modulus, out, self._threads, progress.current())

    def multiply_direct(self, left: Operand, right: Operand, out: Array, modulus: int | None = None) -> int:
        return int(self._core.multiply_direct(left, right, modulus or 0, out, self._threads, progress.current()))

    def centred(self, x: Array, p: int) -> Array:
        if abs(x.strides[0]) < abs(x.strides[1]):  # read and written in the order of memory
            return self.centred(x.T, p).T
        narrow = next((t for t in (np.int8, np.int16, np.int32) if p < 1 << 8 * np.dtype(t).itemsize), np.int64)
        out = np.empty(x.shape, dtype=narrow)
        self._core.centre_integers(self._isa, x, p, out, self._threads, progress.current())
        return out

    def empty_on_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        # NumPy asks for large pages from 4 MiB on only, and where they do not begin with the array: the small ones of a
        # new 2 MiB result take as long to come as its int8 product (Zen 4 guest, 2026-11-30: 0.7 ms, large 0.05 ms).
        size = math.prod(shape) * dtype.itemsize
        if size < 1 << 20 or dtype.hasobject:
            return np.empty(shape, dtype=dtype)
        try:
            block: Array = self._core.empty(size)
        except MemoryError:
            return np.empty(shape, dtype=dtype)  # in small pages, or NumPy's error, which says how much was asked for
        return block.view(dtype).reshape(shape)

    @property
    def threads(self) -> int:
        return self._threads

    def alone(self) -> NativeEngine:
        return NativeEngine(self.name, self._isa, 1)

    @property
    def halving_size(self) -> float:
        return _HALVING_SIZE[self._isa]

    def anchored_cost(self) -> float:
        return _ANCHORED_COST[self._isa]

    def pack_anchored(self, left: bool, x: Array, top: Int32, lsb: Int32) -> Operand:
        operand: Operand = self._core.pack_anchored(self._isa, left, x, top, lsb, self._threads, progress.current())
        return operand

    def multiply_anchored(self, left: Operand, right: Operand, out: Array, limit: int) -> AnchoredOutcome:
        complete, uncertain, zeros = self._core.multiply_anchored(
            left, right, *_float_target(out), limit, self._threads, progress.current()
        )
        return AnchoredOutcome(complete, uncertain.reshape(-1, 2), int(zeros))

    def exact_product(self, a: Array, b: Array, out: Array) -> bool:
        if _ANCHORED_COST[self._isa] == math.inf:
            return False
        return bool(self._core.exact_product(self._isa, a, b, out, self._threads, progress.current()))

    def exact_integer_product(
        self, a: Array, b: Array, out: Array, modulus: int | None = None, wrap: bool = False
    ) -> bool:
        return bool(self._core.exact_integer_product(self._isa, a, b, out, modulus or 0, wrap))

    def wrapped_cost(self, itemsize: int) -> float:
        return _WRAPPED_COST[self._isa][itemsize]

    def pack_wrapped(self, left: bool, x: Array, itemsize: int) -> Operand:
        operand: Operand = self._core.pack_wrapped(self._isa, left, x, itemsize, self._threads, progress.current())
        return operand

    def multiply_wrapped(self, left: Operand, right: Operand, out: Array) -> int:
        return int(self._core.multiply_wrapped(left, right, out, self._threads, progress.current()))

    def assess(
        self,
        left: Operand,
        right: Operand,
        sum_left: npt.NDArray[np.uint64],
        sum_right: npt.NDArray[np.uint64],
        budget: float,
        need: npt.NDArray[np.uint8],
    ) -> npt.NDArray[np.int64]:
        hist: npt.NDArray[np.int64] = self._core.assess(
            left, right, sum_left, sum_right, budget, need, self._threads, progress.current()
        )
        return hist

    def exact_dots(self, a: Array, b: Array, at: npt.NDArray[np.int64], out: Array) -> None:
        self._core.exact_dots(a, b, at, *_float_target(out), None, self._threads, progress.current())

    def exact_dot_pairs(self, a: Array, b: Array, at: npt.NDArray[np.int64], high: Array, low: Array) -> None:
        self._core.exact_dots(a, b, at, *_float_target(high), low, self._threads, progress.current())

    def fix_negative_zeros(self, a: Array, b: Array, out: Array) -> None:
        self._core.fix_negative_zeros(a, b, *_float_target(out), self._threads, progress.current())
