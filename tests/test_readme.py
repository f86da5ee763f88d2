"""Contract: what README.md shows works as shown, from the root of a clone."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from gemmulate.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def test_the_python_example() -> None:
    found = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted >= 7
    assert found.failed == 0


def test_the_examples_of_the_pages() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
        assert found.failed == 0, page.name


COMMANDS = re.findall(r"^\$ gemmulate (.*)$", README.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # outputs stay out of the clone
    arguments = [str(ROOT / word) if word.startswith(("src/", "examples/")) else word for word in shlex.split(command)]
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    out, err = capsys.readouterr()
    assert (stop.value.code, err) == (0, "")
    assert out


def test_links_and_make_targets_exist() -> None:
    for page in (README, ROOT / "DESIGN.md", ROOT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert set(re.findall(r"`?make ([a-z-]+)", text)) <= targets | {"of"}
