"""Block-scaled formats: a run of narrow elements that share one scale."""

from dataclasses import dataclass

from gemmulate.formats.format import Format


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """`block` consecutive elements along k, each worth element value × scale value.

    Folding a coefficient into the scales needs it as (left scale)·(right scale); `scales` lists the whole ones.

    >>> from gemmulate import formats
    >>> formats.get_block("nvfp4").block, formats.get_block("nvfp4").scales[:6]
    (16, (1, 2, 3, 4, 5, 6))
    """

    name: str
    element: Format
    scale: Format
    block: int

    @property
    def scales(self) -> tuple[int, ...]:
        """The positive integers among the scale's values, increasing (those below 2^24, FP32's exact range)."""
        values = (self.scale.decode(code) for code in range(1 << self.scale.bits))
        return tuple(sorted({int(v) for v in values if 1 <= v < 1 << 24 and v.is_integer()}))
