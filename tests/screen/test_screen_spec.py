"""Contract: a spec that breaks a rule is refused with file, line and key; nothing wrong is silently read."""

from pathlib import Path

import pytest

from gemmulate.screen import SpecError, load_spec, screen

NOTE = (Path(__file__).parents[2] / "examples" / "vortex.toml").read_text(encoding="utf-8")


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


def refuse(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "note.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(SpecError) as caught:
        screen(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    return message.removeprefix(str(file))


CHANGES = [
    # (text of the note, its replacement, words of the message)
    ("no_eligible = {", "no_eligable = {", ["baseline.no_eligable", "did you mean 'no_eligible'"]),
    ('value = 63.53, unit = "%", ', "value = 63.53, ", ["baseline.no_eligible", "unit is missing"]),
    ('value = 63.53, unit = "%"', 'value = 63.53, unit = "ms"', ["baseline.no_eligible", "does not measure ratio"]),
    ('value = 63.53, unit = "%"', 'value = 63.53, unit = "parsec"', ["baseline.no_eligible", "'parsec'"]),
    ('value = 63.53, unit = "%"', 'value = 163.53, unit = "%"', ["baseline.no_eligible", "above 100 %"]),
    ('value = 63.53, unit = "%"', 'value = nan, unit = "%"', ["baseline.no_eligible", "not a number"]),
    ('value = 63.53, unit = "%"', 'value = inf, unit = "%"', ["baseline.no_eligible", "not a number"]),
    ('value = 63.53, unit = "%"', 'value = -63.53, unit = "%"', ["baseline.no_eligible", "0 or more"]),
    ('value = 63.53, unit = "%"', 'value = "63", unit = "%"', ["baseline.no_eligible", "not a number"]),
    ('value = 63.53, unit = "%"', 'value = true, unit = "%"', ["baseline.no_eligible", "not a number"]),
    ('value = 63.53, unit = "%"', 'value = 63.53, uint = "%"', ["baseline.no_eligible.uint", "unknown key"]),
    (
        'no_eligible = { value = 63.53, unit = "%", status = "measured" }',
        'no_eligible = { value = 63.53, unit = "%", status = "projected" }',
        ["baseline.no_eligible", "'projected' may not stand here", "measured or compiled"],
    ),
    (
        'no_eligible = { value = 63.53, unit = "%", status = "measured" }',
        "no_eligible = 63.53",
        ["baseline.no_eligible", "63.53 is not {"],
    ),
    (
        'time = { value = 237.089, unit = "ms"',
        'time = { value = 0, unit = "ms"',
        ["baseline.time", "positive"],
    ),
    ("value = [30, 42]", "value = [42, 30]", ["candidates.VEA-B.recovered", "reversed"]),
    ("value = [30, 42]", "value = [30, 42, 50]", ["candidates.VEA-B.recovered", "[low, high]"]),
    ("value = [6, 15]", "value = [-6, 15]", ["candidates.VEA-B.handoff", "0 or more"]),
    ("[baseline]\n", "[[baseline]]\n", ["baseline", "is not a table"]),
    ('name = "bounded p95"', 'name = "byte equality"', ["gates[7].name", "taken"]),
    ('name = "bounded p95"', 'name = ""', ["gates[7].name", "empty"]),
    ('time = { value = 237.089,', 'time = { value = 237.1,', ["baseline.time", "boundary 'mainloop'"]),
    ("value = 320,", "value = 1056,", ["candidates.VEA-B.threads", "above 1024"]),
    ('value = 176, unit', 'value = 256, unit', ["candidates.VEA-B.registers", "above 255"]),
    ('no_eligible = { value = 63.53, unit = "%", status = "measured" }', "",
     ["candidates.VEA-A.recovered", "needs the baseline's no_eligible"]),
    ("value = 320,", "value = 320.5,", ["candidates.VEA-B.threads", "whole number"]),
    ("value = 320,", "value = [320, 384],", ["candidates.VEA-B.threads", "is an interval"]),
    ('value = 176, unit = "register/thread", status = "projected"', 'value = 176, unit = "register/thread", status = '
     '"measured"', ["candidates.VEA-B.registers", "'measured' may not stand here"]),
    ('status = "target" }\n\n[[gates]]\nname = "projected', 'status = "hoped" }\n\n[[gates]]\nname = "projected',
     ["gates[2].limit.status", "'hoped' is unknown"]),
    ('applies_to = ["VEA-B"]', 'applies_to = ["VEA-D"]', ["gates[8].applies_to", "'VEA-D' is unknown"]),
    ('kind = "residency"', 'kind = "resident"', ["gates[3].kind", "'resident' is unknown"]),
    ('boundary = "full"\n', 'boundary = "fulll"\n', ["scenarios.boundary", "'fulll' is unknown"]),
    ('arch = "12.0"', 'arch = "13.0"', ["device.arch", "not in the table"]),
    ("schema = 1", "schema = 2", ["schema", "schema 2 is unknown"]),
    ("schema = 1", "", ["'schema' is missing"]),
    ("[baseline]", "[base]", ["base", "did you mean 'baseline'"]),
    ('source = "Vortex design note"', "", ["source is missing"]),
    ('value = 1.15, unit = "x"', 'value = 0, unit = "x"', ["scenarios.cases[1].speedup", "positive"]),
    ('value = 159.3, unit = "s"', 'value = 1590, unit = "s"', ["scenarios.part", "exceeds the total"]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "words"), CHANGES)
def test_one_wrong_figure_is_named_with_its_line(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in NOTE
    message = refuse(tmp_path, NOTE.replace(old, new, 1))
    for word in words:
        assert word in message
    line = int(message.split(":")[1])
    start = line_of(NOTE, old)
    if "missing" not in message and "needs the" not in message:
        assert start <= line <= start + old.count("\n"), message


def test_the_line_survives_comments_strings_and_arrays(tmp_path: Path) -> None:
    head = '# [baseline]\nschema = 1\ntitle = """\n[baseline]\nno_eligible = 1\n"""\n\n'
    rest = NOTE[NOTE.index("[defaults]") :].replace("value = [30, 42]", "value = [\n  42, # [x]\n  30\n]", 1)
    message = refuse(tmp_path, head + rest)
    assert int(message.split(":")[1]) == line_of(head + rest, "recovered = { value = [\n")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "'schema' is missing"),
        (b"\x00\x01\x02", "not TOML"),
        (b"\xff\xfes\x00c\x00h\x00", "no UTF-8 text"),
        (NOTE.encode("utf-16"), "no UTF-8 text"),
        (NOTE[:1010].encode(), "not TOML"),
        (NOTE[: NOTE.index("[baseline]")].encode(), "missing"),
        (b"a = " + b"[" * 50_000, "not TOML"),
        (b"#" * 1_000_001, "larger than 1,000,000 bytes"),
        (b"schema = 1\nschema = 1\n", "not TOML"),
        (b"schema = " + b"9" * 500, "schema"),
    ],
    ids=["empty", "binary", "utf16-cut", "utf16", "truncated", "half", "deep", "large", "twice", "huge-integer"],
)
def test_what_is_no_spec(tmp_path: Path, raw: bytes, words: str) -> None:
    assert words in refuse(tmp_path, raw)


