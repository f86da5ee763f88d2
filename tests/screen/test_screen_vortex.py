"""Contract: the screen of the Vortex note gives the note's figures to the last digit, and finds what is wrong in it.

The expected values are the note's printed figures and the arithmetic of the specification, typed in by hand.
"""

import json
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOTE = Path(__file__).parents[2] / "examples" / "vortex.toml"


@pytest.fixture(scope="module")
def result(run_cli: Run) -> dict[str, Any]:
    done = run_cli("screen", NOTE, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def findings(result: dict[str, Any], kind: str) -> list[dict[str, str]]:
    return [finding for finding in result["findings"] if finding["kind"] == kind]


@pytest.mark.parametrize(
    ("name", "mainloop", "complete"),
    [
        ("VEA-A", [192, 222], [217, 250]),
        ("VEA-B", [180, 207], [205, 235]),
        ("VEA-C", [174, 210], [199, 238]),
    ],
)
def test_intervals(result: dict[str, Any], name: str, mainloop: list[int], complete: list[int]) -> None:
    candidate = result["candidates"][name]
    assert [round(end) for end in candidate["mainloop_ms"]] == mainloop
    assert [round(end) for end in candidate["complete_ms"]] == complete


@pytest.mark.parametrize(
    ("name", "f", "h"), [("VEA-A", (22, 35), (8, 18)), ("VEA-B", (30, 42), (6, 15)), ("VEA-C", (38, 50), (12, 30))]
)
def test_corners_against_exact_fractions(
    result: dict[str, Any], name: str, f: tuple[int, int], h: tuple[int, int]
) -> None:
    corners = result["candidates"][name]["corners_ms"]
    assert len(corners) == 4
    for f_end, share in zip(("min", "max"), f, strict=True):
        for h_end, handoff in zip(("min", "max"), h, strict=True):
            exact = Fraction(237089, 1000) * (1 - Fraction(6353, 10000) * Fraction(share, 100)) + handoff
            assert corners[f"f_{f_end}_h_{h_end}"] == pytest.approx(float(exact), rel=1e-14)


def test_scenarios(result: dict[str, Any]) -> None:
    found = {case["speedup"]: (round(case["sampling_s"], 2), case["reachable"]) for case in result["scenarios"]}
    assert found == {
        1.15: (234.67, True),
        1.30: (218.69, True),
        1.50: (202.35, False),
        2.00: (175.80, False),
        2.70: (155.15, False),
    }


def test_preparation_adds_up(result: dict[str, Any]) -> None:
    assert round(result["preparation_ms"], 10) == 24.92


def test_finding_1_the_chosen_candidate_cannot_launch(result: dict[str, Any]) -> None:
    candidate = result["candidates"]["VEA-B"]
    assert candidate["launchable"] is False
    assert candidate["verdict"] == "rejected"
    text = " ".join(candidate["reasons"])
    for figure in ("5,632", "12 warps", "67,584 > 65,536", "168"):
        assert figure in text
    (dead,) = findings(result, "dead_gate")
    assert "200" in dead["arithmetic"]
    assert "168" in dead["arithmetic"]


def test_finding_2_the_tensor_pipe_floor(result: dict[str, Any]) -> None:
    assert round(result["floors_ms"]["tensor_pipe"], 1) == 179.1
    (below,) = findings(result, "below_floor")
    assert below["subject"] == "VEA-C"
    (close,) = findings(result, "floor_close")
    assert close["subject"] == "VEA-B"
    assert "99.5%" in close["text"]
    assert round(result["speedup_ceilings"]["mainloop"]["speedup"], 3) == 1.324
    (complete,) = findings(result, "complete_floor")
    assert "204 ms" in complete["text"]
    (unreachable,) = findings(result, "unreachable")
    assert unreachable["text"].startswith("1.5×, 2×, 2.7× ")


def test_finding_3_the_recoverable_share(result: dict[str, Any]) -> None:
    assert round(result["recoverable_share"], 3) == 0.385
    found = {finding["subject"]: finding["text"] for finding in findings(result, "share_exceeded")}
    assert set(found) == {"VEA-B", "VEA-C"}
    assert "42%" in found["VEA-B"]
    assert "50%" in found["VEA-C"]


def test_finding_4_the_denominator(result: dict[str, Any]) -> None:
    text = next(f["text"] for f in findings(result, "denominator") if f["subject"] == "VEA-B")
    assert "1.10–1.26× against 257.7" in text
    assert "1.15–1.32× against 269.9" in text


def test_finding_5_the_spill_gate_needs_a_number(result: dict[str, Any]) -> None:
    (gate,) = findings(result, "gate_without_number")
    assert "8–72 bytes" in gate["arithmetic"]


def test_the_note_s_rounding_slip(result: dict[str, Any]) -> None:
    (slip,) = findings(result, "printed_figure")
    assert "218.70" in slip["text"]
    assert "218.6855" in slip["arithmetic"]


def test_break_even_handoff(result: dict[str, Any]) -> None:
    # T0·N·f: the handoff that eats all that is recovered; 237.089 × 0.6353 × 0.30 and × 0.42.
    low, high = result["candidates"]["VEA-B"]["breakeven_handoff_ms"]["baseline"]
    assert (round(low, 2), round(high, 2)) == (45.19, 63.26)


def test_a_projection_never_advances(result: dict[str, Any]) -> None:
    assert {name: one["verdict"] for name, one in result["candidates"].items()} == {
        "VEA-A": "undecided",
        "VEA-B": "rejected",
        "VEA-C": "undecided",
    }
    assert result["candidates"]["VEA-A"]["launchable"] is True
    assert result["candidates"]["VEA-C"]["launchable"] is None
    for candidate in result["candidates"].values():
        assert "paired_runs" in candidate["evidence_owed"]
        assert candidate["reasons"]


@pytest.mark.parametrize(("fail_on", "status"), [("rejected", 1), ("advanced", 0), ("rejected,undecided", 1), ("", 0)])
def test_exit_status(fail_on: str, status: int, run_cli: Run) -> None:
    done = run_cli("screen", NOTE, *(["--fail-on", fail_on] if fail_on else []))
    assert done.returncode == status
    assert "VEA-B: rejected" in done.stdout
