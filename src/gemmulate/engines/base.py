"""The contract of an engine: who takes operands apart, runs the exact narrow products and puts results together.

Everything an engine returns is an exact integer, a count, or a correctly rounded value, so every engine returns the
same bits; `tests/engines` holds all of them to one suite. A matrix comes as `x` of shape (vectors, depth): the rows
of a left operand, the columns of a right one (that is, `b.T`), with any strides.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gemmulate.engines.digit_system import DigitSystem
from gemmulate.engines.resident import ResidentFloats
from gemmulate.engines.residue_system import ResidueSystem

Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """dtype.name, which NumPy puts together anew in some microseconds whenever it is asked."""
    return dtype.name


NO_EXPONENT = -100000  # `top` of a zero vector


def host_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class DeviceArray:
    """Base of arrays of a device behind NumPy's names, which schemes and plans take as they take NumPy's."""

    __slots__ = ()


@dataclass(frozen=True)
class EngineRecord:
    """What `gm.engines()` says of one engine."""

    name: str
    device: str
    formats: tuple[str, ...]
    available: bool
    reason: str  # why it is missing, or what it is


class Operand(Protocol):
    """A prepared operand; opaque but for its size and the number of entries that were rounded."""

    @property
    def nbytes(self) -> int: ...
    @property
    def rounded(self) -> int: ...


class Scan(NamedTuple):
    """Exponents of each vector: |x| < 2^top (least such), lowest set bit 2^lsb, special where NaN or inf occurs."""

    top: Int32
    lsb: Int32
    special: npt.NDArray[np.uint8]


class Norms(NamedTuple):
    """Over each vector, with q = ceil(|x| 2^(15 − top)): Σ q, Σ q², max q. Exact integers."""

    sum: npt.NDArray[np.uint64]
    square: npt.NDArray[np.uint64]
    peak: npt.NDArray[np.uint64]


class PairSurvey(NamedTuple):
    """Of pairs: top, special, Σ q and Σ q² as in `Scan` and `Norms`, of the high parts; lsb of both parts."""

    top: Int32
    lsb: Int32
    special: npt.NDArray[np.uint8]
    sum: npt.NDArray[np.uint64]
    square: npt.NDArray[np.uint64]


class FloatOutcome(NamedTuple):
    """Elements whose rounding is not certain, shape (count, 2), and how many results are zero.

    Of results on a device that number may be a scalar there, so that nobody waits for it who does not ask.
    """

    uncertain: npt.NDArray[np.int64]
    zeros: Any


class AnchoredOutcome(NamedTuple):
    """Elements whose rounding stayed open, shape (count, 2), and how many results are zero.

    Not complete: more elements stayed open than the limit, and the output is unspecified.
    """

    complete: bool
    uncertain: npt.NDArray[np.int64]
    zeros: int


class Engine(ABC):
    """One device with its kernels. `inner` is a power-of-two exponent for each step of k, or None."""

    name: str
    formats: tuple[str, ...] = ()  # narrow formats whose planes carry the products; none: INT8 residues

    @property
    @abstractmethod
    def widest_bits(self) -> int:
        """Bits, sign included, of the widest integers that products give; wider operands are cut into limbs."""

    @abstractmethod
    def scan(self, x: Array, inner: Int32 | None) -> Scan:
        """Exponents of a float matrix."""

    @abstractmethod
    def norms(self, x: Array, top: Int32, inner: Int32 | None) -> Norms:
        """Integer norms of a float matrix whose vectors are scaled by 2^-top."""

    @abstractmethod
    def depths(self, x: Array, top: Int32, inner: Int32 | None, bins: int) -> npt.NDArray[np.int64]:
        """How many entries need d = top − lsb(entry) bits to be kept exactly, d clipped to bins − 1."""

    @abstractmethod
    def integer_range(self, x: Array) -> tuple[int, int]:
        """(min(0, least), max(0, largest)) of an integer matrix."""

    @abstractmethod
    def pack_floats(
        self, left: bool, x: Array, shift: Int32, inner: Int32 | None, system: ResidueSystem, bits: int, count: bool
    ) -> Operand:
        """Residues of rint(x 2^(shift + inner)), |·| ≤ 2^bits; `count` records how many entries were rounded."""

    def survey_pairs(self, high: Array, low: Array, inner: Int32 | None) -> PairSurvey:
        """Exponents and norms of pairs of float64, high = fl(high + low)."""
        scan, rest = self.scan(high, inner), self.scan(low, inner)
        norms = self.norms(high, scan.top, inner)
        return PairSurvey(scan.top, np.minimum(scan.lsb, rest.lsb), scan.special, norms.sum, norms.square)

    @abstractmethod
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
        """Residues of integers within 3/4 of (high + low) 2^(shift + inner), |·| ≤ 2^bits; exact where that is one.

        high and low are float64 with high = fl(high + low). The integer is the sum of both parts' nearest integers
        after the scaling, ties to even.
        """

    @abstractmethod
    def pack_integers(self, left: bool, x: Array, system: ResidueSystem, bits: int) -> Operand:
        """Residues of an integer matrix, |x| ≤ 2^bits."""

    @abstractmethod
    def pack_words(self, left: bool, x: npt.NDArray[np.uint32], system: ResidueSystem, bits: int) -> Operand:
        """Residues of two's complement integers, x of shape (vectors, depth, words), 32-bit words, least first."""

    @abstractmethod
    def pack_direct(self, left: bool, x: Array, zero_point: int) -> Operand:
        """One plane of bytes x − zero_point, which must fit [0, 255] on the left, [−128, 127] on the right."""

    @abstractmethod
    def pack_magnitudes(self, left: bool, x: Array, top: Int32, inner: Int32 | None) -> Operand:
        """One plane of magnitudes floor(|x| 2^(7 − top + inner))."""

    @abstractmethod
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
        """Write integer · 2^(row + column), rounded once, to `out` (float64, float32, float16, bfloat16).

        `check` = (bits_left, bits_right) asks which roundings are certain in spite of the operands' roundings.
        """

    @abstractmethod
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
        """Write integer · 2^(row + column), rounded once to pairs (`rounding.round_to_pair`); return the zeros."""

    @abstractmethod
    def multiply_integers(self, left: Operand, right: Operand, system: ResidueSystem, out: Array) -> int:
        """Write the low 64 bits to `out` (int64 or uint64); return the largest bit length, sign included."""

    @abstractmethod
    def multiply_words(self, left: Operand, right: Operand, system: ResidueSystem, out: npt.NDArray[np.uint64]) -> int:
        """Write two's complement results to `out` (m, n, words); return the largest bit length, sign included."""

    @abstractmethod
    def multiply_limbs(
        self,
        left: Sequence[Operand],
        right: Sequence[Operand],
        system: ResidueSystem,
        limb_bits: int,
        out: npt.NDArray[np.uint64],
    ) -> None:
        """Write Σ_ij left_i right_j 2^(limb_bits (i + j)), two's complement, to `out` (m, n, words).

        The system covers every coefficient Σ_{i+j=s} left_i right_j.
        """

    @abstractmethod
    def multiply_modular(self, left: Operand, right: Operand, system: ResidueSystem, modulus: int, out: Array) -> None:
        """Write the results mod `modulus` (2 … 2^63), in [0, modulus), to `out` (int64)."""

    @abstractmethod
    def multiply_direct(self, left: Operand, right: Operand, out: Array, modulus: int | None = None) -> int:
        """Product of two `pack_direct` operands to int64, uint64 or int32; return as `multiply_integers`.

        With a modulus, results in [0, modulus) to int64.
        """

    def centred(self, x: Array, p: int) -> Array:
        """x mod p of least magnitude, |r| ≤ p/2, in a signed dtype that holds it; 2 ≤ p ≤ 2^63."""
        # r < 2^63 fits int64 for every p; a modulus of 2^63 itself only fits uint64.
        if x.dtype == np.uint64 or p == 1 << 63:
            positive = (x.astype(np.uint64) % np.uint64(p)).astype(np.int64)
        else:
            positive = x.astype(np.int64) % np.int64(p)
        return np.where(positive > p // 2, positive + np.int64(-p), positive)

    def pack_reduced(self, left: bool, x: Array, system: ResidueSystem, bits: int, p: int) -> Operand:
        """Residues of x mod p of least magnitude, which is ≤ 2^bits."""
        return self.pack_integers(left, self.centred(x, p), system, bits)

    def digits(self, p: int) -> DigitSystem | None:
        """The digits by which it multiplies modulo p; None where it has no such products."""
        return None

    def pack_digits(self, left: bool, x: Array, system: DigitSystem) -> Operand:
        """The digits of any integers modulo p, one plane of bytes each, with the sums that the system asks for."""
        raise NotImplementedError(f"engine {self.name} has no products of digits")

    def multiply_digits(self, left: Operand, right: Operand, system: DigitSystem, out: Array) -> None:
        """Write the product of two `pack_digits` operands mod p, in [0, p), to `out` (int64)."""
        raise NotImplementedError(f"engine {self.name} has no products of digits")

    @property
    def arrays(self) -> type | None:
        """The class of a device's arrays that it takes and writes beside NumPy's."""
        return None

    @property
    def panel(self) -> tuple[int, int] | None:
        """Rows and columns of a block of the result that the engine likes best; None for those of a processor."""
        return None

    def memory(self) -> int:
        """Bytes that there are for operands, packed ones and results."""
        return host_memory()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised array where the engine writes results: NumPy's, or one on its device."""
        return np.empty(shape, dtype=dtype)

    def empty_on_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised NumPy array for a result."""
        return np.empty(shape, dtype=dtype)

    def device_shifts(self, x: Array, bits: int) -> Array:
        """Exponents that scale each vector of a float matrix to |x| < 2^bits, 0 for a vector of zeros.

        A vector on the device, of a matrix there: `pack_floats`, and negated `multiply_floats`, take it in NumPy's
        place. Nothing is read by the host.
        """
        raise NotImplementedError(f"engine {self.name} keeps no exponents on a device")

    def settle(self, a: Array, bt: Array, out: Array) -> None:
        """Overwrite the elements of out that IEEE's rules decide beside the exact sum; nothing is read by the host.

        NaN or an infinity where a (m, k) and bt (n, k) hold NaN or infinities; −0 for +0 where every product is −0.
        """
        raise NotImplementedError(f"engine {self.name} decides special values on the host")

    @property
    def resident(self) -> ResidentFloats | None:
        """Float products whose bits are chosen on the device; None where the host chooses."""
        return None

    @property
    def capturing(self) -> bool:
        """Whether what is launched now is recorded into a graph, so that nothing may wait for the device."""
        return False

    def positions_above(self, x: Array, limit: int) -> npt.NDArray[np.int64]:
        """Indices (count, 2), by rows, of the entries of a matrix of bytes that exceed the limit."""
        return np.argwhere(x > limit)

    @property
    def threads(self) -> int:
        """Threads that a product may use."""
        return 1

    def alone(self) -> Engine:
        """The same engine on one thread."""
        return self

    @property
    def halving_size(self) -> float:
        """Least of m, k, n from which a level of Strassen's algorithm over residues pays; infinite for none."""
        return math.inf

    def anchored_cost(self) -> float:
        """INT8 products that one product by anchored sums takes as long as; infinite where there is none."""
        return math.inf

    def pack_anchored(self, left: bool, x: Array, top: Int32, lsb: Int32) -> Operand:
        """A float64 or float32 matrix for anchored sums; no vector's entries span more than 400 bits (top − lsb)."""
        raise NotImplementedError(f"engine {self.name} has no anchored sums")

    def multiply_anchored(self, left: Operand, right: Operand, out: Array, limit: int) -> AnchoredOutcome:
        """Write correctly rounded dot products to `out`, of the operands' type, but for the open elements."""
        raise NotImplementedError(f"engine {self.name} has no anchored sums")

    def exact_product(self, a: Array, b: Array, out: Array) -> bool:
        """Write the correctly rounded product of float64 or float32 operands in one call, made for small sizes.

        Returns False, with `out` unspecified, where the engine cannot: the caller takes the general way.
        """
        return False

    def exact_integer_product(
        self, a: Array, b: Array, out: Array, modulus: int | None = None, wrap: bool = False
    ) -> bool:
        """Write the product of integers a (m, k) and b (n, k), k ≥ 1, in one call, made for small sizes.

        Exact results to `out` (int64 or uint64) where all are known to fit; with a modulus (2 … 2^63) its residues in
        [0, modulus) to int64; with `wrap` the low bits to any integer type. `out` overlaps no operand. Returns False,
        with `out` unspecified, where the engine cannot, or a result may not fit: the caller takes the general way.
        """
        return False

    def wrapped_cost(self, itemsize: int) -> float:
        """INT8 products that one product modulo 2^(8 itemsize) takes as long as; infinite where there is none."""
        return math.inf

    def pack_wrapped(self, left: bool, x: Array, itemsize: int) -> Operand:
        """An integer matrix modulo 2^(8 itemsize), itemsize 4 or 8."""
        raise NotImplementedError(f"engine {self.name} has no products modulo 2^{8 * itemsize}")

    def multiply_wrapped(self, left: Operand, right: Operand, out: Array) -> int:
        """Write the product of two `pack_wrapped` operands, modulo 2^(8 itemsize), to `out` of that itemsize.

        Returns the largest bit length of what was written, its sign included.
        """
        raise NotImplementedError(f"engine {self.name} has no wrapped products")

    @abstractmethod
    def assess(
        self,
        left: Operand,
        right: Operand,
        sum_left: npt.NDArray[np.uint64],
        sum_right: npt.NDArray[np.uint64],
        budget: float,
        need: npt.NDArray[np.uint8],
    ) -> npt.NDArray[np.int64]:
        """Bits that each element asks for (see native/product.hpp); returns their histogram of 256 bins."""

    @abstractmethod
    def exact_dots(self, a: Array, b: Array, at: npt.NDArray[np.int64], out: Array) -> None:
        """Write the correctly rounded dot products at the indices `at` (count, 2); finite entries only."""

    @abstractmethod
    def exact_dot_pairs(self, a: Array, b: Array, at: npt.NDArray[np.int64], high: Array, low: Array) -> None:
        """The same rounded to pairs; exact zeros are +0."""

    @abstractmethod
    def fix_negative_zeros(self, a: Array, b: Array, out: Array) -> None:
        """Turn +0 into −0 where every product of the element is −0."""
