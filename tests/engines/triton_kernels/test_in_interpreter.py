"""The kernels' tests and the contract of engines, in Triton's interpreter and a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The contract's largest cases take minutes in the interpreter; test_triton_products.py has depths and moduli enough.
CONTRACT = "triton and not 97-5-129 and not deep and not 54- and not 20- and not 15-12 and not 15-13 and not 12000"


@pytest.mark.parametrize(
    "arguments",
    [[str(HERE)], [str(HERE.parent / "test_contract.py"), "-k", CONTRACT]],
    ids=["kernels", "contract"],
)
def test_in_the_interpreter(arguments: list[str]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
