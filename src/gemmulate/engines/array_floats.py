"""Floats as integers: fields of their bit patterns, exponents, roundings; vectorised, on the library's device.

Nothing here computes with the floats themselves: patterns come apart and are put together by shifts and masks of int64,
so that no device's treatment of subnormal numbers, contraction or fast mathematics can change a bit.
"""

from __future__ import annotations

from typing import NamedTuple

from gemmulate.engines.array_library import Library, Tensor
from gemmulate.engines.base import NO_EXPONENT
from gemmulate.engines.residue_system import DIGIT_BITS
from gemmulate.engines.rounding import BinaryFormat

Limbs = list[Tensor]

LIMB = 40  # bits of a limb: residue_system.LIMB_BITS
LIMB_MASK = (1 << LIMB) - 1
_DIGIT_MASK = (1 << DIGIT_BITS) - 1


def storage_bits(form: BinaryFormat) -> int:
    """Bits of an IEEE format in memory: 16, 32 or 64. Exponents span 2 − 2 emin, a power of two."""
    return form.digits + (2 * form.largest + 1).bit_length()


class Parts(NamedTuple):
    """Entries (−1)^negative · mantissa · 2^exponent, int64; the mantissa is 0 where not finite."""

    negative: Tensor
    mantissa: Tensor
    exponent: Tensor
    finite: Tensor


def decode(lib: Library, pattern: Tensor, form: BinaryFormat, inner: Tensor | None) -> Parts:
    """Bit patterns (signed integers of the format's size) times 2^inner."""
    bits = lib.astype(pattern, "int64")
    places = form.digits - 1
    special = (1 << storage_bits(form) - form.digits) - 1
    field = (bits >> places) & special
    normal = lib.clip(field, 0, 1)
    finite = field != special
    mantissa = ((bits & ((1 << places) - 1)) | (normal << places)) * lib.astype(finite, "int64")
    exponent = field - normal + form.least
    return Parts(bits < 0, mantissa, exponent if inner is None else exponent + inner, finite)


def bit_length(lib: Library, x: Tensor) -> Tensor:
    """Bit lengths of int64 in 0 … 2^53: the exponent of the float64, which is exact and never subnormal."""
    return lib.clip((lib.bitcast(lib.astype(x, "float64"), "int64") >> 52) - 1022, 0, 64)


def tops(lib: Library, parts: Parts) -> Tensor:
    """Of each entry the least t with |x| < 2^t; NO_EXPONENT for zeros."""
    top = parts.exponent + bit_length(lib, parts.mantissa)
    return top + lib.astype(parts.mantissa == 0, "int64") * (NO_EXPONENT - top)


def exponents(lib: Library, parts: Parts) -> tuple[Tensor, Tensor]:
    """Of each entry `tops` and its lowest set bit's exponent; ∓NO_EXPONENT's extremes for zeros."""
    mantissa = parts.mantissa
    lsb = parts.exponent + bit_length(lib, mantissa & -mantissa) - 1
    return tops(lib, parts), lsb - lib.astype(mantissa == 0, "int64") * (NO_EXPONENT + lsb)


def norm_integers(lib: Library, parts: Parts, top: Tensor) -> Tensor:
    """ceil(|x| 2^(15 − top)) of each entry, at least 1 where x is not zero."""
    shift = parts.exponent + (15 - top)
    right = lib.clip(-shift, 0, 60)
    return ((parts.mantissa << lib.clip(shift, 0, 15)) + (1 << right) - 1) >> right


def magnitude_bytes(lib: Library, parts: Parts, top: Tensor) -> Tensor:
    """floor(|x| 2^(7 − top)) of each entry as int8."""
    shift = parts.exponent + (7 - top)
    return lib.astype((parts.mantissa << lib.clip(shift, 0, 7)) >> lib.clip(-shift, 0, 63), "int8")


class Scaled(NamedTuple):
    """Nearest integers of floats, (−1)^negative · integer · 2^raised in `value` and `raised`; which were rounded."""

    value: Tensor  # signed, |value| ≤ 2^53
    raised: Tensor
    rounded: Tensor


def to_integers(lib: Library, parts: Parts, shift: Tensor) -> Scaled:
    """rint(x 2^shift), ties to even."""
    total = parts.exponent + shift
    # One bit is appended, so that the last place kept is never the mantissa's own and half of it is an integer.
    right = lib.clip(-total, 0, 55) + 1
    twice = parts.mantissa << 1
    kept = twice >> right
    half = (1 << right) >> 1
    nearest = (twice + (half - 1) + (kept & 1)) >> right
    sign = 1 - 2 * lib.astype(parts.negative, "int64")
    return Scaled(nearest * sign, lib.clip(total, 0, 1 << 20), (kept << right) != twice)


def scaled_digits(lib: Library, x: Scaled, count: int, raises: bool) -> Limbs:
    """Digits of radix 2^14 of value · 2^raised in two's complement, least first; the last one carries the sign.

    Without `raises`, raised is 0 everywhere.
    """
    digits = []
    for d in range(count):
        if raises:
            shift = DIGIT_BITS * d - x.raised
            digit = (x.value << lib.clip(-shift, 0, DIGIT_BITS)) >> lib.clip(shift, 0, 63)
            if d + 1 < count:
                digit = digit & _DIGIT_MASK  # 0 where shift ≤ −14, as it has to be
        else:
            digit = x.value >> min(DIGIT_BITS * d, 63)
            if d + 1 < count:
                digit = digit & _DIGIT_MASK
        digits.append(digit)
    return digits


