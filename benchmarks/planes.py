"""Products through planes beside the INT8 route: least processor seconds of a few calls on one thread, as JSON lines.

    python benchmarks/planes.py [N …]

The bits are compared as well, except for "fast", whose partial covers round other integers.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np

import gemmulate as gm

CALLS = 5


def least_seconds(call: Callable[[], object]) -> float:
    """Least processor seconds of CALLS calls after one that fills the caches of designs and tables."""
    call()
    times = []
    for _ in range(CALLS):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    rng = np.random.default_rng(0)
    for n in map(int, sys.argv[1:] or ("256", "512")):
        a, b = rng.standard_normal((2, n, n))
        i = rng.integers(-(2**31), 2**31, (n, n))
        cases = [(a, b, {"accuracy": g}) for g in ("fp64", "exact", "fast")] + [(i, i, {"overflow": "wrap"})]
        for x, y, options in cases:
            for formats in ("fp4_e2m1", "fp8_e4m3"):
                int8 = least_seconds(lambda: gm.matmul(x, y, threads=1, **options))  # noqa: B023 - called at once
                planes = least_seconds(lambda: gm.matmul(x, y, threads=1, formats=formats, **options))  # noqa: B023
                same = bool((gm.matmul(x, y, **options) == gm.matmul(x, y, formats=formats, **options)).all())
                record = {"n": n, "dtype": str(x.dtype), **options, "formats": formats}
                print(json.dumps(record | {"int8_s": int8, "planes_s": planes, "same_bits": same}), flush=True)


if __name__ == "__main__":
    main()
