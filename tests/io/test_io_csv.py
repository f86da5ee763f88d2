"""Contract: CSV gives exact integers or correctly rounded decimals, and names the line and value it refuses."""

from pathlib import Path

import numpy as np
import pytest

from gemmulate.errors import FileError
from gemmulate.io import read_matrix, write_matrix

READ = [
    ("1,2\n3,4\n", np.int64, [[1, 2], [3, 4]]),
    ("1,2\r\n3,4", np.int64, [[1, 2], [3, 4]]),
    ("\ufeff1,2\n", np.int64, [[1, 2]]),
    ("# made by hand\n\n1, 2\n", np.int64, [[1, 2]]),
    ("1;2\n", np.int64, [[1, 2]]),
    ("1\t2\n", np.int64, [[1, 2]]),
    ("1 2   3\n", np.int64, [[1, 2, 3]]),
    ("5\n6\n", np.int64, [[5], [6]]),
    ("+1,-2\n", np.int64, [[1, -2]]),
    ("1,2.5\n", np.float64, [[1, 2.5]]),
    ("1,1e3\n", np.float64, [[1, 1000]]),
    ("inf,-inf\n", np.float64, [[np.inf, -np.inf]]),
    (f"{2**63 - 1},{-(2**63)}\n", np.int64, [[2**63 - 1, -(2**63)]]),
    (f"{2**63},1\n", object, [[2**63, 1]]),
    (f"{7**300}\n", object, [[7**300]]),
    ("9007199254740993,0.5\n", np.float64, [[9007199254740992.0, 0.5]]),
]


@pytest.mark.parametrize(("text", "dtype", "expected"), READ)
def test_reads(tmp_path: Path, text: str, dtype: type, expected: list[list[float]]) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    found = read_matrix(path)
    assert found.dtype == dtype
    assert found.tolist() == expected


REFUSED = [
    ("\n\n", "holds no values"),
    ("# nothing\n", "holds no values"),
    ("1,2\n3\n", "a.csv:2: holds 1 values where line 1 has 2"),
    ("\n1,2\n\n3,4,5\n", "a.csv:4: holds 3 values where line 2 has 2"),
    ("1,2\n3,\n", "a.csv:2: the value in column 2 is empty"),
    ("1\t\n", "a.csv:1: the value in column 2 is empty"),
    ("x,y\n1,2\n", "a.csv:1: holds no numbers; put # before a heading"),
    ("1,y\n", "a.csv:1: 'y' is not a number"),
    ("1,2\n3,4x\n", "a.csv:2: '4x' is not a number"),
    ("1,1-2\n", "a.csv:1: '1-2' is not an integer"),
    ('1,"2"\n', "a.csv:1: '\"2\"' is not a number"),
    ("1,0x10\n", "a.csv:1: '0x10' is not a number"),
    ("1,1e999\n", "a.csv:1: '1e999' exceeds the range"),
    ("1,1_000\n", "a.csv:1: '1_000' is not a number"),
    ("1,\x00\n", r"a.csv:1: '\\x00' is not a number"),
    ("1,é\n", r"a.csv:1: '.*' is not a number"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=message):
        read_matrix(path)


def test_blocks_of_integers_and_decimals_join(tmp_path: Path) -> None:
    """A mebibyte of integers before the first decimal: all become float64, and the sign of -0 survives."""
    path = tmp_path / "a.csv"
    path.write_text("-0,12345678\n" * 100_000 + "0.5,3\n")
    found = read_matrix(path)
    assert found.dtype == np.float64
    assert found.shape == (100_001, 2)
    assert np.signbit(found[:-1, 0]).all()
    assert (found[:-1, 1] == 12345678).all()
    assert found[-1].tolist() == [0.5, 3]


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, -0.0, np.inf], [np.nan, 5e-324, 1.7976931348623157e308]]),
        np.array([[2**63 - 1, -(2**63)]]),
        np.array([[2**64 - 1]], dtype=np.uint64),
        np.array([[3**300, -1]], dtype=object),
        np.array([[np.float32(0.1)]]),
        np.array([1, 2, 3]),
    ],
    ids=str,
)
def test_written_files_read_back_bit_for_bit(tmp_path: Path, array: np.ndarray) -> None:
    write_matrix(tmp_path / "a.csv", array)
    found = read_matrix(tmp_path / "a.csv")
    column = array.reshape(-1, 1) if array.ndim == 1 else array
    if array.dtype.kind == "f":
        assert found.tobytes() == column.astype(np.float64).tobytes()
    else:
        assert found.tolist() == column.tolist()


def test_more_than_the_bound_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n" * 100)
    with pytest.raises(FileError, match=r"more than 1.6e[+]03 bytes") as caught:
        read_matrix(tmp_path / "a.csv", max_bytes=1599)
    assert "--max-gib" in str(caught.value)
    assert read_matrix(tmp_path / "a.csv", max_bytes=1600).shape == (100, 2)


def test_what_csv_cannot_hold(tmp_path: Path) -> None:
    for array, message in (
        (np.zeros((0, 3)), "cannot hold the empty shape"),
        (np.array([[1j]]), "cannot hold complex128"),
        (np.array([["a"]]), "cannot hold <U1"),
        (np.array([[1.5, 2]], dtype=object), "only if every element is a Python int"),
    ):
        with pytest.raises(FileError, match=message):
            write_matrix(tmp_path / "a.csv", array)
    assert list(tmp_path.iterdir()) == []