def carry(limbs: Limbs) -> Limbs:
    """The same integers with all limbs but the last in [0, 2^40); limbs within ±2^62."""
    out, rest = [], None
    for limb in limbs[:-1]:
        total = limb if rest is None else limb + rest
        out.append(total & LIMB_MASK)
        rest = total >> LIMB
    return [*out, limbs[-1] if rest is None else limbs[-1] + rest]


class Rounded(NamedTuple):
    """Integers · 2^exponent rounded to a format: sign, pattern without sign, and ±kept · 2^(exponent + shift)."""

    negative: Tensor
    pattern: Tensor
    magnitude: Limbs
    kept: Tensor
    shift: Tensor

    def signed(self, lib: Library, form: BinaryFormat) -> Tensor:
        """The whole patterns as int64, −0 for negative values that vanish."""
        return self.pattern - (lib.astype(self.negative, "int64") << storage_bits(form) - 1)


def round_limbs(lib: Library, limbs: Limbs, exponent: Tensor, form: BinaryFormat) -> Rounded:
    """Integers in `carry`'s form, the last limb below 2^40, times 2^exponent: nearest even, overflow, subnormals."""
    negative = limbs[-1] < 0
    sign = 1 - 2 * lib.astype(negative, "int64")
    magnitude = carry([limb * sign for limb in limbs])
    length = bit_length(lib, magnitude[0])
    for w, limb in enumerate(magnitude[1:], start=1):
        here = bit_length(lib, limb)
        length = lib.maximum(length, (here + LIMB * w) * lib.clip(here, 0, 1))
    places = form.digits - 1
    raised = length - form.digits + (exponent - form.least)
    shift = length - form.digits - lib.clip(raised, -(1 << 40), 0)  # max(length − digits, least − exponent)
    # Two bits beyond the last place, the second of which stands for all that follow.
    cut = lib.clip(shift, -60, LIMB * len(limbs) + 2) - 2
    window, lost = None, None
    for w, limb in enumerate(magnitude):
        distance = LIMB * w - cut
        right = lib.clip(-distance, 0, LIMB)
        part = (limb << lib.clip(distance, 0, 63)) >> right
        below = limb & ((1 << right) - 1)
        window = part if window is None else window | part
        lost = below if lost is None else lost | below
    assert window is not None
    assert lost is not None
    window = window | lib.clip(lost, 0, 1)
    kept = (window + 1 + ((window >> 2) & 1)) >> 2
    infinite = ((1 << storage_bits(form) - form.digits) - 1) << places
    last = (infinite >> places) - 1  # from this exponent field on every number is beyond the largest
    field = raised * lib.clip(length, 0, 1)
    over = lib.astype(field >= last, "int64")
    pattern = (lib.clip(field, 0, last - 1) << places) + kept
    pattern = pattern + over * (infinite - pattern)
    return Rounded(negative, pattern, magnitude, kept, shift)


def _half_place(lib: Library, pattern: Tensor) -> Tensor:
    """The pattern of half a unit in the last place of float64 numbers ≥ 0; −1 where that is no number."""
    field = pattern >> 52
    normal = (field - 53) << 52
    small = lib.where(field >= 2, 1 << lib.clip(field - 2, 0, 52), field * 0 - 1)
    return lib.where(field >= 54, normal, small)


def round_limbs_to_pair(
    lib: Library, limbs: Limbs, exponent: Tensor, form: BinaryFormat
) -> tuple[Tensor, Tensor, Tensor]:
    """Patterns of high and low of `rounding.round_to_pair`, and which high parts are zero."""
    high = round_limbs(lib, limbs, exponent, form)
    infinite = 2047 << 52
    plain = (high.pattern != 0) & (high.pattern != infinite)
    kept = high.kept * lib.astype(plain, "int64")
    rest = []
    for w, limb in enumerate(high.magnitude):
        # Bits 40 w … 40 w + 39 of kept 2^shift; where shift < 0 the mantissa ends in that many zeros.
        distance = LIMB * w - lib.clip(high.shift, -60, LIMB * len(limbs) + LIMB)
        left = lib.clip(-distance, 0, LIMB)
        bits = ((kept >> lib.clip(distance, 0, 63)) & (LIMB_MASK >> left)) << left
        rest.append(limb - bits)
    # Nothing is left over where high is zero or infinite.
    use = (1 - 2 * lib.astype(high.negative, "int64")) * lib.astype(plain, "int64")
    low = round_limbs(lib, carry([r * use for r in rest]), exponent, form)
    # high + low rounds to a neighbour of high only in a tie: |low| half a place of a high with an odd last one.
    tie = plain & ((high.pattern & 1) == 1) & (low.pattern == _half_place(lib, high.pattern))
    outward = high.negative == low.negative
    moved = high.pattern + lib.astype(tie, "int64") * (2 * lib.astype(outward, "int64") - 1)
    overflow = tie & (moved == infinite)  # instead, low stays just below the half
    flip = tie & (moved != infinite)
    high_pattern = lib.where(overflow, high.pattern, moved)
    low_pattern = low.pattern - lib.astype(overflow, "int64")
    low_negative = (low.negative != flip) & (low_pattern != 0)
    signed_high = high_pattern - (lib.astype(high.negative, "int64") << 63)
    signed_low = low_pattern - (lib.astype(low_negative, "int64") << 63)
    return signed_high, signed_low, high_pattern == 0
