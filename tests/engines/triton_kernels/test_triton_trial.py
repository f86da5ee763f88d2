"""Ways written by hand are taken only where a process of their own has found them right; that process may do anything.

Children are stand-ins, and so is the device: no trial was run on a GPU.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gemmulate.engines import torch_device
from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.triton import gemm_choice, gemm_proofs, gemm_trial
from gemmulate.engines.triton.gemm_proofs import SAME, described, proofs, usable_ways
from gemmulate.engines.triton.gemm_trial import Shape, prove
from gemmulate.engines.triton.gemm_ways import WAYS, digits_by, digits_chosen_by

CPU = torch.device("cpu")
COMPILED = ("pointers", "descriptors", "library")
BEGUN = 'import os, signal, sys, time; print("begun", flush=True); '
RIGHT = BEGUN + 'print(\'{"status": "the same digits"}\')'
SMALL = (Shape(2, 33, 40, 48, 64), Shape(1, 1, 1, 16, 16))


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A device with all ways, and children that run `script`; what was started, in order."""
    state = SimpleNamespace(script=RIGHT, scripts={}, started=[], cache=tmp_path / "cache", limit_s=60.0)

    def command(device: torch.device, way: str, limit_s: float) -> list[str]:
        state.started.append(way)
        return [sys.executable, "-c", state.scripts.get(way, state.script)]

    properties = SimpleNamespace(name="NVIDIA Voodoo", major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(gemm_proofs, "ways_of", lambda device: WAYS)
    monkeypatch.setattr(gemm_trial, "_command", command)
    monkeypatch.setenv("XDG_CACHE_HOME", str(state.cache))
    gemm_proofs.forget()
    gemm_choice.forget()
    yield state
    gemm_proofs.forget()
    gemm_choice.forget()


def as_a_later_process() -> None:
    gemm_proofs.forget()


def test_without_a_trial_only_compiled_ways_are_usable(hopper: SimpleNamespace) -> None:
    assert usable_ways(CPU) == COMPILED
    assert proofs(CPU) == {}
    assert described(CPU) == "warpgroups: not tried, hence not used; clusters: not tried, hence not used"
    assert not hopper.started
    assert not hopper.cache.exists()


def test_what_is_right_is_used_by_later_processes(hopper: SimpleNamespace, capfd: pytest.CaptureFixture[str]) -> None:
    hopper.script = "import sys; print('noise', file=sys.stderr); " + RIGHT
    assert prove(CPU) == {"warpgroups": SAME, "clusters": SAME}
    assert hopper.started == ["warpgroups", "clusters"]
    assert usable_ways(CPU) == WAYS
    as_a_later_process()
    assert usable_ways(CPU) == WAYS
    assert prove(CPU) == {"warpgroups": SAME, "clusters": SAME}
    assert len(hopper.started) == 2
    assert prove(CPU, anew=True) == {"warpgroups": SAME, "clusters": SAME}
    assert len(hopper.started) == 4
    assert capfd.readouterr() == ("", "")
    (file,) = (hopper.cache / "gemmulate").iterdir()  # and nothing half written
    key = json.loads(file.read_text())["key"]
    assert (key["device"], key["capability"], key["torch"]) == ("NVIDIA Voodoo", "9.0", torch.__version__)
    assert set(key) == {"device", "capability", "driver", "torch", "cuda", "triton", "gemmulate", "sources"}


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (BEGUN + 'print(\'{"status": "other digits at 1 × 2 × 3 × 4"}\')', "other digits at 1 × 2 × 3 × 4"),
        (BEGUN + "os.kill(os.getpid(), signal.SIGSEGV)", "failed, ended by signal 11"),
        (BEGUN + "raise RuntimeError('an illegal memory access')", "failed, status 1: RuntimeError: an illegal memory"),
        (BEGUN, "failed, status 0"),
        (BEGUN + "print('[1]')", "failed, status 0"),
        (RIGHT + "; sys.exit(3)", "failed, status 3"),  # whoever says it is right, and breaks after that
    ],
)
def test_what_is_wrong_is_kept_with_its_reason(script: str, status: str, hopper: SimpleNamespace) -> None:
    hopper.scripts["clusters"] = script
    found = prove(CPU)
    assert found["warpgroups"] == SAME
    assert found["clusters"].startswith(status)
    as_a_later_process()
    assert usable_ways(CPU) == tuple(way for way in WAYS if way != "clusters")
    assert described(CPU) == f"warpgroups: {SAME}; clusters: {found['clusters']}"
    assert prove(CPU) == found
    assert len(hopper.started) == 2
    hopper.scripts.clear()  # it is mended
    assert prove(CPU, anew=True)["clusters"] == SAME
    as_a_later_process()
    assert usable_ways(CPU) == WAYS


