"""Contract: importing gemmulate is cheap and loads no framework."""

import subprocess
import sys


def test_import_loads_no_framework() -> None:
    frameworks = ("torch", "jax", "cupy", "dask", "scipy", "triton", "rich")
    code = f"import sys, gemmulate; print([m for m in {frameworks} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
