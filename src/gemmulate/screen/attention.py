"""Reference attention for the equality gate: INT8-QK / FP8-PV online softmax in the baseline's order of operations.

The order is that of SageAttention's sm_89 kernel (Zhang et al. 2025, https://github.com/thu-ml/SageAttention): keys in
tiles of 64, main iterations with one folded scale, the last two with two steps; the running maximum carries the FP8
offset; P is cast to E4M3 bytes; the denominator sums the unrounded P per lane; RO is rescaled before PV is added; at
the end a reciprocal, then the conversion to bfloat16. Where the hardware approximates (ex2, rcp, the order of sums in
one MMA) the reference rounds correctly and sums keys in ascending order, the same on every machine.

`role_split` computes the same with two roles and a bounded handoff: QK owns the maximum and the denominator, PV owns
RO.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from gemmulate import formats

F32 = NDArray[np.float32]

TILE: Final = 64
# |q·k| ≤ depth·2^14 < 2^24: float32 holds every sum exactly.
MAX_DEPTH: Final = 1023
LANES: Final = 4
# log2(448), the largest E4M3 value, cut to three decimals as in the kernel: P fills the format's range.
FP8_OFFSET: Final = np.float32(8.807)
START: Final = np.float32(-5_000_000.0)
LOG2_E: Final = np.float32(1.44269504088896340736)

# The finite E4M3 values 0…448 in the order of their codes; the code behind them is NaN.
_NAN: Final = 0x7F
_E4M3: Final = np.array([formats.get("fp8_e4m3").decode(code) for code in range(_NAN)], dtype=np.float32)
# A value halfway between two codes belongs to the even one.
_MIDDLES: Final = (_E4M3[:-1] + _E4M3[1:]) / 2


class Inputs(msgspec.Struct, frozen=True):
    """One head: q int8 (queries, depth), k int8 (keys, depth), v E4M3 bytes (keys, width), and their scales.

    q_scale is one float32, k_scale one per tile of 64 keys, v_scale one per column of v: positive and finite. keys is
    any positive number, the last tile is masked; depth is 1…1023. Raises ValueError for other shapes, types and scales
    and for NaN codes in v.
    """

    q: NDArray[np.int8]
    k: NDArray[np.int8]
    v: NDArray[np.uint8]
    q_scale: np.float32
    k_scale: F32
    v_scale: F32

    def __post_init__(self) -> None:
        q, k, v = self.q, self.k, self.v
        shapes_fit = q.ndim == k.ndim == v.ndim == 2 and q.shape[1] == k.shape[1] and len(k) == len(v)
        if not shapes_fit or not q.size or not k.size or not v.size:
            raise ValueError(f"shapes q {q.shape}, k {k.shape}, v {v.shape} do not fit; see Inputs")
        if q.shape[1] > MAX_DEPTH:
            raise ValueError(f"depth = {q.shape[1]} is above {MAX_DEPTH}, where float32 no longer holds every score")
        for name, array, dtype in (("q", q, np.int8), ("k", k, np.int8), ("v", v, np.uint8)):
            if array.dtype != dtype:
                raise ValueError(f"{name} has dtype {array.dtype}; give {np.dtype(dtype)}")
        if self.k_scale.shape != (-(-len(k) // TILE),) or self.v_scale.shape != (v.shape[1],):
            raise ValueError(f"k_scale needs {-(-len(k) // TILE)} entries and v_scale {v.shape[1]}")
        for name in ("q_scale", "k_scale", "v_scale"):
            scale = np.asarray(getattr(self, name))
            if scale.dtype != np.float32 or not (np.isfinite(scale) & (scale > 0)).all():
                raise ValueError(f"{name} is not positive, finite float32; give such scales")
        if np.ndim(self.q_scale):
            raise ValueError(f"q_scale has shape {np.shape(self.q_scale)}; give one figure")
        from_e4m3(v)

    @property
    def tiles(self) -> int:
        """Iterations over the keys."""
        return len(self.k_scale)


class Trace(msgspec.Struct, frozen=True):
    """What the gate compares: E4M3 bytes of P, one (queries, 64) array per tile, and the bfloat16 output as uint16.

    `ro` is the accumulator at the end and `normal` the output before its conversion, both float32; a kernel that
    cannot show them leaves them None, and a change of the last bit is then seen only where it reaches the output.
    """

    p: list[NDArray[np.uint8]]
    output: NDArray[np.uint16]
    ro: F32 | None = None
    normal: F32 | None = None


class Order(msgspec.Struct, frozen=True):
    """Departures from the baseline's order that a redesign may be tempted by; the default has none."""

    tiles: str = "ascending"  # or "descending"
    scaling: str = "baseline"  # or "folded": one scale in the last two iterations too
    denominator: str = "unrounded"  # or "rounded": summed from the FP8 values
    rescale: str = "before"  # or "fused": RO·scale + first product in one rounding
    normalise: str = "reciprocal"  # or "division"
    conversion: str = "nearest"  # or "truncate"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} = {getattr(self, name)!r} is unknown; use {' or '.join(choices)}")


