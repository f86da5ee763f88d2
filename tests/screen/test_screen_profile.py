"""Contract: every dialect of profiler exports gives the same figures; damaged ones are refused."""

import csv
import io
import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemmulate.errors import EngineUnavailable
from gemmulate.screen import occupancy
from gemmulate.screen.figures import MixedStyles, base_unit, decimal_mark, parse_number
from gemmulate.screen.profile import ProfiledKernel, read_profile
from gemmulate.screen.profile_items import CHIPS, ITEMS, exists, metric_on
from gemmulate.screen.text_file import EvidenceError

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DATA = Path(__file__).parents[1] / "data" / "ncu"
SAMPLES = ["sm120_details_long", "sm120_metrics_long_thousands", "sm120_raw_wide_units_row", "sm75_details_long"]


def values(kernel: ProfiledKernel) -> dict[str, float | None]:
    return {one.item: one.value for one in kernel.evidence}


def test_the_samples_through_the_command(run_cli: Run) -> None:
    done = run_cli("profile", *(DATA / f"{name}.csv" for name in SAMPLES), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["kernel_count"] == 3 + 3 + 3 + 1
    first = {}
    for kernel in found["kernels"]:
        first.setdefault(Path(kernel["file"]).stem, {one["item"]: one for one in kernel["evidence"]})
    # Typed from the files.
    details = first["sm120_details_long"]
    assert details["registers"]["value"] == 252
    assert details["dynamic_shared"]["value"] == 98816
    assert details["no_eligible"] == {
        "item": "no_eligible", "value": 47.84, "unit": "%", "metric": "Scheduler Statistics / No Eligible", "note": "",
    }  # fmt: skip
    assert details["off_chip_rate"]["value"] == 47198129832.76  # not the "Memory Throughput" in percent
    assert details["duration"]["value"] == pytest.approx(1779520e-9)
    assert "not to be mixed with wall times" in details["duration"]["note"]
    metrics = first["sm120_metrics_long_thousands"]
    assert metrics["off_chip_bytes"]["value"] == 86736896
    assert metrics["shared_conflicts"]["value"] == 6790632
    assert metrics["no_eligible"]["value"] == pytest.approx(100 - 52.16)
    assert metrics["int8_tensor_active"]["value"] is None
    assert metrics["int8_tensor_active"]["note"] == (
        "not on this chip, use sm__pipe_tensor_subpipe_imma_cycles_active.avg.pct_of_peak_sustained_active"
    )
    wide = first["sm120_raw_wide_units_row"]
    assert wide["carveout"]["value"] == 32768  # 32.768000 Kbyte
    assert wide["grid"]["value"] == 31040  # 31,040
    assert wide["no_eligible"]["value"] == 56.412210
    assert wide["off_chip_rate"]["value"] == pytest.approx(425.399775e9)
    assert first["sm75_details_long"]["no_eligible"]["value"] == 99.18


def test_no_eligible_and_issue_active_add_up() -> None:
    for name in SAMPLES:
        for kernel in read_profile(DATA / f"{name}.csv"):
            found = values(kernel)
            assert found["no_eligible"] is not None
            assert found["issue_active"] is not None
            assert found["no_eligible"] + found["issue_active"] == pytest.approx(100, abs=0.011)


def test_occupancy_equals_the_profiler_s_limits() -> None:
    compared = 0
    for name in SAMPLES:
        for kernel in read_profile(DATA / f"{name}.csv"):
            found = {item: int(value) for item, value in values(kernel).items() if value is not None}
            if "limit_registers" not in found:
                continue
            ours = occupancy(
                kernel.compute_capability,
                threads=found["threads"],
                registers=found["registers"],
                shared=found["static_shared"] + found["dynamic_shared"],
                carveout=found["carveout"],
            )
            for limit in ("registers", "shared", "warps", "ctas"):
                assert ours.limits[limit] == found[f"limit_{limit}"], (name, limit)
                compared += 1
            warps = 48 if kernel.compute_capability == "12.0" else 32
            assert ours.resident_warps / warps * 100 == pytest.approx(found["theoretical_occupancy"], abs=1)
    assert compared == 4 * 7


def rewritten(name: str, change: Callable[[str], str], delimiter: str = ",") -> str:
    """A sample with every figure changed."""
    text = (DATA / f"{name}.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO("".join(line for line in text.splitlines(True) if not line.startswith("==")))))
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n", delimiter=delimiter)
    number = re.compile(r"\d[\d,.]*")
    value = rows[0].index("Metric Value") if "Metric Value" in rows[0] else None
    for row in rows:
        for index in range(11, len(row)) if value is None else [value]:
            if number.fullmatch(row[index]):
                row[index] = change(row[index])
        writer.writerow(row)
    return out.getvalue()


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_decimal_commas_give_the_same_figures(name: str, delimiter: str, tmp_path: Path) -> None:
    file = tmp_path / "european.csv"
    file.write_text(rewritten(name, lambda text: text.translate(str.maketrans(",.", ".,")), delimiter))
    assert read_profile(file) == read_profile(DATA / f"{name}.csv")


@pytest.mark.parametrize("name", SAMPLES)
def test_utf16_line_ends_and_program_output(name: str, tmp_path: Path) -> None:
    text = (DATA / f"{name}.csv").read_text(encoding="utf-8")
    file = tmp_path / "copy.csv"
    expected = read_profile(DATA / f"{name}.csv")
    for raw in (
        text.encode("utf-16"),
        text.encode("utf-16-be").join((b"\xfe\xff", b"")),
        b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
        b"==WARNING== something\nprogram says: 1,5\n" + text.encode(),
    ):
        file.write_bytes(raw)
        assert read_profile(file) == expected


@pytest.mark.parametrize("name", ["sm120_metrics_long_thousands", "sm75_details_long"])
def test_a_truncated_export_is_refused_or_a_prefix(name: str, tmp_path: Path) -> None:
    raw = (DATA / f"{name}.csv").read_bytes()
    whole = read_profile(DATA / f"{name}.csv")
    cut = tmp_path / "cut.csv"
    refused = 0
    for end in range(0, len(raw), 61):
        cut.write_bytes(raw[:end])
        try:
            found = read_profile(cut)
        except EvidenceError:
            refused += 1
            continue
        for ours, theirs in zip(found, whole, strict=False):
            for one, full in zip(ours.evidence, theirs.evidence, strict=True):
                # A cut between rows looks whole: figures are missing, or derived, and never wrong.
                assert one.value in (None, full.value) or one.value == pytest.approx(full.value), (end, one)
    assert refused > len(raw) / 61 / 2


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (bytes(range(256)), "is binary"),
        ((DATA / "error_only.csv").read_bytes(), "Could not open report file"),
        (b"hello\n", "no Nsight Compute CSV export"),
        ((DATA / "metric_names_by_chip.tsv").read_bytes(), "no Nsight Compute CSV export"),
        (b'"ID","Kernel Name"\n', "no column 'CC'"),
        (b"ID, of the run\n", "no Nsight Compute CSV export"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n"0","k","9.0","1"\ndone\n', "the profiled program printed"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n0,k,9.0,1\n"ID","Kernel Name","CC","x"\n', "a second header"),
        (b'"ID","Kernel Name","CC","Metric Name"\n', "no column 'Block Size'"),
        (b'"ID","Kernel Name","CC","x"\n', "row of units"),
        (b'"ID","Kernel Name","CC","x"\n"0","k","9.0","1"\n', "row of units"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n', "no kernel"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n"0","k","9.0"\n', "a row of 3 columns under 4"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n"0","k","9.0","1', "cut short"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n"0","k","9.0","1.5"\n"1","k","9.0","1,5"\n', "decimal marks"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n0,k,9.0,1\n1,k,9.0,1\n0,k,9.0,1\n', "comes twice"),
        (b'"ID","Kernel Name","CC","x"\n"","","",""\n==ERROR== out of luck\n', "the profiler failed: out of luck"),
        (b'"ID","Kernel Name","CC","x"\n' + b'"' + b"a" * 900_000 + b"\n" + b"b" * 900_000, "damaged or cut short"),
        (b'"ID",' + b"a" * 1_100_000, "more than 1,000,000 characters"),
    ],
)
def test_what_is_no_export(raw: bytes, words: str, tmp_path: Path, run_cli: Run) -> None:
    file = tmp_path / "profile.csv"
    file.write_bytes(raw)
    done = run_cli("profile", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_a_hundred_megabytes_in_bounded_memory(tmp_path: Path) -> None:
    rows = (DATA / "sm75_details_long.csv").read_text().splitlines(True)
    file = tmp_path / "large.csv"
    with file.open("w") as out:
        out.write(rows[0])
        # Rule texts make up most of the bytes of such a file; a large export has few figures per byte.
        rules = [row for row in rows if '"SpeedOfLight"' in row or "HighPipeUtilization" in row]
        block = "".join(rules) * 200
        while out.tell() < 100_000_000:
            out.write(block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EvidenceError, match="no kernel"):
        read_profile(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_one_metric_repeated_without_end_in_bounded_memory(tmp_path: Path) -> None:
    """All rows belong to one kernel: their number is bounded by nothing but the file."""
    file = tmp_path / "repeats.csv"
    with (DATA / "sm75_details_long.csv").open() as sample:
        header = sample.readline()
    head = '"0","1","p","h","k","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","S","dram__bytes.sum","byte"'
    with file.open("w") as out:
        out.write(header)
        out.writelines(f'{head},"{number}.5",\n' for number in range(300_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (kernel,) = read_profile(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert values(kernel)["off_chip_bytes"] == 0.5


def test_the_item_table_is_the_vendor_s() -> None:
    with (DATA / "metric_names_by_chip.tsv").open(newline="") as file:
        table = {row["metric_base"]: row for row in csv.DictReader(file, delimiter="\t")}
    checked = 0
    for item in ITEMS:
        for base in item.bases:
            for chip in CHIPS.values():
                if base in table:
                    assert exists(base, chip) == (table[base][chip] == "1"), (base, chip)
                    checked += 1
    assert checked > 150


def test_the_metric_named_for_each_chip() -> None:
    int8 = next(item for item in ITEMS if item.name == "int8_tensor_active")
    assert {name: str(metric_on(int8, chip)).split("_cycles")[0] for name, chip in CHIPS.items()} == {
        **dict.fromkeys(("8.0", "8.6", "8.9", "9.0"), "sm__pipe_tensor_op_imma"),
        **dict.fromkeys(("10.0", "10.3", "12.0", "12.1"), "sm__pipe_tensor_subpipe_imma"),
    }


def test_off_chip_traffic_without_a_dram_unit(tmp_path: Path) -> None:
    file = tmp_path / "spark.csv"
    file.write_text('"ID","Kernel Name","CC","x"\n"","","",""\n"0","k","12.1","1"\n')
    (kernel,) = read_profile(file)
    notes = {one.item: one.note for one in kernel.evidence}
    assert notes["off_chip_bytes"] == "not on this chip, use lts__d_sectors_fill_sysmem.sum"
    assert notes["system_memory_sectors"] == "not collected; collect lts__d_sectors_fill_sysmem.sum"


def test_what_a_chip_lacks_has_a_substitute(tmp_path: Path) -> None:
    """Every "not on this chip" says what to use there."""
    for capability, chip in CHIPS.items():
        file = tmp_path / f"{chip}.csv"
        file.write_text(f'"ID","Kernel Name","CC","x"\n"","","",""\n"0","k","{capability}","1"\n')
        (kernel,) = read_profile(file)
        missing = [one.note for one in kernel.evidence if "not on this chip" in one.note]
        assert all(", use " in note for note in missing), missing
        for note in missing:
            assert exists(note.partition(", use ")[2].partition(".")[0], chip)


def one_figure(tmp_path: Path, metric: str, unit: str, value: str, delimiter: str = ",") -> dict[str, Any]:
    file = tmp_path / "one.csv"
    rows = (("ID", "Kernel Name", "CC", metric), ("", "", "", unit), ("0", "k", "9.0", value))
    file.write_text("".join(delimiter.join(f'"{cell}"' for cell in row) + "\n" for row in rows), encoding="utf-8")
    (kernel,) = read_profile(file)
    return {one.item: one for one in kernel.evidence}


@pytest.mark.parametrize("value", ["1e400", "9" * 400, "0x10", "1;2", "5 %"])
def test_a_figure_that_is_not_understood_is_named(value: str, tmp_path: Path, run_cli: Run) -> None:
    """An overflow to infinity broke the JSON; the others read as if the profiler had given nothing."""
    one = one_figure(tmp_path, "dram__bytes.sum", "byte", value)["off_chip_bytes"]
    assert (one.value, one.note) == (None, f"{value[:40]!r} is not understood as a figure")
    assert run_cli("profile", tmp_path / "one.csv", "--json").returncode == 0
    for nothing in ("n/a", "", "nan", "-inf", "(!) n/a", "-"):
        one = one_figure(tmp_path, "dram__bytes.sum", "byte", nothing)["off_chip_bytes"]
        assert (one.value, one.note) == (None, "the profiler gave no value")


@pytest.mark.parametrize(
    ("item", "metric", "unit", "value"),
    [
        ("off_chip_rate", "dram__bytes.sum.per_second", "Gbyte/second", 1.5e9),
        ("off_chip_rate", "dram__bytes.sum.per_second", "Tbyte/s", 1.5e12),
        ("duration", "gpu__time_duration.sum", "second", 1.5),
        ("duration", "gpu__time_duration.sum", "µs", 1.5e-6),
        ("instructions", "smsp__inst_executed.sum", "Kinst", 1500.0),
        ("l2_sectors", "lts__t_sectors.sum", "Msector", 1.5e6),
    ],
)
def test_units_of_other_versions(item: str, metric: str, unit: str, value: float, tmp_path: Path) -> None:
    one = one_figure(tmp_path, metric, unit, "1.5")[item]
    assert one.value == pytest.approx(value)
    assert one.unit == next(known.unit for known in ITEMS if known.name == item)


def test_an_unknown_unit_is_said(tmp_path: Path) -> None:
    one = one_figure(tmp_path, "dram__bytes.sum", "furlong", "1.5")["off_chip_bytes"]
    assert (one.value, one.unit, one.note) == (1.5, "furlong", "unit 'furlong' is not known and not converted to byte")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_of_spreadsheets(delimiter: str, tmp_path: Path) -> None:
    assert one_figure(tmp_path, "dram__bytes.sum", "Kbyte", "1.5", delimiter)["off_chip_bytes"].value == 1500


def test_a_kernel_s_name_cannot_steer_the_terminal(tmp_path: Path, run_cli: Run) -> None:
    file = tmp_path / "one.csv"
    file.write_text('"ID","Kernel Name","CC","x"\n"","","",""\n"0","k\x1b[31m","9.0","1"\n')
    log = tmp_path / "one.log"
    log.write_text(
        "ptxas info    : Compiling entry function 'k\x1b[31m' for 'sm_75'\n"
        "ptxas info    : Function properties for k\x1b[31m\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 8 registers\n"
    )
    for command, source in (("profile", file), ("compiled", log)):
        done = run_cli(command, source)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout
        assert r"k\x1b[31m" in done.stdout


def test_a_share_above_one_derives_nothing(tmp_path: Path) -> None:
    found = one_figure(tmp_path, "smsp__issue_active.avg.pct_of_peak_sustained_active", "%", "150")
    assert found["issue_active"].value == 150
    assert found["no_eligible"].value is None


@pytest.mark.parametrize(
    ("text", "mark", "value"),
    [
        ("1,926,642", ".", 1926642.0),
        ("13,987,268,476.89", ".", 13987268476.89),
        ("1.926.642,5", ",", 1926642.5),
        ("0,52", ",", 0.52),
        ("27,200", ".", 27200.0),
        ("27,200", ",", 27.2),
        ("1\u202f926\u00a0642,5", ",", 1926642.5),
        ("1'926'642.5", ".", 1926642.5),
        ("-3.5e+02", ".", -350.0),
        ("n/a", ".", None),
        ("PolicySpread", ".", None),
        ("(32, 8, 1)", ".", None),
        ("", ".", None),
    ],
)
def test_numbers(text: str, mark: str, value: float | None) -> None:
    assert parse_number(text, mark) == value


def test_the_decimal_mark_of_a_file() -> None:
    assert decimal_mark(["n/a", "27,200", "1,234"]) == "."
    assert decimal_mark(["27.200", "0.123"]) == "."
    assert decimal_mark(["27.200", "0,123"]) == ","
    assert decimal_mark(["1.234.567"]) == ","
    assert decimal_mark(["1234,567"]) == ","
    with pytest.raises(MixedStyles):
        decimal_mark(["1.5", "1,5"])


def test_kbyte_is_a_thousand() -> None:
    assert base_unit("Kbyte") == ("byte", 1000)
    assert base_unit("Mbyte/block") == ("byte/block", 1e6)
    assert base_unit("usecond") == ("s", 1e-6)
    assert base_unit("register/thread") == ("register/thread", 1)


def test_a_binary_report_through_the_vendor_s_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module is simulated: no report is at hand that may be redistributed."""
    file = tmp_path / "report.ncu-rep"
    file.write_bytes(b"NVR\0rest")
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(EngineUnavailable, match="ncu-report"):
        read_profile(file)
    metrics = {
        "launch__registers_per_thread": ("register/thread", 168),
        "gpu__time_duration.sum": ("ns", 1500.0),
        "device__attribute_compute_capability_major": ("", 9),
        "device__attribute_compute_capability_minor": ("", 0),
    }

    def metric(name: str) -> SimpleNamespace:
        unit, value = metrics[name]
        return SimpleNamespace(unit=lambda: unit, value=lambda: value)

    action = SimpleNamespace(name=lambda: "k", metric_names=lambda: tuple(metrics), metric_by_name=metric)
    part = SimpleNamespace(num_actions=lambda: 1, action_by_idx=lambda index: action)
    module = ModuleType("ncu_report")
    module.load_report = lambda path: SimpleNamespace(  # type: ignore[attr-defined]
        num_ranges=lambda: 1, range_by_idx=lambda index: part
    )
    monkeypatch.setitem(sys.modules, "ncu_report", module)
    (kernel,) = read_profile(file)
    assert (kernel.kernel, kernel.chip) == ("k", "GH100")
    found = values(kernel)
    assert found["registers"] == 168
    assert found["duration"] == pytest.approx(1.5e-6)
