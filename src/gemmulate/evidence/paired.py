"""`compare`: is B faster than A? For Python callables, CUDA callables and commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemmulate.evidence.comparison import Comparison, Progress, Settings, run
from gemmulate.evidence.cuda import CudaFunction
from gemmulate.evidence.subjects import CUDA_LIBRARIES, Command, Function, Subject, code_function, namespace_of


def compare(
    f: Callable[[], Any],
    g: Callable[[], Any],
    *,
    pairs: int | None = None,
    warmup: int = 3,
    seed: int | None = None,
    timer: str = "wall",
    flush_l2: bool = False,
    floor_s: float | None = None,
    same_output: bool = False,
    calibrate: bool = False,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Decide whether g (B) is faster than, slower than or the same as f (A), both callables without arguments.

    pairs: how many A/B pairs (1…2000); None adds pairs until the interval is narrow enough. warmup: untimed calls of
    each. seed: of the order; drawn and recorded when None. timer: "wall"; "cpu" for the processor time of all threads;
    "torch" or "cupy" for CUDA events, which alone know flush_l2 (not run on a GPU, only with a simulated library).
    floor_s: seconds that no run can beat. same_output: results that differ, or that cannot be compared, leave the
    verdict undecided. calibrate: compare f with itself first. store: JSON-lines file that the record is appended to.
    progress: called with (runs done, runs planned).

    The intervals are exact for independent symmetric differences; the verdict is about this process on this machine.
    Raises ValueError for arguments out of range, TypeError for those of a wrong type, EngineUnavailable for a timer
    that cannot run here, and whatever f and g raise. Source: Hodges and Lehmann (1963) for the interval,
    Wilcoxon (1945) for its confidence.

    >>> compare(lambda: sum(range(1_000)), lambda: sum(range(100_000)), pairs=20, seed=1).verdict
    'slower'
    """
    for name, side in (("f", f), ("g", g)):
        if not callable(side):
            raise TypeError(f"{name} = {side!r} is not callable; give a function without arguments")
    path = None if store is None else str(store)
    settings = Settings(pairs, warmup, seed, timer, floor_s, same_output, calibrate, path)
    a: Subject
    b: Subject
    if timer in CUDA_LIBRARIES:
        a = CudaFunction("A", f, library=timer, flush_l2=flush_l2)
        b = CudaFunction("B", g, library=timer, flush_l2=flush_l2)
    else:
        if flush_l2:
            raise ValueError("flush_l2 needs a CUDA timer; use timer='torch' or timer='cupy'")
        a, b = Function("A", f, timer), Function("B", g, timer)
    return run(a, b, settings, one_run_per_sample=timer in CUDA_LIBRARIES, progress=progress)


def compare_commands(
    a: str, b: str, settings: Settings | None = None, *, timeout_s: float = 60.0, progress: Progress | None = None
) -> Comparison:
    """`compare` for two command lines, run without a shell: the time of a whole process, its start included.

    settings: as the arguments of `compare`, by default with one untimed run; timeout_s: seconds that one run may take.
    The output compared is what the commands write to standard output. Raises SubjectError when a command cannot be
    started, fails, or runs too long.

    >>> compare_commands("true", "sleep 0.2", Settings(pairs=8, warmup=1)).verdict
    'slower'
    """
    if not 0 < timeout_s < float("inf"):
        raise ValueError(f"timeout = {timeout_s} s is not positive and finite; give the seconds one run may take")
    settings = settings or Settings(warmup=1)
    first, second = (Command(name, command, timeout_s, settings.timer) for name, command in (("A", a), ("B", b)))
    return run(first, second, settings, one_run_per_sample=True, progress=progress)


def compare_code(
    a: str, b: str, settings: Settings | None = None, *, setup: str = "", progress: Progress | None = None
) -> Comparison:
    """`compare` for two Python expressions, evaluated in one process after the statements of `setup`.

    settings: as the arguments of `compare`. Raises SubjectError when setup or an expression is no Python or fails.

    >>> compare_code("sum(x)", "sum(x[:100])", Settings(pairs=20), setup="x = list(range(50_000))").verdict
    'faster'
    """
    settings = settings or Settings()
    namespace = namespace_of(setup)
    first, second = (code_function(name, code, namespace, settings.timer) for name, code in (("A", a), ("B", b)))
    return run(first, second, settings, progress=progress)