def test_a_truncated_note_is_never_read_as_a_whole_one(tmp_path: Path) -> None:
    last_needed = NOTE.index("[[gates]]")
    for end in range(0, NOTE.index("printed_complete") - 50, 97):
        assert end < last_needed
        refuse(tmp_path, NOTE[:end])


def test_a_candidate_that_takes_no_time(tmp_path: Path) -> None:
    text = NOTE.replace("value = 63.53", "value = 100").replace("value = [22, 35]", "value = [22, 100]")
    file = tmp_path / "note.toml"
    file.write_text(text.replace("value = [8, 18]", "value = [0, 18]"), encoding="utf-8")
    with pytest.raises(ValueError, match="VEA-A: what it recovers leaves no time"):
        screen(file)


def test_a_huge_figure(tmp_path: Path) -> None:
    message = refuse(tmp_path, NOTE.replace("value = 63.53", "value = 1" + "0" * 400))
    assert "not a number" in message


def test_no_candidates(tmp_path: Path) -> None:
    start, end = NOTE.index("[candidates.VEA-A]"), NOTE.index("[[gates]]")
    assert "candidates" in refuse(tmp_path, NOTE[:start] + NOTE[end:])
    assert "no candidate" in refuse(tmp_path, NOTE[:start] + "[candidates]\n" + NOTE[end:])