def test_what_failed_before_the_way_ran_says_nothing_of_it(hopper: SimpleNamespace) -> None:
    assert prove(CPU)["clusters"] == SAME
    hopper.script = "import no_such_module"
    found = prove(CPU, anew=True)
    assert found["warpgroups"].startswith("not tried: status 1: ModuleNotFoundError: No module named 'no_such_module'")
    as_a_later_process()
    assert usable_ways(CPU) == WAYS


def test_a_child_that_cannot_be_started(hopper: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_trial, "_command", lambda *arguments: ["/no/such/python"])
    assert prove(CPU)["warpgroups"].startswith("not tried: ")
    assert usable_ways(CPU) == COMPILED


def ended(process: int) -> bool:
    """Within a few seconds; as a zombie where nobody waits for it."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


def hanging(numbers: Path) -> str:
    """A child that waits for ever with a process of its own, whatever polite signals say."""
    return (
        "import signal, subprocess, os, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "p = subprocess.Popen(['sleep', '1000']); "
        f"open({str(numbers)!r} + '.new', 'w').write(f'{{os.getpid()}} {{p.pid}}'); "
        f"os.rename({str(numbers)!r} + '.new', {str(numbers)!r}); "
        "print('begun', flush=True); time.sleep(1000)"
    )


def test_a_hang_ends_with_its_group_and_is_kept(hopper: SimpleNamespace, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    hopper.scripts["warpgroups"] = hanging(numbers)
    start = time.monotonic()
    found = prove(CPU, limit_s=8)
    assert time.monotonic() - start < 60
    assert found == {"warpgroups": "no end in 8 s", "clusters": SAME}
    assert all(ended(int(number)) for number in numbers.read_text().split())
    as_a_later_process()
    assert "warpgroups" not in usable_ways(CPU)
    assert described(CPU).startswith("warpgroups: no end in 8 s; ")


def test_a_hang_before_the_way_ran_is_not_kept(hopper: SimpleNamespace) -> None:
    hopper.scripts["warpgroups"] = "import time; time.sleep(1000)"
    assert prove(CPU, limit_s=2)["warpgroups"] == "not tried: no start in 2 s"
    as_a_later_process()
    assert "warpgroups" not in proofs(CPU)


def test_an_interrupted_trial_leaves_no_process(hopper: SimpleNamespace, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    hopper.script = hanging(numbers)

    def stop(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    def when_it_runs() -> None:
        while not numbers.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        threading.Thread(target=when_it_runs, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            prove(CPU, limit_s=60)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert all(ended(int(number)) for number in numbers.read_text().split())
    assert proofs(CPU) == {}


def test_a_cache_that_cannot_be_written_is_no_error(hopper: SimpleNamespace) -> None:
    hopper.cache.write_text("a file where the folder would be")
    assert usable_ways(CPU) == COMPILED
    assert prove(CPU) == {"warpgroups": SAME, "clusters": SAME}
    assert usable_ways(CPU) == WAYS  # in this process
    as_a_later_process()
    assert usable_ways(CPU) == COMPILED


@pytest.mark.parametrize(
    "damaged", [b"", b"\xff\xfe", b"[]", b"null", b'{"key": 1}', b'{"found": {"warpgroups": "the same digits"}}']
)
def test_a_damaged_file_counts_as_none(damaged: bytes, hopper: SimpleNamespace) -> None:
    prove(CPU)
    gemm_proofs.kept_at(CPU).write_bytes(damaged)
    as_a_later_process()
    assert usable_ways(CPU) == COMPILED
    assert prove(CPU)["clusters"] == SAME
    as_a_later_process()
    assert usable_ways(CPU) == WAYS


def test_found_of_another_type_counts_as_none(hopper: SimpleNamespace) -> None:
    for found in ("warpgroups", ["warpgroups"], None, 3):
        path = gemm_proofs.kept_at(CPU)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"key": gemm_proofs.key_of(CPU), "found": found}))
        as_a_later_process()
        assert usable_ways(CPU) == COMPILED


@pytest.mark.parametrize("part", ["device", "capability", "driver", "torch", "triton", "gemmulate", "sources"])
def test_with_any_part_of_the_key_changed_there_is_no_proof(
    part: str, hopper: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    prove(CPU)
    changed = SimpleNamespace(name="NVIDIA Voodoo 2" if part == "device" else "NVIDIA Voodoo", major=9, minor=0)
    changed.minor = int(part == "capability")
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_properties", lambda device: changed)
        patch.setattr(gemm_proofs, "_driver", lambda: "1.2.3" if part == "driver" else "not readable")
        sources = gemm_proofs._sources() + "0" * (part == "sources")
        patch.setattr(gemm_proofs, "_sources", lambda: sources)
        if part in ("torch", "triton", "gemmulate"):
            patch.setattr(sys.modules[part], "__version__", "0.0.0")
        as_a_later_process()
        assert usable_ways(CPU) == COMPILED
    as_a_later_process()
    assert usable_ways(CPU) == WAYS
    if part == "driver":  # and a file of another key under this one's name is not taken for it
        path = gemm_proofs.kept_at(CPU)
        path.write_text(path.read_text().replace("NVIDIA Voodoo", "NVIDIA Voodoo 2"))
        as_a_later_process()
        assert usable_ways(CPU) == COMPILED


def test_the_kernels_text_is_part_of_the_key() -> None:
    folder = Path(gemm_proofs.__file__).parent
    assert all((folder / name).is_file() for name in gemm_proofs._SOURCES)
    assert gemm_proofs._sources() == gemm_proofs._sources()


def test_measuring_runs_no_way_that_is_not_proven(hopper: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def run(way: str, a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> torch.Tensor:
        ran.append(way)
        return torch.zeros(1)

    monkeypatch.setattr(gemm_choice, "digits_by", run)
    monkeypatch.setattr(gemm_choice, "digits_chosen_by", lambda way, *rest: run(way, *rest[:2], ResidueSystem((3,))))
    monkeypatch.setattr(gemm_choice, "applies", lambda way, a, b: True)
    watch: Any = SimpleNamespace(time=lambda function: (1.0, function()))
    assert set(gemm_choice.measure(CPU, 96, watch).ways) == set(ran) == set(COMPILED)
    hopper.scripts["warpgroups"] = BEGUN + "os.abort()"
    prove(CPU)
    assert set(gemm_choice.measure(CPU, 96, watch).ways) == {*COMPILED, "clusters"}
    assert "warpgroups" not in ran


def test_the_childs_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On planes of the interpreter, by a way that runs there; it ends itself if nobody else does."""
    limits: list[int] = []
    monkeypatch.setattr(gemm_trial, "SHAPES", SMALL)
    monkeypatch.setattr(gemm_trial.signal, "alarm", limits.append)
    gemm_trial.main(["cpu", "descriptors", "60"])
    begun, said = capsys.readouterr().out.splitlines()
    assert (begun, json.loads(said)) == (gemm_trial.BEGUN, {"status": SAME})
    assert limits == [70]
    assert gemm_trial._said(said) == SAME


