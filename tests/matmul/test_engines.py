"""gm.engines() lists every engine with its reason where it cannot run, and the list agrees with the processor."""

import os
import platform
from pathlib import Path

import numpy as np
import pytest

import gemmulate as gm
from matmul.checks import assert_bits
from matmul.conftest import ENGINES

# Flags of /proc/cpuinfo that each instruction set needs.
FLAGS = {
    "native-avx2": {"avx2"},
    "native-avxvnni": {"avx2", "avx_vnni"},
    "native-avx512vnni": {"avx512f", "avx512bw", "avx512_vnni"},
}


def test_every_engine_is_listed_with_a_reason_where_it_is_missing() -> None:
    records = gm.engines()
    listed = [r.name for r in records]
    assert set(ENGINES) <= set(listed)
    assert len(set(listed)) == len(listed)
    for record in records:
        assert isinstance(record.available, bool)
        if not record.available:
            assert isinstance(record.reason, str)
            assert len(record.reason.strip()) > 5


def test_numpys_engine_is_always_there() -> None:
    assert next(r for r in gm.engines() if r.name == "reference").available


@pytest.mark.skipif(bool(os.environ.get("GEMMULATE_NO_NATIVE")), reason="installed without the native core on purpose")
def test_the_native_core_was_built() -> None:
    state = {r.name: r.available for r in gm.engines()}
    assert state["native"]
    assert state["native-scalar"]


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="needs Linux's list of x86-64 CPU flags",
)
@pytest.mark.parametrize("name", sorted(FLAGS))
def test_instruction_sets_agree_with_the_processor(name: str) -> None:
    state = {r.name: r.available for r in gm.engines()}
    if not state["native"]:
        pytest.skip("no native core here")
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    assert state[name] == (FLAGS[name] <= set(flags))


def test_an_engine_that_cannot_run_says_why() -> None:
    missing = [r for r in gm.engines() if not r.available and r.name in ENGINES]
    for record in missing:
        with pytest.raises(gm.EngineUnavailable) as caught:
            gm.matmul(np.eye(2), np.eye(2), engine=record.name)
        assert record.name in str(caught.value)
        assert record.reason in str(caught.value)
    if not missing:
        pytest.skip("every engine runs here")


def test_no_engine_means_one_that_runs() -> None:
    assert_bits(gm.matmul(np.eye(3), np.eye(3)), np.eye(3))
