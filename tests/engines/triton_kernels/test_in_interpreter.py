"""The kernels' tests and the contract of engines, in Triton's interpreter and a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The contract's largest cases take minutes in the interpreter; test_triton_products.py has depths and moduli enough.
CONTRACT = (
    "triton and not triton-bf16 and not triton-fp8 "
    "and not 97-5-129 and not deep and not 54- and not 20- and not 15-12 and not 15-13 and not 12000"
)
# Of the other formats the products alone, small: what they multiply is all that differs. A process of their own.
OTHERS = HERE / "test_triton_planes.py"
PLANES = (
    "(triton-bf16 or triton-fp8) and (1-2-3-5 or 7-2-3-5 or 2-13-64-33 or 2-7-130-17 or assess or negative or planes)"
)


@pytest.mark.timeout(1800)  # some minutes on two idle cores
@pytest.mark.parametrize(
    "arguments",
    [
        [str(HERE), f"--ignore={OTHERS}"],
        [str(HERE.parent / "test_contract.py"), "-k", CONTRACT],
        [str(OTHERS), str(HERE.parent / "test_contract.py"), "-k", PLANES],
    ],
    ids=["kernels", "contract", "planes"],
)
def test_in_the_interpreter(arguments: list[str]) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("triton", reason="Triton is not installed")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1780)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
