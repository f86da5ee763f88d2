"""Triton decides at its import whether kernels are compiled or interpreted: the tests in the interpreter need a process
of their own, which test_in_interpreter.py starts. `TRITON_INTERPRET=1 pytest tests/engines/triton_kernels` runs them
directly."""

import os

_INTERPRETED = [
    f"test_triton_{name}.py"
    for name in (
        *("deconstruct", "products", "survey", "engine", "planes", "chosen", "exact_dot", "resident", "ways"),
        "trial",
    )
]
_COMPILED = ["test_in_interpreter.py", "test_triton_compiled.py", "test_warpgroup_gemm.py"]

collect_ignore = _COMPILED if os.environ.get("TRITON_INTERPRET") == "1" else _INTERPRETED