_CHOICES: Final = {
    "tiles": ("ascending", "descending"),
    "scaling": ("baseline", "folded"),
    "denominator": ("unrounded", "rounded"),
    "rescale": ("before", "fused"),
    "normalise": ("reciprocal", "division"),
    "conversion": ("nearest", "truncate"),
}
BASELINE: Final = Order()


def to_e4m3(values: F32) -> NDArray[np.uint8]:
    """E4M3 bytes of non-negative float32 values: round to nearest even, saturate at 448, infinity included.

    Raises ValueError for a negative value and for NaN, which a probability never is.
    """
    if not (values >= 0).all():
        raise ValueError("values are negative or NaN; a probability is neither")
    codes = np.searchsorted(_MIDDLES, values, side="left")
    tie = _MIDDLES[np.minimum(codes, len(_MIDDLES) - 1)] == values
    return np.asarray(codes + (tie & (codes % 2 == 1)), np.uint8)


def from_e4m3(codes: NDArray[np.uint8]) -> F32:
    """float32 values of E4M3 bytes, exact; raises ValueError for the NaN codes 0x7f and 0xff."""
    magnitude = codes & 0x7F
    if (magnitude == _NAN).any():
        raise ValueError("v holds the E4M3 NaN code 0x7f or 0xff; quantise finite values")
    return np.asarray(np.where(codes & 0x80, -_E4M3[magnitude], _E4M3[magnitude]), np.float32)


def to_bfloat16(values: F32, conversion: str = "nearest") -> NDArray[np.uint16]:
    """bfloat16 bits of finite float32 values, to nearest even or cut off."""
    bits = values.astype(np.float32).view(np.uint32)
    if conversion == "nearest":
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.asarray(bits >> np.uint32(16), np.uint16)


