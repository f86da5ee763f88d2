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
