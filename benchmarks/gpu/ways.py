"""How fast is each way to residue products on this device, and does it give the digits of the kernel by pointers?

    python -m benchmarks.gpu.ways [--device cuda] [--size 8192] [--moduli 15] [--timeout 300]

First the ways that are written by hand are tried, in processes of their own with a time limit, and what they gave is
kept: the engine takes those that gave the right digits from then on, and no other of them. Ways that were tried before
are tried again. Then each way is timed, in a process of its own too. Run this first on a new kind of device. The
digits are compared on this size and on one that is no multiple of any tile's. Operations are 2 m n k moduli.
`--device cpu` with TRITON_INTERPRET=1 is a rehearsal at a small size. Not run on a GPU so far.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RUNS = 10


def one(way: Any, name: str, size: int, moduli: int) -> dict[str, Any]:
    """Whether the digits are the same, and the median seconds, of one way at size³."""
    import torch

    from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem
    from gemmulate.engines.torch_device import TorchDevice
    from gemmulate.engines.triton.gemm_choice import median_seconds
    from gemmulate.engines.triton.gemm_ways import applies, digits_by, ways_of

    device = TorchDevice(name)
    if way not in ways_of(device.device):
        return {"way": way, "status": "not on this device"}
    system = ResidueSystem(INT8_MODULI[:moduli])
    generator = torch.Generator(device.device).manual_seed(1)
    a, b = (
        torch.randint(-128, 128, (moduli, size, size), dtype=torch.int8, device=device.device, generator=generator)
        for _ in range(2)
    )
    odd = size - 16
    awkward = (a[:, : size - 7, :odd].contiguous(), b[:, : size - 32, :odd].contiguous())
    with device.current():
        for planes in ((a, b), awkward):
            if not applies(way, *planes):
                return {"way": way, "status": "does not apply"}
            if not torch.equal(digits_by(way, *planes, system), digits_by("pointers", *planes, system)):
                return {"way": way, "status": "DIGITS DIFFER"}
        seconds = median_seconds(device.watch, lambda: digits_by(way, a, b, system), RUNS)
    return {"way": way, "status": "the same digits", "seconds": seconds}


def in_a_process(way: str, args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu.ways", "--way", way]
    command += ["--device", args.device, "--size", str(args.size), "--moduli", str(args.moduli)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=args.timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"way": way, "status": f"NOT DONE IN {args.timeout:g} s"}
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        return {"way": way, "status": f"FAILED: {last}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def shown(found: dict[str, Any], size: int, moduli: int) -> str:
    line = f"{found['way']:<12} {found['status']}"
    if "seconds" in found:
        line += f", {1e3 * found['seconds']:.4g} ms, {2e-12 * size**3 * moduli / found['seconds']:.4g} TOP/s"
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, …; cpu for a rehearsal")
    parser.add_argument("--size", type=int, help="8192 if not given, 128 on the processor")
    parser.add_argument("--moduli", type=int, help="15 if not given, 2 on the processor")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each way")
    parser.add_argument("--way", help="this one alone, in this process, as JSON")
    args = parser.parse_args()
    on_gpu = args.device != "cpu"
    args.size, args.moduli = args.size or (8192 if on_gpu else 128), args.moduli or (15 if on_gpu else 2)
    if find_spec("triton") is None or find_spec("torch") is None:
        parser.error("torch and triton are not installed; pip install torch triton")
    if args.way:
        print(json.dumps(one(args.way, args.device, args.size, args.moduli)))
        return 0
    from gemmulate.engines.torch_device import TorchDevice
    from gemmulate.engines.triton.gemm_proofs import SAME
    from gemmulate.engines.triton.gemm_ways import WAYS
    from gemmulate.errors import GemmulateError

    try:
        device = TorchDevice(args.device)
    except (ValueError, GemmulateError) as error:
        parser.error(str(error))
    tried = device.try_residue_products(anew=True)
    for way, status in tried.items():
        print(f"trial of {way}: {status}", flush=True)
    # One that failed would take its time limit once more.
    failed = {way: {"way": way, "status": f"TRIAL: {status}"} for way, status in tried.items() if status != SAME}
    found = [failed.get(way) or in_a_process(way, args) for way in WAYS]
    print(f"{args.moduli} × {args.size}³ on {args.device}")
    for each in found:
        print(shown(each, args.size, args.moduli), flush=True)
    return 0 if all(each["status"] in ("the same digits", "not on this device") for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