class Softmax:
    """The QK role: running maximum and denominator; each step gives the rescale of RO and P as E4M3 bytes."""

    def __init__(self, inputs: Inputs, order: Order) -> None:
        self.inputs = inputs
        self.order = order
        rows = len(inputs.q)
        self.maximum = np.full(rows, START)
        # Each of the four lanes of a row starts its own partial sum at 1; the first rescale by 2^-huge clears it.
        self.lanes = np.ones((rows, LANES), np.float32)

    def step(self, tile: int, position: int) -> tuple[F32, NDArray[np.uint8]]:
        """Tile `tile` as iteration `position`."""
        scores, scale = self._scores(tile, position)
        highest = _fma(scores.max(axis=1), scale, -FP8_OFFSET)
        before = self.maximum
        self.maximum = np.maximum(before, highest)
        rescale = _exp2(before - self.maximum)
        self.lanes *= rescale[:, None]
        p = _exp2(_fma(scores, scale, -self.maximum[:, None]))
        codes = to_e4m3(p)
        self._accumulate(p if self.order.denominator == "unrounded" else from_e4m3(codes))
        return rescale, codes

    def denominator(self) -> F32:
        """The lanes summed pairwise, as two shuffles do."""
        return np.asarray((self.lanes[:, 0] + self.lanes[:, 1]) + (self.lanes[:, 2] + self.lanes[:, 3]))

    def _scores(self, tile: int, position: int) -> tuple[F32, np.float32]:
        """Scores of a tile and the factor that the exponent still applies."""
        inputs = self.inputs
        keys = inputs.k[tile * TILE : (tile + 1) * TILE]
        products = inputs.q.astype(np.int32) @ keys.astype(np.int32).T
        padded = np.zeros((len(inputs.q), TILE), np.float32)
        padded[:, : len(keys)] = products
        folded = LOG2_E * np.float32(inputs.q.shape[1] ** -0.5)
        dequantise = inputs.q_scale * inputs.k_scale[tile]
        if position < inputs.tiles - 2 or self.order.scaling == "folded":
            scores, scale = padded, np.float32(folded * dequantise)
        else:
            scores, scale = padded * dequantise, folded
        scores[:, len(keys) :] = START
        return scores, scale

    def _accumulate(self, p: F32) -> None:
        # In each group of 16 keys lane j holds columns 2j, 2j+1, 8+2j, 9+2j and adds them in that order.
        groups = p.reshape(len(p), TILE // 16, 2, LANES, 2)
        for group in range(TILE // 16):
            first, second = groups[:, group, 0], groups[:, group, 1]
            self.lanes += ((first[:, :, 0] + first[:, :, 1]) + second[:, :, 0]) + second[:, :, 1]


class Accumulator:
    """The PV role: it owns RO, and sees only rescales, P bytes and, at the end, the denominator."""

    def __init__(self, inputs: Inputs, order: Order) -> None:
        self.inputs = inputs
        self.order = order
        self.values = np.zeros((len(inputs.q), inputs.v.shape[1]), np.float32)

    def step(self, tile: int, rescale: F32, codes: NDArray[np.uint8]) -> None:
        """RO = RO · rescale + P · V, keys in ascending order, one rounding each."""
        p = from_e4m3(codes)
        v = from_e4m3(self.inputs.v[tile * TILE : (tile + 1) * TILE])
        start = 0
        if self.order.rescale == "fused":
            # A product of two E4M3 values has 8 significant bits: it is exact in float32.
            self.values = _fma(self.values, rescale[:, None], p[:, :1] * v[0])
            start = 1
        else:
            self.values = self.values * rescale[:, None]
        for key in range(start, len(v)):
            self.values = self.values + p[:, key : key + 1] * v[key]

    def finish(self, denominator: F32, p: list[NDArray[np.uint8]]) -> Trace:
        if self.order.normalise == "reciprocal":
            normal = self.values * (np.float32(1) / denominator)[:, None]
        else:
            normal = self.values / denominator[:, None]
        normal = normal * self.inputs.v_scale
        return Trace(p, to_bfloat16(normal, self.order.conversion), self.values, normal)


def attention(inputs: Inputs, order: Order = BASELINE) -> Trace:
    """The baseline: one role does everything, tile after tile."""
    softmax, accumulator = Softmax(inputs, order), Accumulator(inputs, order)
    p = []
    for position, tile in enumerate(_sequence(inputs, order)):
        rescale, codes = softmax.step(tile, position)
        accumulator.step(tile, rescale, codes)
        p.append(codes)
    return accumulator.finish(softmax.denominator(), p)


def role_split(inputs: Inputs, *, depth: int = 2, order: Order = BASELINE) -> Trace:
    """Two roles and a handoff of at most `depth` tiles (≥ 1): QK runs ahead, PV follows; RO never crosses over.

    The handoff carries the rescale and the P bytes of a tile, and the denominator once; nothing of size N × N.
    """
    if depth < 1:
        raise ValueError(f"depth = {depth}: the handoff needs room for one tile")
    softmax, accumulator = Softmax(inputs, order), Accumulator(inputs, order)
    handoff: deque[tuple[int, F32, NDArray[np.uint8]]] = deque()
    p = []
    for position, tile in enumerate(_sequence(inputs, order)):
        if len(handoff) == depth:
            accumulator.step(*handoff.popleft())
        rescale, codes = softmax.step(tile, position)
        handoff.append((tile, rescale, codes))
        p.append(codes)
    while handoff:
        accumulator.step(*handoff.popleft())
    return accumulator.finish(softmax.denominator(), p)


def _sequence(inputs: Inputs, order: Order) -> Iterator[int]:
    return iter(range(inputs.tiles) if order.tiles == "ascending" else range(inputs.tiles - 1, -1, -1))


def _fma(
    x: NDArray[np.float32] | np.float32, y: NDArray[np.float32] | np.float32, z: NDArray[np.float32] | np.float32
) -> F32:
    """x·y + z: the product is exact in float64; the sum is rounded there and then to float32."""
    return (np.asarray(x, np.float64) * np.asarray(y, np.float64) + np.asarray(z, np.float64)).astype(np.float32)


def _exp2(x: F32) -> F32:
    """2^x with results below the normal range flushed to zero, as ex2.approx.ftz does."""
    values = np.exp2(x.astype(np.float64)).astype(np.float32)
    return np.where(values < np.finfo(np.float32).tiny, np.float32(0), values)
