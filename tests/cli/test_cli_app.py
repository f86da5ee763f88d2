"""Contract: help, versions, errors and streams behave like those of any well-kept Unix program."""

import io
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import gemmulate
from gemmulate.cli.app import application
from gemmulate.cli.output import prepare_streams, print_table

Run = Callable[..., Any]


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"{gemmulate.__version__}\n", "")


def test_every_command_has_help_with_examples(run: Run) -> None:
    commands = [name for name in application() if not name.startswith("-")]
    assert {"matmul", "plan", "doctor", "demo"} <= set(commands)
    for command in commands:
        status, out, _ = run(command, "--help")
        assert status == 0
        assert "Examples" in out
        assert "--json" in out


def test_unknown_command(run: Run) -> None:
    status, out, err = run("multiply")
    assert (status, out) == (2, "")
    assert err.startswith('gemmulate: Unknown command "multiply"')
    assert err.count("\n") == 1


def test_doctor(run: Run) -> None:
    status, out, err = run("doctor")
    assert (status, err) == (0, "")
    assert "reference" in out
    status, out, _ = run("doctor", "--json")
    record = json.loads(out)
    engines = {engine["name"]: engine for engine in record["engines"]}
    assert engines["reference"]["available"] is True
    for engine in engines.values():
        assert engine["available"] or engine["reason"], "a missing engine needs a reason"
    assert record["versions"]["gemmulate"] == gemmulate.__version__
    assert record["machine"]["threads"] >= 1
    assert set(record) == {"engines", "machine", "blas", "environment", "versions"}


def test_plan(run: Run, tmp_path: object) -> None:
    from gemmulate.data import path_of

    path = path_of("west0067")
    status, out, err = run("plan", path, path)
    assert (status, err) == (0, "")
    assert "scheme" in out.lower()
    status, out, err = run("plan", path, path, "--json", "--engine", "reference", "--accuracy", "exact")
    assert (status, err) == (0, "")
    assert isinstance(json.loads(out), dict)
    status, out, err = run("plan", path, "missing.npy")
    assert (status, out, err) == (2, "", "gemmulate: missing.npy: No such file or directory\n")


def test_a_closed_pipe_is_no_error() -> None:
    code = "import sys; from gemmulate.cli import main; main(sys.argv[1:])"
    shell = f'"$0" -c "{code}" matmul --help | head -1; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", shell, sys.executable], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("0", "141")  # 0 when all was written before the reader left


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    prepare_streams()
    print("2×3 ≤ 4 … é 𝔸")
    print_table(["a×b"], [["≥ 1"]], title="−1")
    sys.stdout.flush()
    expected = {"ascii": b"2x3 <= 4 ... \\xe9 \\U0001d538", "latin-1": b"2\xd73 <= 4 ... \xe9 \\U0001d538"}
    assert raw.getvalue().splitlines()[0] == expected.get(encoding, "2×3 ≤ 4 … é 𝔸".encode())


def test_tables_in_a_pipe_never_wrap(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["name", "n"], [["x" * 300, "1"], ["y", "22"]], title="T", right=[1])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["T", "name" + " " * 299 + "n".rjust(1), "x" * 300 + "   1", "y" + " " * 299 + "  22"] or (
        [len(line) for line in lines] == [1, 304, 304, 304]
    )


def test_help_is_quick_and_loads_no_numerics() -> None:
    code = (
        "import sys\nfrom gemmulate.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('numpy', 'scipy', 'torch') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
