"""The screening page of the report: intervals with floors and gates, paired differences, and the run over time.

Each function returns a self-contained fragment; `page` joins fragments into one HTML file without script.
"""

import math
from collections.abc import Sequence
from html import escape
from typing import Final

import numpy as np

from gemmulate.evidence import Comparison
from gemmulate.report import svg
from gemmulate.screen import CandidateResult, ScreenResult

_STYLE: Final = (
    "body{font:16px/1.5 sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0}"
    "td,th{border-bottom:1px solid #ccc;padding:.2rem .6rem;text-align:left}"
    "svg{width:100%;height:auto;margin:1rem 0}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}}"
)
# Characters of 12 px that fit left of the bars.
_LABEL: Final = 15
_VERDICTS: Final = {True: "yes", False: "no", None: "unknown"}


def interval_chart(result: ScreenResult) -> str:
    """SVG of every candidate's main-loop interval in ms: light as claimed, dark as far as the floors leave it.

    Lines: the baseline (solid), floors (dashed) and the limits of main-loop gates (dotted). Floors further below the
    shortest interval than half of it are left out, for they bind nothing.
    """
    ends = [end for candidate in result.candidates.values() for end in candidate.mainloop_ms]
    floors = {name: value for name, value in result.floors_ms.items() if value > 0.5 * min(ends)}
    marks = [*floors.values(), *result.gate_limits_ms.values(), result.baseline_ms]
    low, high = min([*ends, *marks]), max([*ends, *marks])
    margin = 0.05 * (high - low)
    # The lines' names stand above the bars, one row each, so that near ones do not overlap.
    row, top = 34.0, 24.0 + 16 * len(marks)
    bottom = top + row * len(result.candidates)
    axis = svg.Axis(low - margin, high + margin, svg.LEFT, svg.WIDTH - svg.RIGHT)
    parts = []
    for index, (name, candidate) in enumerate(result.candidates.items()):
        y = top + row * index
        start, stop = (axis(end) for end in candidate.mainloop_ms)
        # Longer names would run into the bars; the table below has them whole.
        label = name if len(name) <= _LABEL else f"{name[: _LABEL - 1]}…"
        parts += [svg.text(4, y + 20, label), svg.rect(start, y + 8, stop - start, 16, fill=svg.BLUE, opacity=0.3)]
        if candidate.feasible_mainloop_ms is not None:
            start, stop = (axis(end) for end in candidate.feasible_mainloop_ms)
            parts.append(svg.rect(start, y + 8, stop - start, 16, fill=svg.BLUE))
    lines = [("baseline", result.baseline_ms, "")]
    lines += [(f"{name} floor", value, "6 3") for name, value in floors.items()]
    lines += [(f"gate: {name}", value, "2 3") for name, value in result.gate_limits_ms.items()]
    for index, (words, value, dash) in enumerate(lines):
        x, y = axis(value), 16 + 16.0 * index
        right = x > (axis.start + axis.end) / 2
        parts.append(svg.line(x, y + 4, x, bottom + 6, stroke=svg.ORANGE, dash=dash, width=1.5))
        parts.append(svg.text(x, y, f"{words} {value:.4g}", anchor="end" if right else "start", fill=svg.ORANGE))
    parts += svg.bottom_axis(axis, bottom + 6, "main loop, ms")
    return svg.figure(bottom + 50, f"Main-loop intervals: {result.title}", parts)


def paired_differences(comparison: Comparison) -> str:
    """SVG of B − A in percent of A for every pair in the order taken, with the centre and its interval.

    A point below zero is a pair in which B was faster.
    """
    percent = _pair_percent(comparison)
    shown = [0.0, *percent]
    centre = None if comparison.ratio is None else 100 * (comparison.ratio - 1)
    band = comparison.ratio_interval
    if band is not None:
        shown += [100 * (end - 1) for end in band]
    y_axis = svg.Axis(min(shown), max(shown), 250, 30)
    x_axis = svg.Axis(0, max(1, len(percent) - 1), svg.LEFT + 10, svg.WIDTH - svg.RIGHT)
    parts = []
    if band is not None:
        top, bottom = y_axis(100 * (band[1] - 1)), y_axis(100 * (band[0] - 1))
        parts.append(
            svg.rect(svg.LEFT, top, svg.WIDTH - svg.RIGHT - svg.LEFT, bottom - top, fill=svg.BLUE, opacity=0.2)
        )
    parts.append(svg.line(svg.LEFT, y_axis(0), svg.WIDTH - svg.RIGHT, y_axis(0), dash="6 3"))
    if centre is not None:
        parts.append(
            svg.line(svg.LEFT, y_axis(centre), svg.WIDTH - svg.RIGHT, y_axis(centre), stroke=svg.BLUE, width=1.5)
        )
    parts += [svg.dot(x_axis(index), y_axis(value), fill=svg.BLUE) for index, value in enumerate(percent)]
    parts += svg.left_axis(y_axis, svg.LEFT, "B − A, % of A")
    parts += svg.bottom_axis(x_axis, 256, "pair")
    return svg.figure(300, "Paired differences with the centre and its interval", parts)


