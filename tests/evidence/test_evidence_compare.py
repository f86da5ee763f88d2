"""Contract: `compare` times real callables and commands, keeps everything, and turns every failure into one line."""

import json
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gemmulate as gm
from gemmulate.errors import EngineUnavailable, FileError
from gemmulate.evidence import Settings, compare, store
from gemmulate.evidence.comparison import run
from gemmulate.evidence.outputs import fingerprint

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PYTHON = sys.executable


def work(size: int) -> Callable[[], int]:
    return lambda: sum(range(size))


def test_a_real_difference_and_its_record(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "store.jsonl"
    first = gm.evidence.compare(work(100_000), work(5_000), pairs=30, seed=4, store=file)
    assert first.verdict == "faster"
    assert first.ratio is not None
    assert first.ratio < 1
    assert first.outputs.equal is False
    second = compare(work(5_000), work(100_000), pairs=20, store=file)
    assert second.verdict == "slower"
    records = list(store.read(file))
    assert [record["verdict"] for record in records] == ["faster", "slower"]
    assert records[0]["kind"] == "comparison"
    assert len(records[0]["samples"]["a"]) == len(records[0]["samples"]["b"]) == 30
    assert records[0]["seed"] == 4
    assert records[0]["order"] == first.order
    assert records[0]["environment"]["date"]
    assert records[0]["thresholds_version"] == 1


def test_pairs_are_added_until_the_interval_is_narrow() -> None:
    calls = []
    result = compare(work(10), work(1000), progress=lambda *step: calls.append(step))
    assert result.verdict == "slower"
    assert result.pairs >= 60
    assert len(calls) == 2 * result.pairs
    assert calls[-1][0] == calls[-1][1]


def test_short_callables_are_repeated() -> None:
    result = compare(lambda: None, lambda: None, pairs=7)
    assert result.repeats["a"] == result.repeats["b"] > 1000
    uneven = compare(lambda: time.sleep(0.001), lambda: time.sleep(0.032), pairs=7)
    assert uneven.repeats["b"] == 1
    assert 10 < uneven.repeats["a"] <= 40
    assert min(result.samples["a"]) < 1e-6


def test_processor_time_leaves_out_waiting(run_cli: Run) -> None:
    result = compare(work(20_000), lambda: time.sleep(0.005), pairs=8, timer="cpu")
    assert result.verdict == "faster"
    found = cli(
        run_cli,
        "--a",
        "sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done'",
        "--b",
        "sleep 0.05",
        "--pairs",
        7,
        "--timer",
        "cpu",
    )
    assert (found["timer"], found["verdict"]) == ("cpu", "faster")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1.14e-3, 1.13e-3, (1, 1)),
        (0.9e-3, 1.7e-3, (1, 1)),
        (0.30e-3, 0.29e-3, (4, 4)),
        (1e-6, 1.2e-6, (834, 834)),
        (1e-6, 1e-3, (1000, 1)),
        (20e-3, 1e-3, (1, 20)),
    ],
)
def test_repeats_give_samples_of_equal_length(a: float, b: float, expected: tuple[int, int]) -> None:
    class Fixed:
        def __init__(self, name: str, seconds: float) -> None:
            self.name, self.description, self.seconds = name, name, seconds

        def run(self, repeats: int) -> float:
            return repeats * self.seconds

        def output(self) -> str | None:
            return None

        def release(self) -> None:
            pass

    result = run(Fixed("A", a), Fixed("B", b), Settings(pairs=1, warmup=0))
    assert (result.repeats["a"], result.repeats["b"]) == expected


def test_outputs_are_compared() -> None:
    differing = compare(lambda: np.arange(3), lambda: np.arange(3.0), pairs=7, same_output=True)
    assert (differing.verdict, differing.reason) == ("undecided", "outputs_differ")
    equal = compare(lambda: np.arange(3), lambda: np.arange(3), pairs=7, same_output=True)
    assert equal.outputs.equal is True
    assert equal.reason != "outputs_differ"
    unknown = compare(object, object, pairs=7)
    assert unknown.outputs.equal is None
    demanded = compare(object, object, pairs=7, same_output=True)
    assert (demanded.verdict, demanded.reason) == ("undecided", "outputs_unknown")


