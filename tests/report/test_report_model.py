"""Contract: the page needs nothing beside itself, its numbers are Python's, and its controls work in a real browser."""

import functools
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import chromium
import pytest

from gemmulate.cli import main
from gemmulate.model import ModelError, device_names, load_device, method, predict, sensitivity, thresholds
from gemmulate.model.device import Device
from gemmulate.model.kernels import KERNELS, Kernel
from gemmulate.model.published import cases, table
from gemmulate.report.model import CASES, catalogue, model_page

BROWSER = chromium.find()
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser on PATH ({', '.join(chromium.NAMES)}); apt-get install chromium"
)


CALIBRATED = """
name = "a device that was calibrated"
kind = "gpu"
fp64 = {{ value = 2e12, unit = "FLOP/s", source = "made up", status = "measured" }}
memory = {two} {{ value = 1.5e12, unit = "B/s", source = "made up", status = "measured" }}]
int8 = {{ value = 3e14, unit = "OP/s", source = "made up", status = "measured" }}
int32 = {{ value = 2e13, unit = "OP/s", source = "made up", status = "measured" }}
call_overhead = {{ value = 4e-6, unit = "s", source = "made up", status = "measured" }}
emulation_overhead = {{ value = 9e-6, unit = "s", source = "made up", status = "measured" }}
c_q = [{{ value = 11, unit = "1", source = "made up", status = "measured" }},
  {{ value = 14, unit = "1", source = "made up", status = "measured" }}]
c_rec = [{{ value = 5, unit = "1", source = "made up", status = "measured" }},
  {{ value = 4, unit = "1", source = "made up", status = "measured" }}]
""".format(two='[{ value = 1.8e12, unit = "B/s", source = "made up", status = "measured" },')


@functools.cache
def calibrated() -> Device:
    """A device that brings costs and overhead of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibrated.toml"
        path.write_text(CALIBRATED)
        return load_device(path)


def made(name: str, sizes: dict[str, Any]) -> Kernel:
    return KERNELS[name](**sizes)


def test_the_rows_are_those_of_the_comparison() -> None:
    ours = {label: made(kernel, sizes) for label, kernel, sizes in CASES}
    assert ours == {case.label: case.kernel for case in cases()}


class Tags(HTMLParser):
    """Open tags with their attributes, and whether every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in ("meta", "input", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "evil.toml"
    text = '{ value = 1, unit = "TFLOP/s", source = "</script><b>&", status = "inferred" }'
    path.write_text(f'name = "</script><img src=x>"\nfp64 = {text}\nmemory = {text.replace("TFLOP", "TB")}\n')
    page = model_page(catalogue([load_device(path)]), selected="evil")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {"img", "link", "iframe", "object", "base", "b"} & {tag for tag, _ in tags.seen}
    assert not any({"src", "href", "srcset", "action"} & set(attributes) for _, attributes in tags.seen)
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)
    for device in catalogue():
        for values in device.figures.values():
            for figure in values:
                assert figure.source.replace("&", "&amp;") in page
    with pytest.raises(ModelError, match="nothing"):
        model_page(catalogue(), selected="nothing")
    with pytest.raises(ModelError, match="'b300'"):
        model_page([load_device("b300"), load_device("b300")])


