"""Contract: `gemmulate matmul` writes the product whole, or says in one line why not and exits with 2."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmulate.data import path_of
from gemmulate.io import read_matrix

Run = Callable[..., Any]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.array([[1, 2], [3, 4]]))
    np.save(tmp_path / "v.npy", np.array([1, 1]))
    np.save(tmp_path / "wide.npy", np.ones((2, 3), dtype=np.int64))
    np.save(tmp_path / "big.npy", np.full((2, 2), 2**40))
    np.save(tmp_path / "f.npy", np.array([[0.5, np.nan], [np.inf, -0.0]]))
    np.save(tmp_path / "stack.npy", np.arange(8).reshape(2, 2, 2))
    np.save(tmp_path / "text.npy", np.array([["a", "b"], ["c", "d"]]))
    np.savez(tmp_path / "pair.npz", left=np.eye(2, dtype=np.int64), right=np.array([[5, 6], [7, 8]]))
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "note.txt").write_text("hello")
    return tmp_path


def test_npy(run: Run, files: Path) -> None:
    status, out, err = run("matmul", files / "a.npy", files / "wide.npy", "-o", files / "c.npy")
    assert (status, err) == (0, "")
    assert out.startswith("2×2 int64 times 2×3 int64 gives 2×3 int64 in ")
    assert out.endswith(f" s, written to {files / 'c.npy'}\n")
    assert np.load(files / "c.npy").tolist() == [[3, 3, 3], [7, 7, 7]]


@pytest.mark.parametrize("suffix", ["npy", "mtx", "mtx.gz", "csv"])
def test_formats(run: Run, files: Path, suffix: str) -> None:
    target = files / f"c.{suffix}"
    assert run("matmul", f"{files / 'pair.npz'}:right", files / "a.csv", "--output", target).status == 0
    assert read_matrix(target).tolist() == [[23, 34], [31, 46]]


def test_vectors_and_stacks(run: Run, files: Path) -> None:
    assert run("matmul", files / "v.npy", files / "v.npy", "-o", files / "c.npy").status == 0
    assert np.load(files / "c.npy").shape == ()
    assert run("matmul", files / "a.npy", files / "v.npy", "-o", files / "c.csv").status == 0
    assert (files / "c.csv").read_text() == "3\n7\n"
    assert run("matmul", files / "stack.npy", files / "a.npy", "-o", files / "c.npy").status == 0
    assert np.load(files / "c.npy").shape == (2, 2, 2)
    before = sorted(os.listdir(files))
    status, out, err = run("matmul", files / "stack.npy", files / "a.npy", "-o", files / "s.mtx")
    assert (status, out) == (2, "")
    assert "not a stack of shape (2, 2, 2); write .npy instead" in err
    assert sorted(os.listdir(files)) == before


def test_the_output_may_be_an_input(run: Run, files: Path) -> None:
    assert run("matmul", files / "a.npy", files / "a.npy", "-o", files / "a.npy").status == 0
    assert np.load(files / "a.npy").tolist() == [[7, 10], [15, 22]]


def test_without_output_the_product_is_shown(run: Run, files: Path) -> None:
    status, out, _ = run("matmul", files / "a.npy", files / "a.npy")
    assert status == 0
    assert "[[ 7 10]\n [15 22]]" in out


def test_json(run: Run, files: Path) -> None:
    status, out, err = run("matmul", files / "a.npy", files / "a.npy", "-o", files / "c.npy", "--json", "--threads", 1)
    record = json.loads(out)
    assert (status, err) == (0, "")
    expected = np.array([[7, 10], [15, 22]], dtype="<i8")
    assert record["result"] == {
        "shape": [2, 2],
        "dtype": "int64",
        "sha256": hashlib.sha256(expected.tobytes()).hexdigest(),
    }
    assert record["a"] == {"path": str(files / "a.npy"), "shape": [2, 2], "dtype": "int64"}
    assert record["output"] == str(files / "c.npy")
    assert record["threads"] == 1
    assert record["time_s"] > 0


def test_walks_that_overflow(run: Run, tmp_path: Path) -> None:
    """Walks of length 24, the first that overflow int64, on the karate graph; against NumPy over Python ints."""
    adjacency = read_matrix(path_of("karate"))
    exact = np.linalg.matrix_power(adjacency.astype(object), 24)
    assert np.linalg.matrix_power(adjacency.astype(object), 23).max() < 2**63 <= exact.max()
    half = tmp_path / "twelve.npy"
    np.save(half, np.linalg.matrix_power(adjacency, 12))
    status, out, err = run("matmul", half, half, "-o", tmp_path / "c.mtx")
    assert (status, out) == (2, "")
    assert err.startswith("gemmulate: ")
    assert "overflow" in err or "bits" in err
    assert not (tmp_path / "c.mtx").exists()
    assert run("matmul", half, half, "-o", tmp_path / "c.mtx", "--overflow", "object").status == 0
    assert read_matrix(tmp_path / "c.mtx").tolist() == exact.tolist()
    assert run("matmul", half, half, "-o", tmp_path / "c.npy", "--overflow", "wrap").status == 0
    assert np.load(tmp_path / "c.npy").tolist() == np.linalg.matrix_power(adjacency, 24).tolist()
    status, _, err = run("matmul", half, half, "-o", tmp_path / "d.npy", "--overflow", "object")
    assert status == 2
    assert "write .mtx or .csv" in err


def test_modulus(run: Run, files: Path) -> None:
    status, _, _ = run("matmul", files / "big.npy", files / "big.npy", "--modulus", 65537, "-o", files / "c.csv")
    assert status == 0
    big = np.load(files / "big.npy").astype(object)
    got = [[int(v) for v in line.split(",")] for line in (files / "c.csv").read_text().splitlines()]
    assert got == (big @ big % 65537).tolist()


BAD = [
    (("missing.npy", "a.npy"), "missing.npy: No such file or directory"),
    (("a.npy", "missing.mtx.gz"), "missing.mtx.gz: No such file or directory"),
    (("a.npy", "note.txt"), "note.txt: cannot read .txt files; the suffix must be one of .npy, .npz, .mtx"),
    (("a.npy", "ragged.csv"), "ragged.csv:2: holds 1 values where line 1 has 2"),
    (("a.npy", "pair.npz"), "has 2 members; name one as"),
    (("wide.npy", "wide.npy"), "(2, 3)|2×3|mismatch"),
    (("text.npy", "a.npy"), "<U1"),
    ((".", "a.npy"), "no suffix"),
    (("a.npy", "a.npy", "--accuracy", "sloppy"), "sloppy"),
    (("a.npy", "a.npy", "--engine", "abacus"), "abacus"),
    (("a.npy", "a.npy", "--overflow", "explode"), "explode"),
    (("a.npy", "a.npy", "--max-gib", "-1"), "--max-gib -1 is not a size"),
    (("a.npy", "a.npy", "--max-gib", "nan"), "--max-gib nan is not a size"),
    (("a.npy", "a.npy", "--threads", "two"), "two"),
    (("a.npy",), "B requires an argument"),
    (("a.npy", "a.npy", "a.npy"), "Unused Tokens"),
    (("a.npy", "a.npy", "--colour"), "--colour"),
    (("a.npy", "a.npy", "-o", "no/such/c.npy"), "does not exist; create it first"),
    (("a.npy", "a.npy", "-o", "c.hdf5"), "cannot write .hdf5 files"),
    (("a.npy", "a.npy", "-o", "c.npz"), "cannot write .npz files"),
    (("a.npy", "a.npy", "-o", "."), "has no suffix"),
    (("", "a.npy"), "'': has no suffix"),
    (("a.npy", "a.npy\0"), r"a.npy\x00"),
    (("a.npy", "\x1b[31mx.npy"), r"\x1b[31mx.npy: No such file"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_bad_input(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str, extra: tuple[str]
) -> None:
    monkeypatch.chdir(files)
    before = sorted(os.listdir())
    status, out, err = run("matmul", *arguments, *extra)
    assert (status, out) == (2, "")
    assert err.startswith("gemmulate: ")
    assert err.count("\n") == 1
    assert any(part in err for part in message.split("|")), err
    assert sorted(os.listdir()) == before


def test_an_output_is_checked_before_the_work(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gemmulate as gm

    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("multiplied although the output cannot be written")

    monkeypatch.setattr(gm, "matmul", never, raising=False)
    assert run("matmul", files / "a.npy", files / "a.npy", "-o", "/no/such/folder/c.npy").status == 2


def test_interrupted(run: Run, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gemmulate as gm

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gm, "matmul", interrupted, raising=False)
    before = sorted(os.listdir(files))
    status, out, err = run("matmul", files / "a.npy", files / "a.npy", "-o", files / "c.npy")
    assert (status, out, err) == (130, "", "gemmulate: interrupted\n")
    assert sorted(os.listdir(files)) == before


def test_an_array_of_nothing(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 0)))
    np.save(tmp_path / "b.npy", np.zeros((0, 2)))
    assert run("matmul", tmp_path / "a.npy", tmp_path / "b.npy", "-o", tmp_path / "c.npy").status == 0
    assert np.load(tmp_path / "c.npy").tolist() == [[0, 0]] * 3


def test_formats_and_modulus_reach_matmul_and_plan(run: Run, files: Path) -> None:
    status, out, _ = run("matmul", files / "a.npy", files / "a.npy", "--formats", "fp4_e2m1", "--json")
    plain = json.loads(run("matmul", files / "a.npy", files / "a.npy", "--json").out)
    assert status == 0
    assert json.loads(out)["result"] == plain["result"]
    assert json.loads(out)["formats"] == "fp4_e2m1"
    status, out, _ = run("plan", files / "a.npy", files / "a.npy", "--formats", "fp4_e2m1", "--modulus", "97", "--json")
    assert status == 0
    record = json.loads(out)
    assert record["modulus"] == 97
    assert all(key.endswith(".fp4_e2m1") for key in record["encodings"])
    assert record["encodings"]
    status, out, _ = run("plan", files / "f.npy", files / "f.npy", "--formats", "fp4_e2m1")
    assert status == 0
    assert "encodings" in out
    status, out, err = run("plan", files / "f.npy", files / "f.npy", "--modulus", "97")
    assert (status, out) == (2, "")
    assert "modulus = 97 needs integer operands" in err
    status, out, err = run("plan", files / "f.npy", files / "f.npy", "--formats", "fp16")
    assert (status, out) == (2, "")
    assert "formats = 'fp16'" in err