def test_types_that_numpy_lacks_have_fingerprints_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of ml_dtypes have the str of raw bytes; torch hands none of bfloat16 to NumPy."""
    raw = np.arange(4, dtype=np.uint8)
    kinds = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.uint8, np.int8]
    assert len({fingerprint(raw.view(kind)) for kind in kinds}) == len(kinds)

    class Tensor:
        """As torch: `numpy` refuses bfloat16, `view` needs at least one dimension."""

        def __init__(self, values: Any) -> None:
            self.values, self.dtype, self.shape = values, "torch.bfloat16", values.shape

        def detach(self) -> "Tensor":
            return self

        cpu = contiguous = detach

        def numpy(self) -> Any:
            if self.values.dtype == np.uint16:
                raise TypeError("Got unsupported ScalarType BFloat16")
            return self.values

        def reshape(self, length: int) -> "Tensor":
            return Tensor(self.values.reshape(length))

        def view(self, kind: str) -> "Tensor":
            assert kind == "uint8"
            assert self.values.ndim
            return Tensor(self.values.view(np.uint8))

    Tensor.__module__ = "torch"
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    values = [np.array(1, np.uint16), np.array([1], np.uint16), np.array([2], np.uint16), np.array([1], np.int16)]
    prints = [fingerprint(Tensor(value)) for value in values]
    assert None not in prints
    assert len(set(prints)) == len(values)
    assert fingerprint(Tensor(values[1])) == prints[1]


def test_no_side_runs_while_a_result_of_the_other_is_held() -> None:
    """A held result decides which block of memory the next run gets; A and B then met two blocks 2 : 1 and 1 : 2."""

    class Result:
        pass

    alive: weakref.WeakSet[Result] = weakref.WeakSet()
    held = []

    def side() -> Result:
        held.append(len(alive))
        time.sleep(1.1e-3)  # longer than the shortest sample, so that each sample is one run
        result = Result()
        alive.add(result)
        return result

    compare(side, lambda: side(), pairs=10, seed=1)
    assert len(held) >= 20
    # Those before the timed runs find how often a sample repeats the call, several in a row.
    assert set(held[-20:]) == {0}


def test_the_store_is_checked_before_the_measurement(tmp_path: Path) -> None:
    calls = []
    for place in (tmp_path, Path("/dev/null"), Path("/proc/none/store.jsonl")):
        with pytest.raises((OSError, FileError)):
            compare(lambda: calls.append(1), lambda: calls.append(1), pairs=7, store=place)
    assert calls == []


def test_a_cuda_timer_for_commands_names_the_way(run_cli: Run) -> None:
    done = run_cli("compare", "--a", "true", "--b", "true", "--timer", "torch", "--no-store")
    assert done.returncode == 2
    assert "is for CUDA callables; use 'wall' or 'cpu' here" in done.stderr


def test_fingerprints() -> None:
    base = np.array([[1.0, 2.0], [3.0, 4.0]])
    different = [base.astype(np.float32), base.ravel(), base.T, base + 1, [1.0], (1.0,), 1.0, 1, "1", b"1", True]
    different += [np.array([0.0]), np.array([-0.0]), {"a": 1}, {"a": 2}, np.array([10**30], object)]
    prints = [fingerprint(value) for value in different]
    assert len(set(prints)) == len(prints)
    assert fingerprint(base) == fingerprint(base.copy(order="F"))
    assert fingerprint(base[::-1]) == fingerprint(base[::-1].copy())
    assert fingerprint(object()) is None
    assert fingerprint(None) is None
    assert fingerprint([1, object()]) is None


def test_calibration_is_on_request() -> None:
    result = compare(work(3000), work(9000), pairs=20, calibrate=True)
    assert result.calibration is not None
    assert result.calibration.ratio == pytest.approx(1, abs=0.3)
    assert compare(work(10), work(10), pairs=1).calibration is None


def test_an_exception_passes_and_nothing_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "store.jsonl"

    def fails() -> None:
        raise RuntimeError("broken kernel")

    with pytest.raises(RuntimeError, match="broken kernel"):
        compare(work(10), fails, pairs=10, store=file)
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pairs": 0}, "pairs = 0"),
        ({"pairs": 2001}, "1…2000"),
        ({"pairs": -5}, "pairs = -5"),
        ({"warmup": -1}, "warmup = -1"),
        ({"floor_s": 0.0}, "floor = 0"),
        ({"floor_s": float("nan")}, "floor = nan"),
        ({"seed": -1}, "seed = -1"),
        ({"timer": "sundial"}, "timer = 'sundial'"),
        ({"flush_l2": True}, "needs a CUDA timer"),
    ],
)
def test_arguments_out_of_range(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compare(work(1), work(1), **arguments)


@pytest.mark.parametrize("arguments", [{"pairs": 2.5}, {"pairs": "3"}, {"warmup": 1.0}, {"seed": 0.5}])
def test_counts_are_integers(arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(arguments))} = .* is no integer"):
        compare(work(1), work(1), **arguments)
    with pytest.raises(TypeError, match="g = 2 is not callable"):
        compare(work(1), 2)  # type: ignore[arg-type]


def test_a_missing_gpu_library_is_said() -> None:
    with pytest.raises(EngineUnavailable, match="cupy"):
        compare(work(1), work(1), timer="cupy")


class FakeTorch(ModuleType):
    """The few names of torch that the clock uses, on a simulated device whose events tick in milliseconds."""

    def __init__(self, available: bool = True) -> None:
        super().__init__("torch")
        self.now, self.flushes, self.uint8 = 0.0, 0, "uint8"
        outer = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                self.at = outer.now

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Any) -> float:
                return float(end.at - self.at)

        def zero() -> None:
            outer.now += 1000  # outside the timed span
            outer.flushes += 1

        properties = SimpleNamespace(L2_cache_size=1 << 20)
        self.cuda = SimpleNamespace(
            is_available=lambda: available,
            Event=Event,
            synchronize=lambda: None,
            current_device=lambda: 0,
            get_device_properties=lambda device: properties,
        )
        self.empty = lambda size, dtype, device: SimpleNamespace(zero_=zero, size=size)


def test_cuda_events_with_a_simulated_library(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)

    def kernel(milliseconds: float) -> Callable[[], None]:
        def launch() -> None:
            torch.now += milliseconds

        return launch

    result = compare(kernel(2.0), kernel(1.0), pairs=10, warmup=2, timer="torch", flush_l2=True)
    assert result.verdict == "faster"
    assert result.samples["a"] == pytest.approx([2e-3] * 10)
    assert torch.flushes == 2 * (10 + 2)
    monkeypatch.setitem(sys.modules, "torch", FakeTorch(available=False))
    with pytest.raises(EngineUnavailable, match="sees none"):
        compare(kernel(2.0), kernel(1.0), timer="torch")


def cli(run_cli: Run, *arguments: object) -> dict[str, Any]:
    done = run_cli("compare", *arguments, "--no-store", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def test_commands(run_cli: Run) -> None:
    found = cli(run_cli, "--a", "sleep 0.3", "--b", "sleep 0.01", "--pairs", 8)
    assert found["verdict"] == "faster"
    assert set(found) >= {"verdict", "reason", "ratio", "ratio_interval", "percentiles", "samples"}
    assert found["ratio_interval"][0] <= found["ratio"] <= found["ratio_interval"][1] < 1
    assert found["percentiles"]["b"]["p95"]["value"] is None
    assert "not enough samples" in found["percentiles"]["b"]["p95"]["note"]
    assert len(found["samples"]["b"]) == 8


def test_one_pair_never_decides(run_cli: Run) -> None:
    found = cli(run_cli, "--a", "sleep 0.2", "--b", "true", "--pairs", 1)
    assert found["outputs"] == {"a": [], "b": [], "equal": None}
    assert (found["verdict"], found["ratio_interval"]) == ("undecided", None)


def test_binary_and_large_output_is_hashed(run_cli: Run) -> None:
    write = f'{PYTHON} -c "import sys; [sys.stdout.buffer.write(bytes([{{}}, 255, 0]) * 10**6) for _ in range(20)]"'
    found = cli(run_cli, "--a", write.format(1), "--b", write.format(2), "--pairs", 2)
    assert found["outputs"]["equal"] is False
    assert [len(found["outputs"][side]) for side in "ab"] == [1, 1]


def test_expressions(run_cli: Run) -> None:
    setup = "x = list(range(40000))"
    found = cli(run_cli, "--a", "py:sum(x)", "--b", "py:sum(x[:4000])", "--setup", setup, "--pairs", 20)
    assert found["verdict"] == "faster"
    assert found["subjects"] == {"a": "py:sum(x)", "b": "py:sum(x[:4000])"}


@pytest.mark.parametrize(
    ("fail_on", "status"), [("slower", 1), ("faster", 0), ("slower,undecided", 1), ("undecided", 0)]
)
def test_exit_status(run_cli: Run, fail_on: str, status: int) -> None:
    done = run_cli("compare", "--a", "true", "--b", "sleep 0.2", "--pairs", 7, "--fail-on", fail_on, "--no-store")
    assert done.returncode == status
    assert done.stdout.startswith("B is slower")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--a", "no-such-program", "--b", "true"], "cannot be started: no-such-program: No such file"),
        (["--a", "true", "--b", "/etc/passwd"], "cannot be started: /etc/passwd: Permission denied"),
        (["--a", "true", "--b", "false"], "command B failed with exit status 1"),
        (["--a", "sh -c 'echo out of cheese >&2; exit 3'", "--b", "true"], "exit status 3: out of cheese"),
        (["--a", "sh -c 'printf \"\\\\033[31m\\\\377\" >&2; exit 3'", "--b", "true"], "exit status 3: ?[31m"),
        (["--a", "sh -c 'kill -9 $$'", "--b", "true"], "was ended by SIGKILL"),
        (["--a", "sleep 60", "--b", "true", "--timeout", "0.3"], "ran longer than 0.3 s"),
        (["--a", "sh -c 'sleep 60 & exit 0'", "--b", "true", "--timeout", "0.3"], "ran longer than 0.3 s"),
        (["--a", "true", "--b", "true", "--timeout", "0"], "timeout = 0"),
        (["--a", "true", "--b", "true", "--timer", "torch"], "timer = 'torch'"),
        (["--a", "true", "--b", "true", "--timeout", "nan"], "timeout = nan"),
        (["--a", "", "--b", "true"], "--a is empty"),
        (["--a", "   ", "--b", "true"], "--a is empty"),
        (["--a", "echo 'open", "--b", "true"], "cannot be split"),
        (["--a", "true", "--b", "true", "--pairs", "0"], "pairs = 0"),
        (["--a", "true", "--b", "true", "--pairs", "100000"], "1…2000"),
        (["--a", "true", "--b", "true", "--fail-on", "slow"], "'slow' is unknown"),
        (["--a", "py:1", "--b", "true"], "both be"),
        (["--a", "true", "--b", "true", "--setup", "x = 1"], "--setup belongs to py:"),
        (["--a", "py:1 +", "--b", "py:1"], "--a is no Python expression"),
        (["--a", "sh -c 'kill -35 $$'", "--b", "true"], "was ended by signal 35"),
        (["--a", "true", "--b", "true", "--html", "/none/x.html"], "the folder /none does not exist"),
        (["--a", "true", "--b", "true", "--html", "/tmp"], "/tmp: is a directory"),
        (["--a", "true", "--b", "true", "--store", "/tmp"], "/tmp: is a directory"),
        (["--a", "py:exit()", "--b", "py:1"], "side A raised SystemExit"),
        (["--a", "py:1", "--b", "py:1", "--setup", "exit(0)"], "--setup raised SystemExit"),
        (["--a", "py:1", "--b", "py:1/0"], "side B raised ZeroDivisionError"),
        (["--a", "py:1", "--b", "py:1", "--setup", "import no_such_module"], "--setup raised ModuleNotFoundError"),
        (["--a", "true", "--b", "true", "--store", "/proc/none/store.jsonl"], "/proc/none"),
    ],
)
def test_failures_are_one_line(run_cli: Run, arguments: list[str], words: str, tmp_path: Path) -> None:
    extra = [] if "--store" in arguments else ["--store", str(tmp_path / "store.jsonl")]
    start = time.monotonic()
    done = run_cli("compare", *arguments, *extra)
    assert time.monotonic() - start < 20
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert not (tmp_path / "store.jsonl").exists()


def test_an_interruption_leaves_no_record_and_no_process(tmp_path: Path) -> None:
    mark, file = tmp_path / "alive", tmp_path / "store.jsonl"
    side = f"sh -c 'sleep 3; echo alive > {mark}'"
    # A job in the background inherits an ignored SIGINT.
    main = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    main += "from gemmulate.cli import main; main()"
    command = [PYTHON, "-c", main, "compare", "--a", side, "--b", side]
    process = subprocess.Popen([*command, "--store", str(file)], stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in errors
    time.sleep(2)
    assert not mark.exists()
    assert not file.exists()


def test_a_stopped_command_leaves_no_process(run_cli: Run, tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    script = f"(sleep 1.5; echo alive > {mark}) & exit 0"
    done = run_cli("compare", "--a", f"sh -c '{script}'", "--b", "true", "--timeout", "0.2", "--no-store")
    assert done.returncode == 2
    time.sleep(2)
    assert not mark.exists()


def test_the_store_survives_a_cut_line_and_names_bad_ones(tmp_path: Path) -> None:
    file = tmp_path / "store.jsonl"
    file.write_bytes(b'{"verdict": "same"}\n{"verdict": "fas')
    store.append(file, {"verdict": "slower"})
    assert file.read_bytes().endswith(b'fas\n{"verdict":"slower"}\n')
    with pytest.raises(store.StoreError, match=r"store.jsonl:2: no JSON record"):
        list(store.read(file))
    for bad in (b"[1]\n", b"\x00\xff\n", b"1" * (store.MAX_LINE_BYTES + 1)):
        file.write_bytes(bad)
        with pytest.raises(store.StoreError, match=r"store.jsonl:1"):
            list(store.read(file))
    file.write_bytes(b"")
    assert list(store.read(file)) == []


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "store.jsonl"
    code = (
        "import sys; from gemmulate.evidence import store\n"
        "for i in range(50): store.append(sys.argv[1], {'who': sys.argv[2], 'i': i, 'pad': 'x' * 20000})"
    )
    writers = [subprocess.Popen([PYTHON, "-c", code, str(file), name]) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    records = list(store.read(file))
    assert len(records) == 100
    for name in ("one", "two"):
        assert [record["i"] for record in records if record["who"] == name] == list(range(50))
