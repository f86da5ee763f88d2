"""Trials of the ways to residue products that are written by hand, each in a process of its own with a time limit.

    python -m gemmulate.engines.triton.gemm_trial cuda:0 warpgroups 180

multiplies on a device by a way, compares the digits with those of "pointers", and prints what it found. `prove` starts
that for each way, ends it with its process group where it takes too long, and keeps the outcome (`gemm_proofs`). Only
commands that a user starts to measure a device call it; no product does: a trial takes seconds to minutes, most of
them to compile, and a second context on the device. Not run on a GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import torch

from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem
from gemmulate.engines.triton.chosen import choice_of_moduli
from gemmulate.engines.triton.gemm_proofs import SAME, hand_written_ways, keep, proofs
from gemmulate.engines.triton.gemm_ways import Way, applies, digits_by, digits_chosen_by

LIMIT_S = 180.0  # for each way; compiling takes most of it
BEGUN = "begun"  # printed before the first product by the way: what went wrong before says nothing of it
REPEATS = 20


@dataclass(frozen=True)
class Shape:
    """Of a trial's operands; row: bytes from one vector to the next."""

    moduli: int
    m: int
    n: int
    depth: int
    row: int


SHAPES = (
    Shape(3, 2048, 2304, 1040, 1040),  # several tiles for each SM; the last step is not full
    Shape(15, 512, 520, 4096, 4096),
    Shape(2, 333, 777, 384, 400),  # padded rows, no tile's multiple
    Shape(2, 1, 1, 257, 272),  # the least depth
    Shape(1, 130, 260, 65_280, 65_280),  # the largest
)


@dataclass(frozen=True)
class Outcome:
    """`SAME`, or what went wrong; whether that is to be kept, since the way itself was run."""

    status: str
    of_the_way: bool


def prove(device: torch.device, anew: bool = False, limit_s: float = LIMIT_S) -> dict[Way, str]:
    """Try the ways written by hand that a device has and that were not tried before; with `anew` all of them.

    Returns `SAME`, or what went wrong, for each. What went wrong before a way was run is not kept.
    """
    known = {} if anew else {way: status for way in hand_written_ways(device) if (status := proofs(device).get(way))}
    found = {way: tried(device, way, limit_s) for way in hand_written_ways(device) if way not in known}
    if counting := {way: outcome.status for way, outcome in found.items() if outcome.of_the_way}:
        keep(device, counting)
    return known | {way: outcome.status for way, outcome in found.items()}


def tried(device: torch.device, way: Way, limit_s: float) -> Outcome:
    """One way in a process of its own."""
    try:
        status, out, errors = _run(_command(device, way, limit_s), limit_s)
    except OSError as error:
        return Outcome(f"not tried: {error}", False)
    lines = out.splitlines()
    begun = BEGUN in lines
    if status is None:
        return Outcome(f"no end in {limit_s:g} s" if begun else f"not tried: no start in {limit_s:g} s", begun)
    if status == 0 and begun and (said := _said(lines[-1])) is not None:
        return Outcome(said, True)
    reason = f"ended by signal {-status}" if status < 0 else f"status {status}"
    reason += f": {last[-1].strip()[:300]}" if (last := errors.strip().splitlines()) else ""
    return Outcome(f"failed, {reason}" if begun else f"not tried: {reason}", begun)


def _said(line: str) -> str | None:
    try:
        return str(json.loads(line)["status"])
    except (ValueError, TypeError, KeyError):
        return None


def _command(device: torch.device, way: Way, limit_s: float) -> Sequence[str]:
    return [sys.executable, "-m", __name__, str(device), way, f"{limit_s:g}"]


def _run(command: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
    """Exit status (None: ended at the limit), output and errors of a command that leads a process group."""
    # Files, not pipes: a compiler that the child has started may hold a pipe open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True)
        status: int | None = None
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
        except BaseException:  # Ctrl-C, which does not reach the group
            _end(process)
            raise
        return status, _text(out), _text(errors)


def _end(process: subprocess.Popen[bytes]) -> None:
    # It was not waited for, so that its number is still its own.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process that a driver holds ends when the driver lets go of it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def compare(device: torch.device, way: Way, shapes: Sequence[Shape], repeats: int = REPEATS) -> str:
    """Multiply by a way, over and over, and compare with "pointers": `SAME`, or where the digits are others.

    Prints `BEGUN` when operands and expected digits are there. The device is torch's current one.
    """
    cases = [case for shape in shapes for case in _cases(device, shape)]
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    print(BEGUN, flush=True)
    for a, b, system, expected in cases:
        where = f"{len(a)} × {a.shape[1]} × {b.shape[1]} × {a.shape[2]}"
        if not applies(way, a, b):
            return f"does not take {where}"
        if not all(torch.equal(digits_by(way, a, b, system), expected) for _ in range(repeats)):
            return f"other digits at {where}"
        # As many moduli as the device's memory says: none, some, all, one product after the other.
        for r in [turn % (len(a) + 1) for turn in range(max(repeats, len(a) + 1))]:
            digits = digits_chosen_by(way, a, b, choice_of_moduli(r, device))
            if not torch.equal(digits[:r], expected[:r]):
                return f"other digits at {where}, {r} moduli by choice"
    return SAME


def _cases(device: torch.device, shape: Shape) -> list[tuple[torch.Tensor, torch.Tensor, ResidueSystem, torch.Tensor]]:
    """Operands of a shape, whole and the lower half of the left one's vectors, with the digits of "pointers"."""
    system = ResidueSystem(INT8_MODULI[: shape.moduli])
    generator = torch.Generator(device).manual_seed(shape.depth)
    options: dict[str, Any] = {"dtype": torch.int8, "device": device, "generator": generator}
    a, b = (
        torch.randint(-128, 128, (shape.moduli, vectors, shape.row), **options)[..., : shape.depth]
        for vectors in (shape.m, shape.n)
    )
    a[:, 0], b[:, 0], b[:, -1] = -128, -128, 127  # the largest sums that there are
    parts = (a, a[:, shape.m // 2 :])
    return [(part, b, system, digits_by("pointers", part, b, system)) for part in parts]


def main(arguments: Sequence[str]) -> None:
    """DEVICE WAY SECONDS."""
    name, way, limit_s = arguments
    # Whoever started this may be gone by the time that a kernel hangs: the signal then ends this process.
    signal.alarm(int(float(limit_s)) + 10)
    device = torch.device(name)
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        print(json.dumps({"status": compare(device, way, SHAPES)}))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1:])