def test_the_static_table_is_the_commands() -> None:
    page = model_page(catalogue(), selected="b300")
    body = page[page.index("The published comparison") :]
    for row in table(load_device("b300"), c_q=6.0):
        cells = [row["kernel"], f"{row['flop_per_input']:.3g}", f"{row['three_term']:.3g}", row["published_three_term"]]
        assert "".join(f"<td>{cell}</td>" for cell in cells) in body
        assert f"<td>{row['four_term']:.3g}</td><td>{row['published_four_term']}</td>" in body


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.html"
    for arguments, status, part in (
        (["-o", str(path)], 0, "12 devices"),
        (["-o", str(path), "--device", "host", "--json"], 0, '"host"'),
        (["-o", str(tmp_path / "out.txt")], 2, ".html"),
        (["-o", str(tmp_path / "no" / "out.html")], 2, "does not exist"),
        (["-o", str(path), "--device", "b3"], 2, "b300"),
        ([], 2, "--output"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["report", *arguments])
        out, err = capsys.readouterr()
        assert stop.value.code == status, err
        assert part.replace('"host"', "default") in out + err
    assert path.read_text().startswith("<!doctype html>")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    assert BROWSER is not None
    folder = tmp_path_factory.mktemp("chromium")
    path = folder / "report.html"
    path.write_text(model_page([*catalogue(), calibrated()]))
    found = chromium.Browser(BROWSER, folder / "profile")
    try:
        found.open(path)
        yield found
    finally:
        found.close()


def python_answer(q: dict[str, Any]) -> Any:
    """What Python says to the question that the page is asked; None where it refuses."""
    try:
        device = calibrated() if q["device"] == "calibrated" else load_device(q["device"])
        kernel = made(q["kernel"], q["sizes"])
        keys = ("r", "c_q", "composition", "pipeline", "precomputed")
        how = method(q["scheme"], **{key: q[key] for key in keys})
        found = predict(device, kernel, how)
    except ModelError:
        return None
    swings = [[s.quantity, s.low, s.high, s.speedup_low, s.speedup_high] for s in sensitivity(device, kernel, how)]
    limits = None
    if device.nominal().int32 is not None and q["c_q"]:
        t = thresholds(device, r=how.r, c_q=q["c_q"], flop_per_input=kernel.flop_per_input)
        limits = [
            t.oi_star_flop_per_byte, t.conversion_roof_bytes_per_s, t.break_even_c_q, t.memory_roof_c_q,
        ]  # fmt: skip
    numbers = [found.native_s, found.emulated_s, found.speedup, *found.speedup_range, *found.terms.values()]
    return {"numbers": numbers, "bound": found.bound, "swings": swings, "limits": limits}


ASK = """(questions => { const DATA = JSON.parse(document.getElementById("data").textContent);
return questions.map(q => { try {
  const device = DATA.devices.find(d => d.key === q.device), kernel = model.kernel(q.kernel, q.sizes);
  const how = model.method(DATA, q), p = model.predict(device, kernel, how);
  const swings = model.sensitivity(device, kernel, how).map(s => [s.quantity, s.low, s.high, ...s.speedups]);
  let limits = null;
  if (model.at(device).int32 !== undefined && q.c_q) {
    const t = model.thresholds(device, how.r, q.c_q, model.flopPerInput(kernel));
    limits = [t.oiStar, t.roof, t.breakEven, t.memoryRoof];
  }
  const terms = Object.values(p.terms);
  return { numbers: [p.native, p.emulated, p.speedup, ...p.range, ...terms], bound: p.bound, swings, limits };
} catch (error) { if (error instanceof model.ModelError) return null; throw error; } }); })"""


@needs_browser
def test_the_pages_numbers_are_pythons(browser: chromium.Browser) -> None:
    """Every device, kernel, scheme and composition, at r and c_q of several kinds: number by number."""
    kernels = [
        ("gemm", {"m": 300, "n": 70, "k": 9000}), ("gemv", {"m": 4000, "n": 3000, "rhs": 3}),
        ("spmv", {"nnz": 10**6, "convert": "bytes"}), ("spmv", {"nnz": 10**6, "convert": "values"}),
        ("stencil7", {"points": 10**6}), ("gemm", {"m": 8192, "n": 8192, "k": 8192}),
        ("gemv", {"m": 0, "n": 1, "rhs": 1}),
    ]  # fmt: skip
    schemes = ("residues-int8", "residues-fp8", "residues-fp4", "slices-int8")
    costs = itertools.cycle([(None, None), (12, 6.0), (7, 0.5), (15, 14.0), (None, 2.5), (3, None), (0, 6.0)])
    compositions = ("published", "three_term", "shared_pipe", "serial")
    # Nine ways and seven costs: no way meets the same cost, kernel or scheme each time.
    ways = itertools.cycle(
        [*((c, "fused", p) for c in compositions for p in (False, True)), ("published", "staged", False)]
    )
    questions = []
    for device, (kernel, sizes), scheme in itertools.product((*device_names(), "calibrated"), kernels, schemes):
        (r, c_q), (composition, pipeline, precomputed) = next(costs), next(ways)
        questions.append(
            {"device": device, "kernel": kernel, "sizes": sizes, "scheme": scheme, "r": r, "c_q": c_q,
             "composition": composition, "pipeline": pipeline, "precomputed": precomputed}
        )  # fmt: skip
    for device, scheme, precomputed in itertools.product(("b300", "calibrated"), schemes, (False, True)):
        questions.append(
            {"device": device, "kernel": "gemm", "sizes": {"m": 8192, "n": 4096, "k": 2048}, "scheme": scheme,
             "r": None, "c_q": None, "composition": "published", "pipeline": "staged", "precomputed": precomputed}
        )  # fmt: skip
    answers = browser.evaluate(f"{ASK}({json.dumps(questions)})")
    answered = 0
    for question, answer in zip(questions, answers, strict=True):
        expected = python_answer(question)
        if expected is None or answer is None:
            assert expected == answer, question
            continue
        answered += 1
        # The same operations in float64; sums may be taken in another order.
        assert answer["numbers"] == pytest.approx(expected["numbers"], rel=1e-13), question
        assert answer["bound"] == expected["bound"], question
        assert answer["limits"] == (expected["limits"] and pytest.approx(expected["limits"], rel=1e-13))
        mine, theirs = (sorted(one["swings"], key=lambda s: s[0]) for one in (answer, expected))
        assert [s[0] for s in mine] == [s[0] for s in theirs], question
        for ours, other in zip(mine, theirs, strict=True):
            assert ours[1:] == pytest.approx(other[1:], rel=1e-13)
    assert answered > 120


SET = """((id, value) => { const e = document.getElementById(id);
if (e.type === "checkbox") e.checked = value; else e.value = value;
e.dispatchEvent(new Event("change", { bubbles: true })); })"""


@pytest.fixture
def choose(browser: chromium.Browser) -> Callable[..., str]:
    """Set controls as a user does and return the answer's text."""

    def call(**controls: Any) -> str:
        for name, value in controls.items():
            browser.evaluate(f"{SET}({json.dumps(name)}, {json.dumps(value)})")
        return str(browser.evaluate('document.getElementById("answer").innerText'))

    return call


def shown(browser: chromium.Browser) -> float:
    return float(browser.evaluate('document.getElementById("speedup").dataset.value'))


@needs_browser
def test_controls(browser: chromium.Browser, choose: Callable[..., str]) -> None:
    """The published figures appear when their device, kernel, r and c_q are chosen."""
    choose(device="b300", kernel="gemv", scheme="residues-fp8", r=12, c_q=6)
    assert round(shown(browser), 2) == 0.44
    choose(rhs=2)
    assert round(shown(browser), 2) == 0.89
    assert "native FP64 wins" in choose(rhs=1)
    choose(precomputed=True)
    assert round(shown(browser), 2) == 0.41
    choose(precomputed=False, composition="three_term")
    assert round(shown(browser), 1) == 1.5
    choose(composition="published", kernel="stencil7")
    assert round(shown(browser), 2) == 1.78
    assert "emulation pays" in choose()
    assert "–" in choose(spread=True), "c_q from 6 to 15: a range"
    choose(spread=False, c_q=12)
    assert shown(browser) == pytest.approx(0.89, abs=0.005), "twice the cost of conversion"
    choose(c_q=6, kernel="gemm", size=16384)
    assert round(shown(browser)) == 104
    assert "no fp8 rate" in choose(device="a100")
    assert browser.evaluate('document.getElementById("terms").children.length') == 0, "no stale bars beside a refusal"
    choose(device="b300", kernel="spmv")
    assert browser.evaluate('document.getElementById("size").value') == "10000000"
    assert round(shown(browser), 1) == 0.3
    assert "size" in choose(size=0) or "nnz = 0" in choose(size=0)
    assert "nnz" in choose(size="")
    choose(size=1000)
    labels = browser.evaluate('[...document.querySelectorAll("#terms text")].map((text) => text.textContent)')
    assert labels[::2] == ["T_mma", "T_mem", "T_dec", "T_rec"]
    for chart in ("roofline", "terms", "tornado"):
        assert browser.evaluate(f'document.querySelectorAll("#{chart} svg").length') == 1
    choose(kernel="gemm", scheme="residues-int8", r=15, c_q=6, pipeline="staged", size=4096)
    how = method("residues-int8", r=15, c_q=6, pipeline="staged")
    staged = predict(load_device("b300"), made("gemm", {"m": 4096, "n": 4096, "k": 4096}), how)
    assert shown(browser) == pytest.approx(staged.speedup, rel=1e-13)
    assert browser.evaluate('document.getElementById("composition").disabled')
    assert staged.stages is not None
    labels = browser.evaluate('[...document.querySelectorAll("#terms text")].map((text) => text.textContent)')
    assert labels[::2] == list(staged.stages), "the bars are the stages that add up to the time"
    choose(kernel="gemv")
    assert browser.evaluate('document.getElementById("pipeline").disabled'), "stages are for GEMM"
    choose(pipeline="fused", scheme="residues-fp8", r=12)
    assert "OI* 0.563" in browser.evaluate('document.getElementById("roofline").textContent')


@needs_browser
def test_a_narrow_window_scrolls_tables_alone(browser: chromium.Browser) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    try:
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")


@needs_browser
def test_the_matrix_is_pythons(browser: chromium.Browser, choose: Callable[..., str]) -> None:
    choose(scheme="residues-int8", r=15, c_q=14)
    rows = browser.evaluate(
        '[...document.querySelectorAll("#matrix tbody tr")].map(r => [...r.cells].map(c => c.dataset.value ?? null))'
    )
    devices = [*(load_device(name) for name in device_names()), calibrated()]
    assert len(rows) == len(devices)
    for device, row in zip(devices, rows, strict=True):
        for case, value in zip(cases(), row[1:], strict=True):
            try:
                expected = predict(device, case.kernel, method("residues-int8", r=15, c_q=14)).speedup
            except ModelError:
                assert value is None
                continue
            assert float(value) == pytest.approx(expected, rel=1e-13)


@needs_browser
def test_no_complaints_and_no_network(browser: chromium.Browser, choose: Callable[..., str]) -> None:
    for device, kernel, scheme in itertools.product(
        device_names(), KERNELS, ("residues-int8", "residues-fp8", "residues-fp4", "slices-int8")
    ):
        choose(device=device, kernel=kernel, scheme=scheme)
    assert browser.complaints() == []
    assert {url.partition(":")[0] for url in browser.requested()} == {"file"}
    assert len(browser.requested()) == 1


@needs_browser
def test_it_prints(browser: chromium.Browser, choose: Callable[..., str]) -> None:
    """On paper: black on white, whole tables, several pages of PDF."""
    choose(device="b300", kernel="gemm", scheme="residues-fp8", r=12, c_q=6)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        style = browser.evaluate(
            "(s => [s.color, s.backgroundColor])(getComputedStyle(document.body)).concat("
            'getComputedStyle(document.querySelector(".scroll")).overflowX)'
        )
        assert style == ["rgb(0, 0, 0)", "rgb(255, 255, 255)", "visible"]
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")
    import base64

    pdf = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page[^s]", pdf)) >= 3
