"""Measured evidence: the record of a paired comparison of a candidate (B) with the baseline (A).

Read as `gemmulate compare --json` writes it, or the last record of an evidence store. A measurement that is undecided,
as one of a single sample always is, settles nothing.
"""

import math
from pathlib import Path
from typing import Final, Literal

import msgspec

from gemmulate.screen.text_file import EvidenceError

MAX_BYTES: Final = 16_000_000


class MeasuredPercentile(msgspec.Struct, frozen=True):
    """A percentile in seconds; None below its sample floor."""

    value: float | None


class MeasuredOutputs(msgspec.Struct, frozen=True):
    """Whether both sides gave the same bytes; None when there was nothing to compare."""

    equal: bool | None


class Measured(msgspec.Struct, frozen=True, tag_field="kind", tag="comparison"):
    """The parts of a comparison that a screen uses; ratio = time of the candidate / time of the baseline.

    Raises ValueError when the figures contradict the verdict: a screen advances nothing on such a record.
    """

    verdict: Literal["faster", "slower", "same", "undecided"]
    reason: str
    pairs: int
    ratio: float | None
    ratio_interval: tuple[float, float] | None
    percentiles: dict[str, dict[str, MeasuredPercentile]]
    outputs: MeasuredOutputs

    def __post_init__(self) -> None:
        problem = self._contradiction()
        if problem:
            raise ValueError(f"verdict {self.verdict!r} contradicts {problem}; the record was not made by compare")

    def _contradiction(self) -> str:
        if self.verdict == "undecided":
            return ""
        if self.pairs < 2 or self.ratio is None or self.ratio_interval is None:
            return f"{self.pairs} pairs with ratio {self.ratio} and interval {self.ratio_interval}"
        low, high = self.ratio_interval
        if not 0 < low <= self.ratio <= high < math.inf:
            return f"ratio {self.ratio} with interval [{low}, {high}]"
        if (self.verdict == "faster" and high >= 1) or (self.verdict == "slower" and low <= 1):
            return f"the interval [{low}, {high}]"
        return ""

    @property
    def text(self) -> str:
        """The verdict with its figures."""
        pairs = f"{self.pairs} pair{'' if self.pairs == 1 else 's'}"
        if self.ratio is None or self.ratio_interval is None:
            return f"{self.verdict} ({self.reason}, {pairs})"
        low, high = self.ratio_interval
        return f"{self.verdict}: time ratio {self.ratio:.4f} [{low:.4f}, {high:.4f}] over {pairs}"

    @property
    def held(self) -> set[str]:
        """The items of evidence that this record gives."""
        if self.verdict == "undecided":
            return set()
        known = all(
            name in self.percentiles.get(side, {}) and self.percentiles[side][name].value is not None
            for side in "ab"
            for name in ("p10", "p50", "p90", "p95")
        )
        return {"paired_runs", "percentiles"} if known else {"paired_runs"}


def read_measured(path: str | Path) -> Measured:
    """The comparison in a JSON file, or the last one of a JSON-lines store.

    Raises EvidenceError when there is none or it is cut short; OSError when the file cannot be read.
    """
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MAX_BYTES))
        raw = file.read()
    if not raw.strip():
        raise EvidenceError(f"{path}: is empty")
    last = raw.rstrip().rpartition(b"\n")[2]
    for text in (raw, last):
        try:
            return msgspec.json.decode(text, type=Measured)
        except msgspec.DecodeError as error:
            problem = str(error)
    raise EvidenceError(f"{path}: holds no record of gemmulate compare ({problem})")