def time_line(comparison: Comparison) -> str:
    """SVG of every timing in the order taken, A and B apart: a drift shows as a slope that both share."""
    sides = {"A": iter(comparison.samples["a"]), "B": iter(comparison.samples["b"])}
    times = [(letter, next(sides[letter])) for letter in comparison.order]
    longest = max((seconds for _, seconds in times), default=1.0)
    unit, factor = next(((unit, f) for unit, f in _UNITS if longest >= f), _UNITS[-1])
    y_axis = svg.Axis(min((s for _, s in times), default=0.0) / factor, longest / factor, 250, 30)
    x_axis = svg.Axis(0, max(1, len(times) - 1), svg.LEFT + 10, svg.WIDTH - svg.RIGHT)
    colours = {"A": svg.ORANGE, "B": svg.BLUE}
    parts = [
        svg.dot(x_axis(index), y_axis(seconds / factor), fill=colours[letter])
        for index, (letter, seconds) in enumerate(times)
    ]
    for index, (letter, colour) in enumerate(colours.items()):
        parts += [svg.dot(svg.WIDTH - 70 + 34 * index, 14, fill=colour, radius=4)]
        parts += [svg.text(svg.WIDTH - 62 + 34 * index, 18, letter)]
    parts += svg.left_axis(y_axis, svg.LEFT, f"time, {unit}")
    parts += svg.bottom_axis(x_axis, 256, f"run (drift over all runs {comparison.drift:+.1%})")
    return svg.figure(300, "Timings in the order taken", parts)


_UNITS: Final = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def screen_section(result: ScreenResult) -> str:
    """HTML of a whole screen: chart, verdicts with reasons, scenarios, findings, and what each candidate rests on."""
    parts = [f"<h2>{escape(result.title)}</h2>", interval_chart(result)]
    rows = [
        (
            name,
            *(f"{low:.3g}–{high:.3g}" for low, high in (one.mainloop_ms, one.complete_ms)),
            _VERDICTS[one.launchable],
            one.verdict,
            "; ".join(one.reasons),
        )
        for name, one in result.candidates.items()
    ]
    parts.append(table(("candidate", "main loop, ms", "complete, ms", "launches", "verdict", "reasons"), rows))
    if result.scenarios:
        cases = [
            (f"{case.speedup:g}×", f"{case.sampling_s:.2f}", _VERDICTS[case.reachable]) for case in result.scenarios
        ]
        parts.append(table(("speed-up", "total, s", "reachable"), cases))
    parts.append(table(("finding", "arithmetic"), [(one.text, one.arithmetic) for one in result.findings]))
    parts += [candidate_section(name, one) for name, one in result.candidates.items()]
    return "".join(parts)


def candidate_section(name: str, candidate: CandidateResult) -> str:
    """HTML of what one candidate rests on: gates, evidence owed, break-even handoff, sensitivity, compiled figures.

    What a candidate has nothing of is left out.
    """
    tables = (
        (("gate", "outcome", "arithmetic"), [(one.name, one.outcome, one.arithmetic) for one in candidate.gates]),
        (("evidence owed", "how to come by it"), list(candidate.evidence_owed.items())),
        (
            ("break-even handoff against", "at the smallest share recovered, ms", "at the largest, ms"),
            [(target, *(f"{end:.4g}" for end in ends)) for target, ends in candidate.breakeven_handoff_ms.items()],
        ),
        (
            ("input", "from … to", "main loop, ms", "swing, ms"),
            [
                (
                    one.input,
                    f"{one.low:g} … {one.high:g} {'' if one.unit == '1' else one.unit}".rstrip(),
                    f"{one.time_at_low_ms:.4g} … {one.time_at_high_ms:.4g}",
                    f"{one.swing_ms:.3g}",
                )
                for one in candidate.sensitivity
            ],
        ),
        (
            ("item", "projected", "compiled", "holds"),
            [(one.item, one.projected, one.compiled, _VERDICTS[one.holds]) for one in candidate.reconciled],
        ),
    )
    shown = [table(header, rows) for header, rows in tables if rows]
    return f"<h3>{escape(name)}: {escape(candidate.verdict)} ({escape(candidate.state)})</h3>{''.join(shown)}"


def comparison_section(comparison: Comparison) -> str:
    """HTML of a whole comparison: verdict, figures, percentiles, environment."""
    ratio = "" if comparison.ratio is None else f"time of B / time of A {comparison.ratio:.4f}"
    if comparison.ratio_interval is not None:
        low, high = comparison.ratio_interval
        ratio += f", [{low:.4f}, {high:.4f}] at {comparison.confidence:.0%} confidence"
    rows = []
    for name in comparison.percentiles["a"]:
        cells = [name]
        for side in "ab":
            one = comparison.percentiles[side][name]
            if one.value is None or one.interval is None:
                cells.append(one.note)
            else:
                cells.append(f"{one.value:.4g} s, [{one.interval[0]:.4g}, {one.interval[1]:.4g}]")
        rows.append(cells)
    return "".join(
        (
            f"<h2>B compared with A: {escape(comparison.verdict)}</h2>",
            f"<p>{escape(comparison.explanation)} ({escape(comparison.reason)}). {escape(ratio)}</p>",
            table(("side", "what"), [(side.upper(), words) for side, words in comparison.subjects.items()]),
            paired_differences(comparison),
            time_line(comparison),
            table(("percentile", "A", "B"), rows),
            table(("environment", ""), list(comparison.environment.items())),
        )
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table; every cell is text."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def page(title: str, sections: Sequence[str]) -> str:
    """One HTML file that needs nothing beside itself."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{''.join(sections)}</body></html>\n"
    )


def _pair_percent(comparison: Comparison) -> list[float]:
    a, b = (np.asarray(comparison.samples[side]) for side in "ab")
    # The i-th A and the i-th B of the order belong to one pair: every two letters hold one of each.
    return [100 * math.expm1(value) for value in np.log(b / a).tolist()]
