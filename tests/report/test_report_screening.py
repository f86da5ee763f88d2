"""Contract: the page is one well-formed file without script or network, and its marks stand where the figures say."""

import re
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from gemmulate.evidence import Comparison, compare
from gemmulate.report import svg
from gemmulate.report.screening import (
    comparison_section,
    interval_chart,
    page,
    paired_differences,
    screen_section,
    table,
    time_line,
)
from gemmulate.screen import screen

Run = Callable[..., "subprocess.CompletedProcess[str]"]
EXAMPLES = Path(__file__).parents[2] / "examples"
NAMESPACE = "{http://www.w3.org/2000/svg}"


def parsed(fragment: str) -> ElementTree.Element:
    return ElementTree.fromstring(fragment)


def comparison(ratio: float, drift: float = 0.0, pairs: int = 30) -> Comparison:
    """A real record whose timings are replaced by known ones."""
    result = compare(lambda: None, lambda: None, pairs=pairs, warmup=0, seed=1)
    times = 1e-3 * np.linspace(1, 1 + drift, 2 * pairs)
    a = [time for letter, time in zip(result.order, times, strict=True) if letter == "A"]
    b = [time * ratio for letter, time in zip(result.order, times, strict=True) if letter == "B"]
    return msgspec.structs.replace(
        result, samples={"a": a, "b": b}, ratio=ratio, ratio_interval=(ratio * 0.99, ratio * 1.01)
    )


def test_the_bars_stand_at_their_figures() -> None:
    result = screen(EXAMPLES / "vortex.toml")
    chart = parsed(interval_chart(result))
    ticks = [element for element in chart.iter(f"{NAMESPACE}text") if element.get("text-anchor") == "middle"]
    scale = [(float(tick.get("x", "")), float(tick.text or "")) for tick in ticks[:-1]]
    (x0, v0), (x1, v1) = scale[0], scale[-1]

    def value(x: float) -> float:
        return v0 + (x - x0) / (x1 - x0) * (v1 - v0)

    bars = list(chart.iter(f"{NAMESPACE}rect"))
    assert len(bars) == 6
    found = [
        (value(float(bar.get("x", ""))), value(float(bar.get("x", "")) + float(bar.get("width", "")))) for bar in bars
    ]
    expected = [ends for one in result.candidates.values() for ends in (one.mainloop_ms, one.feasible_mainloop_ms)]
    np.testing.assert_allclose(found, expected, atol=0.01)
    upright = [
        value(float(line.get("x1", ""))) for line in chart.iter(f"{NAMESPACE}line") if line.get("stroke") == svg.ORANGE
    ]
    np.testing.assert_allclose(sorted(upright), [179.097, 220, 237.089], atol=0.01)


def test_a_drift_shows_as_a_slope_of_both_sides() -> None:
    chart = parsed(time_line(comparison(0.9, drift=0.5)))
    dots = [dot for dot in chart.iter(f"{NAMESPACE}circle") if dot.get("r") == "2.5"]
    assert len(dots) == 60
    for colour in (svg.ORANGE, svg.BLUE):
        heights = [float(dot.get("cy", "")) for dot in dots if dot.get("fill") == colour]
        assert len(heights) == 30
        assert all(later <= earlier for earlier, later in pairwise(heights))


def test_paired_differences_lie_on_their_side_of_zero() -> None:
    chart = parsed(paired_differences(comparison(0.8)))
    (zero,) = [line for line in chart.iter(f"{NAMESPACE}line") if line.get("stroke-dasharray")]
    heights = [float(dot.get("cy", "")) for dot in chart.iter(f"{NAMESPACE}circle")]
    assert len(heights) == 30
    assert all(height > float(zero.get("y1", "")) for height in heights)


@pytest.mark.parametrize("pairs", [1, 7])
def test_few_pairs_give_a_figure_too(pairs: int) -> None:
    result = compare(lambda: None, lambda: None, pairs=pairs, warmup=0)
    for fragment in (paired_differences(result), time_line(result)):
        assert not re.search(r"nan|inf", fragment)
        parsed(fragment)


def test_the_page_stands_alone(tmp_path: Path, run_cli: Run) -> None:
    for name in ("vortex.toml", "int8_kernels.toml"):
        file = tmp_path / f"{name}.html"
        done = run_cli("screen", EXAMPLES / name, "--html", file)
        assert done.returncode == 0, done.stderr
        text = file.read_text(encoding="utf-8")
        assert text.startswith("<!doctype html>")
        assert "<script" not in text
        assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    file = tmp_path / "comparison.html"
    done = run_cli("compare", "--a", "true", "--b", "true", "--pairs", 7, "--no-store", "--html", file)
    assert done.returncode == 0, done.stderr
    assert file.read_text(encoding="utf-8").count("<svg") == 2
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".html"] * 3


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path, run_cli: Run) -> None:
    done = run_cli("screen", EXAMPLES / "vortex.toml", "--html", tmp_path / "none" / "page.html")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_every_report_has_break_even_sensitivity_and_gates() -> None:
    result = screen(EXAMPLES / "vortex.toml")
    text = screen_section(result)
    parsed(f"<div>{text}</div>")
    for name, one in result.candidates.items():
        part = text[text.index(f"<h3>{name}") :].partition("</table><h3>")[0]
        assert [gate.name for gate in one.gates] == re.findall(r"<tr><td>([^<]*)</td><td>(?:pass|fail|unknown)<", part)
        assert all(f"<td>{item}</td>" in part for item in one.evidence_owed)
        assert "break-even handoff" in part
        for moved in one.sensitivity:
            assert f"<td>{moved.input}</td>" in part
    # By hand: h = 237.089 − 237.089·(1 − 0.6353·f) at f = 0.30 and 0.42.
    assert "<td>baseline</td><td>45.19</td><td>63.26</td>" in text


def test_a_long_name_stays_left_of_its_bar() -> None:
    result = screen(EXAMPLES / "vortex.toml")
    name = "a candidate with a name of many words"
    renamed = msgspec.structs.replace(result, candidates={name: result.candidates["VEA-A"]})
    assert "a candidate wi…" in interval_chart(renamed)
    assert f"<td>{name}</td>" in screen_section(renamed)


def test_percentiles_carry_their_intervals() -> None:
    text = comparison_section(compare(lambda: None, lambda: None, pairs=30, warmup=0))
    (row,) = re.findall(r"<tr><td>p50</td>(.*?)</tr>", text)
    assert re.findall(r"s, \[[^,]+, [^]]+\]", row)
    assert "not enough samples: 30 of 59" in text


def test_text_is_escaped() -> None:
    result = msgspec.structs.replace(screen(EXAMPLES / "vortex.toml"), title='<b>&"')
    section = screen_section(result)
    assert "<b>" not in section
    assert "&lt;b&gt;&amp;" in section
    assert "<i>" not in table(("<i>",), [("<i>",)])
    record = msgspec.structs.replace(comparison(1.0), subjects={"a": "<i>", "b": "&"})
    assert "<i>" not in comparison_section(record)
    assert "<i>" not in page("<i>", [])


def test_axis_ticks_are_round_and_inside() -> None:
    for low, high in ((0.0, 1.0), (173.8, 237.1), (-0.03, 0.02), (5.0, 5.0), (0.0, 0.0), (-4e-9, 7e-9)):
        axis = svg.Axis(low, high, 0, 100)
        ticks = axis.ticks()
        assert 3 <= len(ticks) <= 12
        assert all(axis.low - 1e-12 <= tick <= axis.high + 1e-12 for tick in ticks)
