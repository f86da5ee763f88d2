"""Fixtures shared by the suites."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

# Two workers with two threads of torch each wait for one another on two cores: the contract of its engines took five
# times as long. torch reads this when it is imported; tests of threads say how many they want.
os.environ.setdefault("MKL_NUM_THREADS", "1")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def run_cli() -> Run:
    """Run `gemmulate ARGUMENTS` as a user would, in a process of its own; never raises on a status."""

    def run(*arguments: object, cwd: object = None) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", "-c", "from gemmulate.cli import main; main()", *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, encoding="utf-8", timeout=300, cwd=str(cwd or ".")
        )

    return run