@pytest.mark.parametrize("which", ["the first", "the last"])
def test_the_child_notices_one_digit(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def wrong(way: str, a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> torch.Tensor:
        nonlocal calls
        digits = digits_by("pointers", a, b, system)
        if way != "pointers":
            calls += 1
            # Two operands of each shape, three times each.
            digits[-1, -1, -1] ^= calls == (1 if which == "the first" else 12)
        return digits

    monkeypatch.setattr(gemm_trial, "digits_by", wrong)
    shape = "2 × 33 × 40 × 48" if which == "the first" else "1 × 1 × 1 × 16"
    assert gemm_trial.compare(CPU, "descriptors", SMALL, 3) == f"other digits at {shape}"


@pytest.mark.parametrize("wrong", [1, 2])
def test_the_child_notices_one_digit_by_choice(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(way: str, a: torch.Tensor, b: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
        digits = digits_chosen_by("descriptors", a, b, choice)
        r = int(choice[0])
        if r:
            digits[r - 1, -1, 0] ^= r == wrong
        return digits

    monkeypatch.setattr(gemm_trial, "digits_chosen_by", other)
    expected = f"other digits at 2 × 33 × 40 × 48, {wrong} moduli by choice"
    assert gemm_trial.compare(CPU, "descriptors", SMALL, 1) == expected


def test_the_child_says_where_a_way_does_not_apply() -> None:
    assert gemm_trial.compare(CPU, "descriptors", (Shape(2, 3, 4, 41, 41),), 1) == "does not take 2 × 3 × 4 × 41"


def test_the_command_names_this_module() -> None:
    command = gemm_trial._command(torch.device("cuda", 1), "clusters", 180.0)
    assert command == [sys.executable, "-m", "gemmulate.engines.triton.gemm_trial", "cuda:1", "clusters", "180"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_command_runs() -> None:
    """As far as it can without a GPU: to the device, not to the way."""
    outcome = gemm_trial.tried(torch.device("cuda", 0), "clusters", 120)
    assert outcome.status.startswith("not tried: status 1: ")
    assert not outcome.of_the_way
    assert "gemm_trial" not in outcome.status  # the module is there


def test_a_device_without_such_ways_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_trial, "_command", None)
    assert prove(CPU) == {}
    assert described(CPU) == "no way is written by hand here"


def test_commands_try_through_the_device(hopper: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch_device.TorchDevice("cpu")
    assert device.try_residue_products() == {}  # a rehearsal
    device.on_gpu = True
    assert device._residue_trials() == described(CPU)
    assert not hopper.started  # facts try nothing
    gemm_choice._KEPT[CPU] = gemm_choice.Measured(96, (("pointers", 1.0),))
    assert device.try_residue_products() == {"warpgroups": SAME, "clusters": SAME}
    assert not gemm_choice._KEPT  # measured anew, with them
    assert device._residue_trials() == f"warpgroups: {SAME}; clusters: {SAME}"
