"""`gemmulate screen`: a design note in, a verdict per candidate out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import cyclopts
import msgspec
from cyclopts import Parameter

from gemmulate.cli.matmul import Json
from gemmulate.cli.output import check_target, examples, print_json, print_table, write_atomically

if TYPE_CHECKING:
    from gemmulate.screen import ScreenResult
    from gemmulate.screen.compiled import CompiledFunction
    from gemmulate.screen.measured import Measured

_VERDICTS = ("rejected", "undecided", "advanced")

_EXAMPLES = examples(
    ("gemmulate screen examples/vortex.toml", "verdicts, gates, scenarios and what is wrong in the note"),
    ("gemmulate screen note.toml --compiled NEW=ptxas.log:kernel", "projected registers held against compiled ones"),
    ("gemmulate screen note.toml --measured NEW=record.json --fail-on rejected", "with a measured comparison"),
)


def register(app: cyclopts.App) -> None:
    """Add `screen` to the application."""
    app.command(screen, help_epilogue=_EXAMPLES)


def screen(
    spec: Path,
    *,
    compiled: Annotated[list[str] | None, Parameter(negative="")] = None,
    measured: Annotated[list[str] | None, Parameter(negative="")] = None,
    fail_on: str = "",
    html: Path | None = None,
    as_json: Json = False,
) -> int:
    """Screen the candidates of a design note on paper.

    Exit status 0 when the screen ran, 1 when a candidate has a verdict named by --fail-on.

    Parameters
    ----------
    spec
        TOML file with the baseline, the candidates, gates and scenarios.
    compiled
        NAME=FILE or NAME=FILE:FUNCTION: a ptxas log or cuobjdump listing that holds the kernel of a candidate.
    measured
        NAME=FILE: what `gemmulate compare --json` wrote with the candidate as B, or an evidence store (last record).
    fail_on
        Verdicts that make the exit status 1, separated by commas: rejected, undecided, advanced.
    html
        Write a self-contained page with the interval chart to this file.
    """
    from gemmulate.screen import screen as run

    unwanted = _verdicts(fail_on)
    if html is not None:
        check_target(html)
    result = run(spec, _compiled(compiled or []), _measured(measured or []))
    if html is not None:
        from gemmulate.report.screening import page, screen_section

        with write_atomically(html) as file:
            file.write(page("Screening", [screen_section(result)]).encode())
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        _print(result)
    return int(any(candidate.verdict in unwanted for candidate in result.candidates.values()))


def _compiled(entries: list[str]) -> dict[str, "CompiledFunction"]:
    from gemmulate.screen.compiled import choose, read_compiled

    found = {}
    for entry in entries:
        name, place = _split("--compiled", entry, "NAME=FILE or NAME=FILE:FUNCTION")
        file, function = _file_and_function(place)
        found[name] = choose(read_compiled(file), function, place)
    return found


def _file_and_function(place: str) -> tuple[str, str]:
    """FILE or FILE:FUNCTION. Both may hold colons (C++ names do): the longest part that is a file is the file."""
    parts = place.split(":")
    for length in range(len(parts), 0, -1):
        file = ":".join(parts[:length])
        if file and Path(file).exists():
            return file, ":".join(parts[length:])
    file, _, function = place.rpartition(":")
    return (file, function) if file else (place, "")


def _measured(entries: list[str]) -> dict[str, "Measured"]:
    from gemmulate.screen.measured import read_measured

    pairs = (_split("--measured", entry, "NAME=FILE") for entry in entries)
    return {name: read_measured(file) for name, file in pairs}


def _split(option: str, entry: str, form: str) -> tuple[str, str]:
    name, _, place = entry.partition("=")
    if not name or not place:
        raise ValueError(f"{option} {entry!r} is not {form}")
    return name, place


def _verdicts(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _VERDICTS:
            raise ValueError(f"--fail-on {name!r} is unknown; use {', '.join(_VERDICTS)}")
    return names


def _print(result: "ScreenResult") -> None:
    print(result.title)
    print(f"baseline {result.baseline_ms:g} ms ({result.baseline_boundary})")
    if result.floors_ms:
        print("floors " + ", ".join(f"{name} {time:.4g} ms" for name, time in result.floors_ms.items()))
    if result.recoverable_share is not None:
        print(f"recoverable share of the no-eligible region {result.recoverable_share:.1%}")
    print()
    rows = []
    for name, candidate in result.candidates.items():
        rows.append(
            (
                name,
                f"{candidate.mainloop_ms[0]:.3g}–{candidate.mainloop_ms[1]:.3g}",
                f"{candidate.complete_ms[0]:.3g}–{candidate.complete_ms[1]:.3g}",
                {True: "yes", False: "no", None: "unknown"}[candidate.launchable],
                f"{candidate.verdict} ({candidate.state})",
            )
        )
    print_table(("candidate", "main loop ms", "complete ms", "launches", "verdict"), rows)
    for name, candidate in result.candidates.items():
        print(f"\n{name}: {candidate.verdict}")
        for reason in candidate.reasons:
            print(f"  - {reason}")
        for gate in candidate.gates:
            print(f"  gate {gate.name}: {gate.outcome} ({gate.arithmetic})")
        for row in candidate.reconciled:
            mark = {True: "holds", False: "does not hold", None: "unknown"}[row.holds]
            print(f"  {row.item}: projected {row.projected}, compiled {row.compiled}: {mark}")
        for target, ends in candidate.breakeven_handoff_ms.items():
            print(f"  break-even handoff against {target}: {ends[0]:.4g} ms, at best {ends[1]:.4g} ms")
        for moved in candidate.sensitivity:
            print(
                f"  {moved.input} {moved.low:g}…{moved.high:g} {moved.unit}: {moved.time_at_low_ms:.4g}…"
                f"{moved.time_at_high_ms:.4g} ms (swing {moved.swing_ms:.3g})"
            )
    if result.scenarios:
        print()
        answer = {True: "yes", False: "no", None: "unknown"}
        print_table(
            ("speed-up", "total s", "reachable"),
            [(f"{case.speedup:g}×", f"{case.sampling_s:.2f}", answer[case.reachable]) for case in result.scenarios],
        )
    if result.findings:
        print("\nfindings")
        for finding in result.findings:
            print(f"  {finding.kind}: {finding.text} [{finding.arithmetic}]")
