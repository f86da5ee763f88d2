"""The command line called in this process, as a user's shell would see it."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from gemmulate.cli import main


class Outcome(NamedTuple):
    """What a shell sees of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `gemmulate ARGUMENTS…` and returns its exit status and output."""

    def call(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return Outcome(stop.value.code, out, err)

    return call


# --- stand-in for the matmul core, until it is there ---
@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    import gemmulate as gm

    if "matmul" in dir(gm):
        return
    import numpy as np

    def matmul(a, b, *, accuracy="fp64", modulus=None, overflow="raise", out=None, engine=None, threads=None):  # type: ignore[no-untyped-def]
        if accuracy not in ("fast", "fp64", "exact"):
            raise ValueError(f"accuracy {accuracy!r} is not one of fast, fp64, exact")
        if engine not in (None, "reference", "native"):
            raise ValueError(f"engine {engine!r} is not one of reference, native")
        if a.dtype.kind in "iubO" and b.dtype.kind in "iubO":
            exact = np.matmul(a.astype(object), b.astype(object))
            exact = np.asarray(exact, dtype=object)
            if modulus is not None:
                return (exact % modulus).astype(np.uint64)
            if overflow == "object":
                return exact
            if overflow == "raise" and any(abs(x) >= 2**63 for x in np.ravel(exact).tolist()):
                raise gm.ResultOverflow("the result needs 70 bits", bits=70)
            return exact.astype(np.int64) if overflow == "raise" else np.matmul(a, b)
        return np.matmul(a, b)

    class Plan:
        def explain(self) -> str:
            return "scheme  residues"

        def to_json(self) -> str:
            return '{"scheme": "residues", "engine": "reference"}'

    class Engine:
        def __init__(self, name: str, available: bool, reason: str) -> None:
            self.name, self.device, self.formats, self.available, self.reason = (
                name,
                "cpu",
                ("int8",),
                available,
                reason,
            )

    monkeypatch.setattr(gm, "matmul", matmul, raising=False)
    monkeypatch.setattr(gm, "plan", lambda a, b, **options: Plan(), raising=False)
    monkeypatch.setattr(
        gm, "engines", lambda: [Engine("reference", True, ""), Engine("native", False, "no")], raising=False
    )
