"""Contract: a candidate moves from projected to advanced only as evidence comes in, and never on one sample."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemmulate.evidence import Comparison, Settings, compare, store
from gemmulate.screen import screen
from gemmulate.screen.measured import Measured, read_measured
from gemmulate.screen.spec import load_spec
from gemmulate.screen.text_file import EvidenceError

Run = Callable[..., "subprocess.CompletedProcess[str]"]
NOTE = Path(__file__).parents[2] / "examples" / "vortex.toml"
KERNELS = Path(__file__).parents[2] / "examples" / "int8_kernels.toml"


def record(
    verdict: str = "faster", *, percentile: float | None = 1.0, ratio: float = 0.8, equal: bool | None = None
) -> Measured:
    sides = {name: {"value": percentile} for name in ("p10", "p50", "p90", "p95")}
    raw = {"kind": "comparison", "verdict": verdict, "reason": "r", "pairs": 60, "ratio": ratio}
    raw |= {"ratio_interval": [ratio - 0.01, ratio + 0.01], "percentiles": {"a": sides, "b": sides}}
    raw["outputs"] = {"equal": equal}
    return msgspec.convert(raw, Measured)


def with_evidence(
    tmp_path: Path, *names: str, holds: bool = True, note: Path = KERNELS, who: str = "avx512vnni"
) -> Path:
    text = note.read_text(encoding="utf-8")
    for name in names:
        text += f"\n[candidates.{who}.evidence.{name}]\nholds = {str(holds).lower()}\n"
        text += 'status = "measured"\nsource = "test"\n'
    file = tmp_path / "note.toml"
    file.write_text(text, encoding="utf-8")
    return file


def state(file: Path, **evidence: Any) -> tuple[str, str]:
    one = screen(file, **evidence).candidates["avx512vnni"]
    return one.verdict, one.state


def test_the_states_in_order(tmp_path: Path) -> None:
    measured = {"avx512vnni": record()}
    assert state(KERNELS) == ("undecided", "projected")
    assert state(with_evidence(tmp_path, "registers")) == ("undecided", "compiled")
    assert state(with_evidence(tmp_path, "registers", "bytes_equal")) == ("undecided", "correct")
    both = with_evidence(tmp_path, "registers", "bytes_equal")
    assert state(both, measured={"avx512vnni": record(percentile=None)}) == ("undecided", "measured")
    assert state(both, measured=measured) == ("advanced", "advanced")
    # Equal outputs in the comparison are the equality; speed without it advances nothing.
    assert state(KERNELS, measured={"avx512vnni": record(equal=True)}) == ("advanced", "advanced")
    assert state(KERNELS, measured={"avx512vnni": record(equal=False)}) == ("undecided", "projected")
    assert state(KERNELS, measured=measured) == ("undecided", "projected")


@pytest.mark.parametrize("verdict", ["slower", "same"])
def test_a_candidate_that_is_not_faster_is_rejected(verdict: str) -> None:
    ratio = 1.0 if verdict == "same" else 1.2
    result = screen(KERNELS, measured={"avx512vnni": record(verdict, ratio=ratio)}).candidates["avx512vnni"]
    assert (result.verdict, result.state) == ("rejected", "rejected")
    assert f"measured {verdict}: time ratio {ratio:.4f}" in result.reasons[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verdict": "quicker"}, "Invalid enum value 'quicker'"),
        ({"pairs": 1}, "contradicts 1 pairs"),
        ({"ratio": None}, "contradicts 60 pairs with ratio None"),
        ({"ratio_interval": None}, "interval None"),
        ({"ratio_interval": [0.5, 1.1]}, "contradicts the interval"),
        ({"ratio_interval": [0.9, 0.95]}, "contradicts ratio 0.8"),
        ({"ratio": -0.8, "ratio_interval": [-0.9, -0.7]}, "contradicts ratio -0.8"),
        ({"verdict": "slower"}, "'slower' contradicts the interval"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    changes: dict[str, Any], words: str, tmp_path: Path, run_cli: Run
) -> None:
    """A verdict of one sample, or one that no comparison gives, advanced a candidate."""
    file = tmp_path / "record.json"
    file.write_text(json.dumps(msgspec.to_builtins(record(equal=True)) | changes))
    done = run_cli("screen", KERNELS, "--measured", f"avx512vnni={file}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def test_an_undecided_measurement_counts_for_nothing(tmp_path: Path) -> None:
    both = with_evidence(tmp_path, "registers", "bytes_equal")
    smoke = compare(lambda: None, lambda: None, pairs=1, warmup=0)
    file = tmp_path / "smoke.json"
    file.write_bytes(msgspec.json.encode(smoke))
    result = screen(both, measured={"avx512vnni": read_measured(file)}).candidates["avx512vnni"]
    assert (result.verdict, result.state) == ("undecided", "correct")
    assert "paired_runs" in result.evidence_owed
    assert any("too_few_pairs, 1 pair)" in reason for reason in result.reasons)


def test_negative_evidence_rejects(tmp_path: Path) -> None:
    result = screen(with_evidence(tmp_path, "bytes_equal", holds=False)).candidates["avx512vnni"]
    assert result.verdict == "rejected"
    assert "gate 'same product' fails" in " ".join(result.reasons)


def test_a_projection_is_no_evidence(tmp_path: Path) -> None:
    file = with_evidence(tmp_path, "bytes_equal")
    file.write_text(file.read_text().replace('holds = true\nstatus = "measured"', 'holds = true\nstatus = "projected"'))
    with pytest.raises(ValueError, match=r"evidence\.bytes_equal\.status: 'projected' is unknown"):
        load_spec(file)


def test_records_are_read_from_a_file_and_from_a_store(tmp_path: Path, run_cli: Run) -> None:
    file = tmp_path / "store.jsonl"
    first = compare(lambda: sum(range(100)), lambda: sum(range(20_000)), pairs=20, store=file)
    assert isinstance(first, Comparison)
    assert Settings().store is None
    store.append(file, msgspec.structs.replace(first, verdict="undecided", reason="outputs_differ"))
    assert read_measured(file).verdict == "undecided"
    pretty = tmp_path / "record.json"
    pretty.write_text(json.dumps(msgspec.to_builtins(first), indent=2))
    assert read_measured(pretty).verdict == first.verdict
    done = run_cli("screen", KERNELS, "--measured", f"avx512vnni={pretty}", "--fail-on", "rejected")
    assert done.returncode == (first.verdict == "slower")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"\x00\xff", "holds no record"),
        (b'{"kind": "comparison", "verd', "holds no record"),
        (b'{"kind": "recipe"}', "holds no record"),
        (b'{"verdict": "faster"}', "holds no record"),
        (b"[" * 100_000, "holds no record"),
    ],
)
def test_what_is_no_record(raw: bytes, words: str, tmp_path: Path, run_cli: Run) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(raw)
    with pytest.raises(EvidenceError, match=words):
        read_measured(file)
    done = run_cli("screen", NOTE, "--measured", f"VEA-A={file}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_bad_measured_options(run_cli: Run, tmp_path: Path) -> None:
    for value, words in (("VEA-A", "is not NAME=FILE"), (f"VEA-A={tmp_path / 'none'}", "No such file")):
        done = run_cli("screen", NOTE, "--measured", value)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert words in done.stderr
