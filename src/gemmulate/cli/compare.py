"""`gemmulate compare`: a paired measurement of two commands or two Python expressions, and a verdict."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts
import msgspec
from cyclopts import Parameter

from gemmulate.cli.matmul import Json
from gemmulate.cli.options import Count
from gemmulate.cli.output import check_target, examples, print_json, print_table, progress, write_atomically

if TYPE_CHECKING:
    from gemmulate.evidence import Comparison

_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_VERDICTS = ("faster", "slower", "same", "undecided")

_EXAMPLES = examples(
    ('gemmulate compare --a "./old" --b "./new" --pairs 60', "two commands, 60 runs each"),
    ('gemmulate compare --setup "x = list(range(10**4))" --a "py:sum(x)" --b "py:sum(x, 0)"', "two expressions"),
    (
        "gemmulate compare --a ./old --b ./new --fail-on slower,undecided",
        "exit status 1 unless B is faster or the same",
    ),
)


def register(app: cyclopts.App) -> None:
    """Add `compare` to the application."""
    app.command(compare, help_epilogue=_EXAMPLES)


def compare(
    *,
    a: str,
    b: str,
    pairs: Count = None,
    setup: str = "",
    warmup: Count = None,
    seed: Count = None,
    timer: str = "wall",
    timeout: float = 60.0,
    floor: float | None = None,
    same_output: Annotated[bool, Parameter(negative="")] = False,
    calibrate: Annotated[bool, Parameter(negative="")] = False,
    fail_on: str = "",
    store: Path | None = None,
    no_store: Annotated[bool, Parameter(negative="")] = False,
    html: Path | None = None,
    as_json: Json = False,
) -> int:
    """Decide whether B is faster than A by paired ABBA runs.

    A and B are commands, run without a shell, or Python expressions with the prefix py:, evaluated in one process.
    Exit status 0 when the comparison ran, 1 when its verdict is one that --fail-on names.

    Parameters
    ----------
    a
        The side to compare with: a command, or py:EXPRESSION.
    b
        The candidate: a command, or py:EXPRESSION.
    pairs
        A/B pairs, 1 to 2000; when not given, pairs are added until the interval is narrow enough.
    setup
        Python statements run once before py: expressions.
    warmup
        Untimed runs of each side; 1 for commands, 3 for expressions when not given.
    seed
        Seed of the order; drawn and recorded when not given.
    timer
        wall, or cpu for the processor time of all threads, steadier on a machine that others use too.
    timeout
        Seconds that one run of a command may take.
    floor
        Seconds that no run can beat; a shorter time makes the comparison undecided.
    same_output
        Demand equal outputs: the verdict is undecided when they differ.
    calibrate
        Compare A with itself first; when that shows a difference, the verdict is undecided.
    fail_on
        Verdicts that make the exit status 1, separated by commas: faster, slower, same, undecided.
    store
        JSON-lines file that the record is appended to; by default evidence.jsonl in the user's data folder.
    no_store
        Keep no record.
    html
        Write a self-contained page with the paired differences and the time line to this file.
    """
    from gemmulate.evidence import Settings, compare_code, compare_commands

    unwanted = _verdicts(fail_on)
    if html is not None:
        check_target(html)
    code_a, code_b = a.startswith("py:"), b.startswith("py:")
    if code_a != code_b:
        raise ValueError("--a and --b must both be commands or both be py: expressions; a process start is not a call")
    if setup and not code_a:
        raise ValueError("--setup belongs to py: expressions; put a command's preparation into the command")
    settings = Settings(
        pairs=pairs,
        warmup=warmup if warmup is not None else 3 if code_a else 1,
        seed=seed,
        timer=timer,
        floor_s=floor,
        same_output=same_output,
        calibrate=calibrate,
        store=None if no_store else str(_store(store)),
    )
    with progress("runs") as report:
        if code_a:
            a, b = a.removeprefix("py:"), b.removeprefix("py:")
            result = compare_code(a, b, settings, setup=setup, progress=report)
        else:
            result = compare_commands(a, b, settings, timeout_s=timeout, progress=report)
    if html is not None:
        from gemmulate.report.screening import comparison_section, page

        with write_atomically(html) as file:
            file.write(page("Comparison", [comparison_section(result)]).encode())
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        _print(result)
    return int(result.verdict in unwanted)


def _verdicts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _VERDICTS:
            raise ValueError(f"--fail-on {name!r} is unknown; use {', '.join(_VERDICTS)}")
    return names


def _store(path: Path | None) -> Path:
    """The store asked for, or the one in the user's data folder."""
    if path is None:
        home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        path = Path(home) / "gemmulate" / "evidence.jsonl"
    return path


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print(result: "Comparison") -> None:
    print(f"B is {result.verdict} compared with A" if result.verdict != "undecided" else "undecided")
    print(f"  {result.reason}: {result.explanation}")
    if result.ratio is not None:
        interval = result.ratio_interval
        ends = "no interval yet" if interval is None else f"[{interval[0]:.4f}, {interval[1]:.4f}]"
        print(f"  time of B / time of A: {result.ratio:.4f} {ends} at {result.confidence:.0%} confidence")
    if result.sign_agreement is not None:
        print(
            f"  {_count(result.pairs, 'pair')}, {_count(result.units, result.unit)} counted, "
            f"{result.sign_agreement:.0%} point the same way; "
            f"drift over the run {result.drift:+.1%}; outliers kept: A {result.outliers['a']}, B {result.outliers['b']}"
        )
    if result.unit == "quiet pair":
        print("  many runs were disturbed: only quiet pairs count; a quieter machine or --timer cpu tells more")
    if result.outputs.equal is not None:
        print(f"  outputs {'are equal' if result.outputs.equal else 'differ'}")
    if result.calibration is not None:
        print(f"  A against A: {result.calibration.verdict} ({result.calibration.reason})")
    rows = []
    for name in result.percentiles["a"]:
        cells = [name]
        for side in "ab":
            one = result.percentiles[side][name]
            if one.value is None or one.interval is None:
                cells.append(one.note)
            else:
                unit, factor = next((u, f) for u, f in _UNITS if one.value >= f)
                value, low, high = (seconds / factor for seconds in (one.value, *one.interval))
                cells.append(f"{value:.4g} [{low:.4g}, {high:.4g}] {unit}")
        rows.append(cells)
    print_table(("percentile", "A", "B"), rows)
