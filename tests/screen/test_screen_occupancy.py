"""Contract: occupancy equals the vendor's calculator on every point of the table, and the profiler's own limits."""

import csv
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmulate.screen import occupancy, register_ceiling

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DATA = Path(__file__).parents[1] / "data"
UNLIMITED = 2**31 - 1


def points() -> list[dict[str, str]]:
    with (DATA / "occupancy" / "points.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_vendor_table_is_reproduced() -> None:
    counts: Counter[str] = Counter()
    for point in points():
        threads, registers, shared, barriers = (
            int(point[key]) for key in ("threads", "registers", "shared", "barriers")
        )
        found = occupancy(point["arch"], threads=threads, registers=registers, shared=shared, barriers=barriers)
        assert found.ctas_per_sm == int(point["ctas"]), point
        for name in ("registers", "shared", "warps", "ctas", "barriers"):
            vendor = int(point[f"limit_{name}"])
            if vendor != UNLIMITED:
                assert found.limits[name] == vendor, (name, point)
        assert found.launchable == (int(point["ctas"]) > 0)
        assert min(found.limits.values()) == found.limits[found.limiter] == found.ctas_per_sm
        counts[point["arch"]] += 1
    assert min(counts.values()) >= 300
    assert len(counts) == 9


def test_register_ceilings_by_block_size() -> None:
    # CUDA's own compiler limits: the table of the specification, block size by block size.
    bounds = [(256, 255), (384, 168), (512, 128), (640, 96), (768, 80), (896, 72), (1024, 64)]
    for threads in range(1, 1025):
        assert register_ceiling(threads) == next(ceiling for top, ceiling in bounds if threads <= top)


@pytest.mark.parametrize("arch", ["8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1"])
def test_the_ceiling_launches_and_one_more_does_not(arch: str) -> None:
    for threads in range(1, 1025, 7):
        ceiling = register_ceiling(threads)
        assert occupancy(arch, threads=threads, registers=ceiling).limits["registers"] > 0
        if ceiling < 255:
            assert occupancy(arch, threads=threads, registers=ceiling + 1).limits["registers"] == 0


def test_the_note_s_candidate_does_not_launch(run_cli: Run) -> None:
    done = run_cli("occupancy", "--arch", "9.0", "--threads", 320, "--registers", 176, "--shared", 0, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert (found["ctas_per_sm"], found["limiter"], found["max_registers"]) == (0, "registers", 168)
    assert "67,584 > 65,536" in found["arithmetic"]


@pytest.mark.parametrize(
    ("profile", "arch", "arguments", "expected"),
    [
        # "Occupancy" and "Launch Statistics" of the profiler samples: block limits by registers, shared, warps, SM.
        ("sm120_details_long", "12.0", {"threads": 256, "registers": 252, "shared": 98816}, (1, 1, 6, 24)),
        ("sm120_raw_wide_units_row", "12.0", {"threads": 128, "registers": 72, "carveout": 32768}, (7, 32, 12, 24)),
        ("sm75_details_long", "7.5", {"threads": 256, "registers": 32, "carveout": 32768}, (8, 16, 4, 16)),
    ],
)
def test_the_profiler_s_block_limits(
    profile: str, arch: str, arguments: dict[str, int], expected: tuple[int, ...]
) -> None:
    found = occupancy(arch, **arguments)
    assert tuple(found.limits[name] for name in ("registers", "shared", "warps", "ctas")) == expected


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("threads", "0", "threads = 0"),
        ("threads", "1025", "1…1024"),
        ("registers", "0", "registers = 0"),
        ("registers", "256", "1…255"),
        ("shared", "-1", "shared = -1"),
        ("barriers", "17", "0…16"),
        ("carveout", "300000", "carveout = 300000"),
        ("arch", "6.0", "use one of 7.5"),
        ("arch", "banana", "use one of 7.5"),
    ],
)
def test_out_of_range_is_one_line(option: str, value: str, words: str, run_cli: Run) -> None:
    arguments = {"arch": "9.0", "threads": "128", "registers": "64"} | {option: value}
    done = run_cli("occupancy", *(f"--{key}={text}" for key, text in arguments.items()))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_shared_memory_beyond_the_opt_in_admits_no_cta() -> None:
    assert occupancy("9.0", threads=128, registers=32, shared=227 * 1024).ctas_per_sm == 1
    beyond = occupancy("9.0", threads=128, registers=32, shared=227 * 1024 + 1)
    assert (beyond.ctas_per_sm, beyond.limiter) == (0, "shared")


@pytest.mark.parametrize("argument", ["threads", "registers", "shared", "barriers", "carveout"])
def test_what_is_no_integer_is_refused(argument: str) -> None:
    """320.5 threads gave 5.0 CTAs."""
    good: dict[str, Any] = {"threads": 128, "registers": 32, "shared": 64, "barriers": 1, "carveout": 65536}
    for value in (1.5, 320.0, "32", float("nan")):
        with pytest.raises(TypeError, match=f"{argument} = .* is no integer"):
            occupancy("9.0", **good | {argument: value})
    assert occupancy("9.0", **good | {argument: np.int64(good[argument])}) == occupancy("9.0", **good)


def test_too_much_shared_memory_is_said(run_cli: Run) -> None:
    arguments = ("occupancy", "--arch", "12.0", "--threads", 320, "--registers", 32, "--shared")
    assert "101,377 bytes per block exceed the 101,376" in run_cli(*arguments, 99 * 1024 + 1).stdout
    assert "exceed" not in run_cli(*arguments, 99 * 1024).stdout


def test_an_architecture_is_text() -> None:
    with pytest.raises(TypeError, match=r"arch = 9\.0 is no text"):
        occupancy(9.0, threads=128, registers=32)  # type: ignore[arg-type]
