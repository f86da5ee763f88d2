"""Which way to the digits of residue products is the fastest: measured once in a process on each device, then kept.

Nobody has run these kernels on a GPU, and what tile, load and loop is best differs from device to device. So the device
is asked: at the first INT8 product that is large enough, the ways that are usable there, those written by hand only
after a trial (`gemm_proofs`), multiply the same planes, 4096 × 4096 × 4096 for three moduli where the memory holds
them. A way whose digits are not those of `residue_gemm`, on these planes or on ones of an awkward shape, is left out
with a RuntimeWarning, and so is one that raises. Every product from then on takes the fastest way that applies to it.
Results do not depend on the choice: all ways give the same bits.

Nothing is measured in Triton's interpreter, nor while a CUDA graph is captured or torch reports waits for the device
(`set_sync_debug_mode`): there the way is what was chosen before, or "pointers".
"""

from __future__ import annotations

import statistics
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem
from gemmulate.engines.stopwatch import Stopwatch, TorchStopwatch
from gemmulate.engines.torch import TorchLibrary
from gemmulate.engines.torch_array import capturing
from gemmulate.engines.triton.chosen import choice_of_moduli
from gemmulate.engines.triton.gemm_proofs import usable_ways
from gemmulate.engines.triton.gemm_ways import READ_A_CHOICE, WAYS, Way, applies, digits_by, digits_chosen_by
from gemmulate.engines.triton.library_gemm import SUMS

# Products m n k of all moduli from which on the choice matters: 2^38 take an H200 0.3 ms at its INT8 rate. To measure
# takes it some 20 ms, and its compiler seconds once (Triton keeps what it compiled on disk): a single product of less
# would never earn that.
LEAST_WORK = 1 << 38
ASSUMED_MODULI = 15  # where the device alone knows how many: what "fp64" takes of ordinary data
MODULI = 3
SIZES = (4096, 2048, 1024)
RUNS = 5


@dataclass(frozen=True)
class Measured:
    """Ways with their median seconds for MODULI products of size³, the fastest first; "pointers" is among them."""

    size: int
    seconds: tuple[tuple[Way, float], ...]

    @property
    def ways(self) -> tuple[Way, ...]:
        return tuple(way for way, _ in self.seconds)

    def __str__(self) -> str:
        times = ", ".join(f"{way} {1e3 * seconds:.3g} ms" for way, seconds in self.seconds)
        return f"{times} for {MODULI} × {self.size}³"


_KEPT: dict[torch.device, Measured] = {}
_MEASURING = threading.Lock()


def forget() -> None:
    """Measure anew at the next product of every device."""
    with _MEASURING:
        _KEPT.clear()


def chosen_way(a: torch.Tensor, b: torch.Tensor) -> Way:
    """The way for planes a (moduli, m, depth) and b (moduli, n, depth); measures where that is due."""
    return _fastest(a, b, a.shape[0], WAYS)


def way_for_a_choice(a: torch.Tensor, b: torch.Tensor) -> Way:
    """The way for planes of which a choice in device memory says how many count; measures where that is due."""
    return _fastest(a, b, ASSUMED_MODULI, READ_A_CHOICE)


def _fastest(a: torch.Tensor, b: torch.Tensor, moduli: int, among: tuple[Way, ...]) -> Way:
    if a.dtype != torch.int8 or a.device.type != "cuda":
        return "pointers"
    if moduli * a.shape[1] * a.shape[2] * b.shape[1] < LEAST_WORK:
        return "pointers"
    measured = _KEPT.get(a.device)
    if measured is None and _may_wait():
        measured = measured_ways(a.device)
    if measured is None:
        return "pointers"
    return next(way for way in measured.ways if way in among and applies(way, a, b))


def _may_wait() -> bool:
    """Whether the host may wait for the device: no capture, and no mode of torch that reports every wait."""
    return not capturing() and not torch.cuda.get_sync_debug_mode()


def measured_ways(device: torch.device) -> Measured | None:
    """What was measured on a CUDA device, by now if need be; None where no size fits its free memory.

    The device is torch's current one.
    """
    with _MEASURING:
        found = _KEPT.get(device)
        if found is None:
            size = fitting_size(TorchLibrary(str(device)).memory())
            found = None if size is None else measure(device, size, TorchStopwatch())
            if found is not None:
                _KEPT[device] = found
        return found


def fitting_size(free_bytes: int) -> int | None:
    """The largest of SIZES whose planes and digits, for two shapes, and panel of sums take half of what is free."""
    return next((n for n in SIZES if 2 * (8 * MODULI * n * n + 4 * SUMS) <= free_bytes), None)


def measure(device: torch.device, size: int, watch: Stopwatch) -> Measured:
    """All ways that are usable on a device at size³; the digits of each compared before its time is taken."""
    system = ResidueSystem(INT8_MODULI[:MODULI])
    generator = torch.Generator(device).manual_seed(size)
    a, b = (
        torch.randint(-128, 128, (MODULI, size, size), dtype=torch.int8, device=device, generator=generator)
        for _ in range(2)
    )
    # Rows of the largest sums that there are.
    a[:, :2], b[:, :1], b[:, 1:2] = -128, -128, 127
    # No tile's multiple in any direction; a depth and columns that descriptors and the library take.
    odd = (a[:, : size - 77, : size - 48].contiguous(), b[:, : size - 48, : size - 48].contiguous())
    # Columns by whose number digits are stored one by one: a kernel of its own (`NOT_SPECIALIZED`).
    narrow = a[:, :256], b[:, :200]
    shapes = [(a, b), odd, narrow]
    expected = [digits_by("pointers", *planes, system) for planes in shapes]
    seconds: dict[Way, float] = {}
    for way in usable_ways(device):
        try:
            for planes, digits in zip(shapes, expected, strict=True):
                if applies(way, *planes) and not _gives(way, *planes, system, digits):
                    raise ArithmeticError("its digits are others")
            if applies(way, a, b):
                seconds[way] = median_seconds(watch, lambda way=way: digits_by(way, a, b, system))  # type: ignore[misc]
        except Exception as error:  # whatever compilers, drivers and libraries raise
            if way == "pointers":
                raise
            reason = str(error).partition("\n")[0]
            warnings.warn(
                f"{device}: the way {way!r} to residue products is left out ({type(error).__name__}: {reason}); "
                "results are the same without it",
                RuntimeWarning,
                stacklevel=2,
            )
    return Measured(size, tuple(sorted(seconds.items(), key=lambda item: item[1])))


def _gives(way: Way, a: torch.Tensor, b: torch.Tensor, system: ResidueSystem, digits: torch.Tensor) -> bool:
    """Whether a way gives these digits, and all but the last modulus's where the device alone knows how many."""
    if not torch.equal(digits_by(way, a, b, system), digits):
        return False
    if way not in READ_A_CHOICE:
        return True
    fewer = len(a) - 1
    return torch.equal(digits_chosen_by(way, a, b, choice_of_moduli(fewer, a.device))[:fewer], digits[:fewer])


def median_seconds(watch: Stopwatch, run: Callable[[], object], runs: int = RUNS) -> float:
    """Of so many calls after one that is not timed."""
    run()
    return statistics.median(watch.time(run)[0] for _ in range(runs))
