"""NumPy's own tests of matmul, as they are, on gm.matmul; what differs on purpose is named here, with the reason."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy._core.tests._natype", reason="this NumPy comes without its tests")

SUITE = """
import numpy._core.tests.test_multiarray as suite
import gemmulate as gm

class TestMatmul(suite.TestMatmul):
    matmul = staticmethod(gm.matmul)
    types = "?bhilqBHILQefdFDO"  # without long double, which gm.DoubleDouble takes

del suite
"""
ON_PURPOSE = {
    "test_result_types": "integers give int64 or uint64, where every product fits",
    "test_vector_vector_values": "bool counts where NumPy takes any",
    "test_matrix_matrix_values": "bool counts where NumPy takes any",
    "test_matmul_object": "object arrays hold Python ints, not Fractions",
    "test_matmul_object_type_scalar": "object arrays hold Python ints, not Fractions",
    "test_out_arg": "out has the product's dtype: another one would need a second rounding",
    "test_empty_out": "the same error in other words",
}


def test_numpy_suite(tmp_path: Path) -> None:
    """In a process of its own: NumPy's file of tests registers marks and changes warnings."""
    file = tmp_path / "test_suite.py"
    file.write_text(SUITE)
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={tmp_path}", "-W", "ignore", "-rf"]
    done = subprocess.run([sys.executable, "-m", "pytest", *options, str(file)], capture_output=True, text=True)
    # "FAILED file::class::test - reason"
    failed = {line.split(" - ")[0].rpartition("::")[2] for line in done.stdout.splitlines() if line[:6] == "FAILED"}
    assert failed <= set(ON_PURPOSE), done.stdout[-3000:]
    assert int(done.stdout.splitlines()[-1].partition(", ")[2].split()[0]) > 40  # "7 failed, 47 passed in 9.80s"
