"""Contract: `gemmulate plan` of files or of sizes, on this machine or a device; bad input is one line and status 2."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]


def test_sizes_on_a_device(run: Run) -> None:
    pytest.importorskip("scipy")
    arguments = ("plan", "--m", 512, "--n", 256, "--k", 1024, "--device", "b300", "--c-q", 6)
    status, out, err = run(*arguments)
    assert (status, err) == (0, "")
    assert "512×1024 times 1024×256" in out
    assert "rejected (accuracy)" in out
    status, out, err = run(*arguments, "--json")
    assert (status, err) == (0, "")
    record = json.loads(out)
    assert record["device"] == "B300"
    assert record["chosen"] == record["candidates"][0]
    assert set(record["chosen"]["terms"]) == {"mma", "mem", "dec", "rec"}


def test_sizes_on_this_machine(run: Run) -> None:
    status, out, err = run("plan", "--m", 64, "--n", 64, "--k", 64, "--dtype", "int32", "--bits", 20, "--json")
    assert (status, err) == (0, "")
    record = json.loads(out)
    assert record["here"]
    assert record["bits"] == [20, 20]
    assert record["accuracy"] == "exact integers"


def test_files_on_a_device(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    path = tmp_path / "a.npy"
    np.save(path, np.arange(16).reshape(4, 4))
    status, out, err = run("plan", path, path, "--device", "h200", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["bits"] == [4, 4], "0 … 15"
    status, out, err = run("plan", path, path)
    assert (status, err) == (0, "")
    assert "candidate" in out
    for arguments, part in (
        ((path,), "right matrix is missing"),
        ((path, path, "--m", 3), "--m describes"),
        ((path, path, "--c-q", 3), "--device"),
        ((path, path, "--device", "h300"), "h300"),
        (("--m", 3), "--m, --n and --k"),
        (("--m", 3, "--n", 3, "--k", 0), "k = 0"),
        (("--m", 3, "--n", 3, "--k", "1.5"), "whole number"),
        (("--m", 3, "--n", 3, "--k", 3, "--dtype", "float16"), "float16"),
        (("--m", 3, "--n", 3, "--k", 3, "--bits", 999), "bits"),
        (("--m", 3, "--n", 3, "--k", 3, "--engine", "abacus"), "abacus"),
        (("--m", 3, "--n", 3, "--k", 3, "--device", "b300", "--engine", "native"), "B300"),
    ):
        status, out, err = run("plan", *arguments)
        assert (status, out, err.count("\n")) == (2, "", 1), arguments
        assert part in err, err
