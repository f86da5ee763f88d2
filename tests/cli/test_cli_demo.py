"""Contract: every figure of the demo is computed when it is shown, and the claims beside it hold.

The whole demo takes a minute; here its parts run on small matrices, against oracles of their own.
"""

import json
from fractions import Fraction

import numpy as np
import pytest

from gemmulate.cli.demo import machine, reproducibility, rounding, speed, walks
from gemmulate.data import path_of
from gemmulate.io import read_matrix


def test_walks(capsys: pytest.CaptureFixture[str]) -> None:
    record = walks.measure()
    assert [power.steps for power in record] == [20, 24, 40]
    assert all(power.exact for power in record)
    # A^20 fits; A^24 is the first power that does not.
    assert [bool(power.error) for power in record] == [False, True, True]
    assert [power.numpy_wrong > 0 for power in record] == [False, True, True]
    for power in record:
        truth = np.linalg.matrix_power(read_matrix(path_of("karate")).astype(object), power.steps)
        assert power.largest == truth.max()
        assert power.numpy_wrong == sum(not -(2**63) <= x < 2**63 for x in truth.ravel().tolist())
    walks.show(record)
    assert "WRONG" not in capsys.readouterr().out


def test_rounding(capsys: pytest.CaptureFixture[str]) -> None:
    a = read_matrix(path_of("west0067"))
    record = rounding.square("west0067", a)
    assert record.correct == record.checked > 100
    product = a @ a
    rounded = [
        float(sum((Fraction(x) * Fraction(y) for x, y in zip(row, column, strict=True)), Fraction(0)))
        for row in a.tolist()
        for column in a.T.tolist()
    ]
    assert record.numpy.elements == sum(x != y for x, y in zip(product.ravel().tolist(), rounded, strict=True))
    rounding.show([record])
    assert "west0067" in capsys.readouterr().out


def test_reproducibility(capsys: pytest.CaptureFixture[str]) -> None:
    record = reproducibility.measure()
    assert len({run.exact for run in record}) == 1
    assert len({run.fp64 for run in record} - {None}) == 1
    reproducibility.show(record)
    assert "row by row" in capsys.readouterr().out


def test_speed(capsys: pytest.CaptureFixture[str]) -> None:
    record = speed.contests(24, 24)
    assert len(record) == 5
    for contest in record:
        assert contest.same
        assert set(contest.runs) == set(contest.median_s)
        assert min(contest.runs.values()) >= 1
        assert all(seconds > 0 for seconds in contest.median_s.values())
    assert "FLINT" in record[0].median_s
    speed.show(record)
    out = capsys.readouterr().out
    assert "DISAGREE" not in out
    # What is slower than NumPy is said to be.
    slower = [c.job for c in record if c.median_s["NumPy"] < c.median_s["gemmulate"]]
    assert ("does not pay" in out) == bool(slower)


def test_machine(capsys: pytest.CaptureFixture[str]) -> None:
    machine.show(machine.measure())
    assert "reference" in capsys.readouterr().out


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_joins_the_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    from gemmulate.cli.demo import demo

    monkeypatch.setattr(speed, "measure", lambda: speed.contests(8, 8))
    monkeypatch.setattr(rounding, "_MATRICES", ("west0067",))
    demo(as_json=as_json)
    out, err = capsys.readouterr()
    assert err == ""
    if as_json:
        record = json.loads(out)
        assert set(record) == {"machine", "walks", "rounding", "reproducibility", "speed", "plan", "time_s"}
    else:
        assert all(f"{number}. " in out for number in (1, 2, 3, 4))
