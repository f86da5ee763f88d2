"""The engines that every contract test runs on."""

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import gemmulate as gm

# Two test processes share two cores: waiting threads that spin would take the time from the other's that work
# (2 cores, load 12, 2026-11-29: a product of 0.1 ms of work on two threads took 67 ms). Read when OpenMP loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

ENGINES = ("reference", "native", "native-scalar", "native-avx2", "native-avxvnni", "native-avx512vnni")

# Chosen for repeatable runs in CI; elsewhere new examples are drawn each time.
settings.register_profile(
    "matmul",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("matmul")


def require(name: str) -> str:
    """Skip, with the engine's own reason, unless the engine can run here."""
    record = next((r for r in gm.engines() if r.name == name), None)
    assert record is not None, f"gm.engines() does not list {name}"
    if not record.available:
        pytest.skip(f"{name}: {record.reason}")
    return name


@pytest.fixture(scope="session")
def available_engines() -> list[str]:
    """Every matmul engine that runs here."""
    return [r.name for r in gm.engines() if r.available and r.name in ENGINES]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@pytest.fixture(scope="module")
def mm(engine: str) -> Callable[..., Any]:
    """gm.matmul on one engine."""
    return functools.partial(gm.matmul, engine=engine)


@pytest.fixture(scope="module")
def is_fast(engine: str) -> bool:
    """The engines whose speed allows the larger sizes; results of the others are compared with theirs bit for bit."""
    return engine == "native"