def test_the_note_itself_is_read(tmp_path: Path) -> None:
    file = tmp_path / "note.toml"
    file.write_text(NOTE, encoding="utf-8")
    spec = load_spec(file)
    assert spec.baseline.time.source == "Vortex design note"
    assert spec.baseline.spills is not None
    assert spec.baseline.spills.source.startswith("ptxas")


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "note.toml"
    file.write_bytes(NOTE.replace("\n", "\r\n").encode())
    assert load_spec(file).arch == "12.0"
    file.write_bytes(b"\xef\xbb\xbf" + NOTE.encode())
    assert load_spec(file).arch == "12.0"


def test_messages_reach_the_terminal_as_one_line(run_cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for name in ("missing.toml", "."):
        done = run_cli("screen", tmp_path / name)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1


def printed(tmp_path: Path, old: str, new: str) -> list[str]:
    file = tmp_path / "note.toml"
    assert old in NOTE
    file.write_text(NOTE.replace(old, new), encoding="utf-8")
    known = "1.3×: printed as 218.70 s"
    found = [one.text for one in screen(file).findings if one.kind == "printed_figure"]
    return [text for text in found if text != known]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # T(f, h) gives 192.371 … 221.952 ms and 234.669 s: right to any number of digits, in any unit.
        ("[192, 222]", "[192.4, 222.0]", []),
        ("[192, 222]", "[192.37, 221.95]", []),
        ("[192, 222]", "[192.3, 222.0]", ["VEA-A: main loop printed as 192.3 ms"]),
        ("[192, 222]", "[192, 222.0]", []),
        ("[192, 222]", "[191, 222]", ["VEA-A: main loop printed as 191 ms"]),
        ('[192, 222], unit = "ms"', '[0.192, 0.222], unit = "s"', []),
        ('[192, 222], unit = "ms"', '[0.192, 0.2221], unit = "s"', ["VEA-A: main loop printed as 0.2221 s"]),
        ("value = 234.67", "value = 234.7", []),
        ("value = 234.67", "value = 235", []),
        ("value = 234.67", "value = 234.70", ["1.15×: printed as 234.70 s"]),
        ("value = 234.67", "value = 2.3467e2", []),
        ("value = 234.67", "value = 2.347e2", []),
        ("value = 234.67", "value = 2.3470e2", ["1.15×: printed as 234.70 s"]),
        ('value = 234.67, unit = "s"', 'value = 234669, unit = "ms"', []),
        ('value = 234.67, unit = "s"', 'value = 234670, unit = "ms"', ["1.15×: printed as 234670 ms"]),
    ],
)
def test_printed_figures_are_checked_to_the_digits_written(
    old: str, new: str, expected: list[str], tmp_path: Path
) -> None:
    assert printed(tmp_path, old, new) == expected


@pytest.mark.parametrize("name", ['""', '" "', r'"a\u001b[2Jb"', r'"a\nb"'])
def test_names_and_texts_cannot_steer_the_terminal(name: str, tmp_path: Path) -> None:
    message = refuse(tmp_path, NOTE.replace("[candidates.VEA-A", f"[candidates.{name}"))
    assert "is no name" in message
    assert "control character" in refuse(tmp_path, NOTE.replace("the note's choice", r"\u001b[31m"))
