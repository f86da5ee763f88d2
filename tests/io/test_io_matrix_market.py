"""Contract: Matrix Market files of every kind read to the letter, everything else is refused with its line.

Oracles: scipy.io.mmread for whole files, Fractions for the rounding of decimals, and hand-written matrices.
"""

import gzip
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st

from gemmulate.data import NAMES, path_of
from gemmulate.errors import FileError
from gemmulate.io import read_matrix, write_matrix


def _file(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "a.mtx"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def _read(tmp_path: Path, text: str | bytes) -> np.ndarray:
    return read_matrix(_file(tmp_path, text))


@pytest.mark.parametrize("name", NAMES)
def test_packaged_matrices_equal_scipys(name: str) -> None:
    expected = scipy.io.mmread(path_of(name)).toarray()
    found = read_matrix(path_of(name))
    assert found.dtype == (np.int64 if name == "karate" else np.float64)
    assert np.array_equal(found, expected)


VALUES = {
    "general": {"real": "1 1 2.5\n2 3 -1e-3\n", "integer": "1 1 7\n2 3 -4\n", "pattern": "1 1\n2 3\n",
                "complex": "1 1 2.5 -1\n2 3 0 4\n"},
    "symmetric": {"real": "1 1 2.5\n3 2 -1e-3\n", "integer": "1 1 7\n3 2 -4\n", "pattern": "1 1\n3 2\n",
                  "complex": "1 1 2.5 -1\n3 2 0 4\n"},
    "skew-symmetric": {"real": "2 1 2.5\n3 2 -1e-3\n", "integer": "2 1 7\n3 2 -4\n", "complex": "2 1 2 -1\n3 2 0 4\n"},
    "hermitian": {"complex": "1 1 2.5 0\n3 2 0 4\n"},
}  # fmt: skip


@pytest.mark.parametrize(("symmetry", "field"), [(s, f) for s, fields in VALUES.items() for f in fields])
def test_coordinate_kinds_equal_scipys(tmp_path: Path, symmetry: str, field: str) -> None:
    path = _file(
        tmp_path, f"%%MatrixMarket Matrix COORDINATE {field} {symmetry}\n% c\n\n3 3 2\n{VALUES[symmetry][field]}"
    )
    assert np.array_equal(read_matrix(path), scipy.io.mmread(path).toarray())


def test_array_kinds(tmp_path: Path) -> None:
    head = "%%MatrixMarket matrix array"
    assert _read(tmp_path, f"{head} integer general\n2 3\n1\n2\n3\n4\n5\n6\n").tolist() == [[1, 3, 5], [2, 4, 6]]
    lower = "1\n2\n3\n4\n5\n6\n"
    assert _read(tmp_path, f"{head} integer symmetric\n3 3\n{lower}").tolist() == [[1, 2, 3], [2, 4, 5], [3, 5, 6]]
    assert _read(tmp_path, f"{head} real skew-symmetric\n3 3\n1\n2\n3\n").tolist() == [
        [0, -1, -2],
        [1, 0, -3],
        [2, 3, 0],
    ]
    hermitian = _read(tmp_path, f"{head} complex hermitian\n2 2\n1 0\n2 3\n4 0\n")
    assert hermitian.tolist() == [[1, 2 - 3j], [2 + 3j, 4]]


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("layout", ["array", "coordinate"])
def test_empty(tmp_path: Path, layout: str, symmetry: str) -> None:
    size = "0 0 0" if layout == "coordinate" else "0 0"
    assert _read(tmp_path, f"%%MatrixMarket matrix {layout} real {symmetry}\n{size}\n").shape == (0, 0)


def test_no_entries_and_no_rows(tmp_path: Path) -> None:
    assert _read(tmp_path, "%%MatrixMarket matrix coordinate integer general\n0 5 0\n").shape == (0, 5)
    zeros = _read(tmp_path, "%%MatrixMarket matrix coordinate real general\n2 3 0\n")
    assert zeros.tolist() == [[0.0] * 3] * 2
    assert zeros.dtype == np.float64


def test_line_endings_blanks_and_comments(tmp_path: Path) -> None:
    text = b"%%MatrixMarket matrix coordinate real general\r\n%\xe9\r\n  2 2 2 \r\n\r\n 1 1 +1.5 \r\n% note\r\n2\t2 .5"
    assert _read(tmp_path, text).tolist() == [[1.5, 0], [0, 0.5]]


def test_integers_of_any_size(tmp_path: Path) -> None:
    big, low = 3**200, -(2**63)
    general = _read(tmp_path, f"%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 {big}\n2 2 -1\n")
    assert general.dtype == object
    assert general.tolist() == [[big, 0], [0, -1]]
    assert all(type(x) is int for x in general.ravel())
    fits = _read(tmp_path, f"%%MatrixMarket matrix array integer general\n1 2\n{low}\n{2**63 - 1}\n")
    assert fits.dtype == np.int64
    assert fits.tolist() == [[low, 2**63 - 1]]
    skew = _read(tmp_path, f"%%MatrixMarket matrix coordinate integer skew-symmetric\n2 2 1\n2 1 {low}\n")
    assert skew.tolist() == [[0, 2**63], [low, 0]]


@given(st.integers(-(10**25), 10**25), st.integers(-345, 300))
def test_decimals_are_correctly_rounded(tmp_path_factory: pytest.TempPathFactory, digits: int, exponent: int) -> None:
    path = _file(tmp_path_factory.mktemp("m"), f"%%MatrixMarket matrix array real general\n1 1\n{digits}e{exponent}\n")
    if abs(digits) * 10 ** max(exponent, 0) >= 2**1024 * 10 ** max(-exponent, 0):
        return  # refused; see test_refused
    exact = Fraction(digits) * Fraction(10) ** exponent
    assert read_matrix(path)[0, 0] == exact.numerator / exact.denominator  # int / int rounds correctly


def test_special_values(tmp_path: Path) -> None:
    found = _read(tmp_path, "%%MatrixMarket matrix array real general\n5 1\nnan\n-inf\n-0.0\n5e-324\nInfinity\n")
    assert np.isnan(found[0, 0])
    assert found[1:, 0].tolist() == [-np.inf, 0.0, 5e-324, np.inf]
    assert np.signbit(found[2, 0])


HEAD = "%%MatrixMarket matrix coordinate real general\n"
REFUSED = [
    ("x", r"a\.mtx:1: begins with 'x', not %%MatrixMarket"),
    ("%%MatrixMarket matrix coordinate real\n1 1 1\n", "a.mtx:1: the header must read"),
    ("%%MatrixMarket vector coordinate real general\n1 1 1\n", "object is 'vector'; known: matrix"),
    ("%%MatrixMarket matrix sparse real general\n1 1 1\n", "layout is 'sparse'; known: coordinate, array"),
    ("%%MatrixMarket matrix coordinate double general\n1 1 1\n", "field is 'double'"),
    ("%%MatrixMarket matrix coordinate real upper\n1 1 1\n", "symmetry is 'upper'"),
    ("%%MatrixMarket matrix array pattern general\n1 1\n", "combines pattern with array"),
    ("%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 0\n", "combines pattern"),
    ("%%MatrixMarket matrix coordinate real hermitian\n1 1 0\n", "a hermitian matrix is complex"),
    (HEAD, "a.mtx:1: the file ends before its size line"),
    (HEAD + "% only\n% comments\n", "a.mtx:3: the file ends before its size line"),
    (HEAD + "2 2\n", "a.mtx:2: the size line of a coordinate file holds rows, columns and entries, not 2 numbers"),
    (HEAD + "2 x 1\n", "a.mtx:2: the size line: 'x' is not an integer"),
    (HEAD + "2 -2 1\n", "a.mtx:2: the size line holds a negative number: -2"),
    (HEAD + "2 2 5\n", "declares 5 entries where a 2×2 general has 4"),
    (HEAD + "2 2 2\n1 1 1.0\n", "a.mtx:3: the file ends after 1 of the 2 entries"),
    (HEAD + "2 2 1\n", "the file ends after 0 of the 1 entries"),
    (HEAD + "2 2 1\n1 1 1.0\n1 2 1.0\n", "a.mtx:4: one entry more than the 1 that the size line declares"),
    (HEAD + "2 2 1\n3 1 1.0\n", "a.mtx:3: the row index 3 is outside 1…2"),
    (HEAD + "2 2 1\n1 0 1.0\n", "a.mtx:3: the column index 0 is outside 1…2"),
    (HEAD + f"2 2 1\n{2**70} 1 1.0\n", f"the row index {2**70} is outside 1…2"),
    (HEAD + "2 2 1\n1.0 1 1.0\n", r"a.mtx:3: '1\.0' is not an integer"),
    (HEAD + "2 2 2\n\n1 1 1.0\n2 2\n", "a.mtx:5: holds 2 numbers where a coordinate real file has 3"),
    (HEAD + "2 2 1\n1 1 1 2\n", "a.mtx:3: holds 4 numbers where a coordinate real file has 3"),
    (HEAD + "2 2 1\n1 1 one\n", "a.mtx:3: 'one' is not a number"),
    (HEAD + "2 2 1\n1 1 1D+3\n", r"a.mtx:3: '1D\+3' is not a number; write the exponent with E, not D"),
    (HEAD + "2 2 1\n1 1 1_0\n", "a.mtx:3: '1_0' is not a number"),
    (HEAD + "2 2 1\n1 1 1e999\n", "a.mtx:3: '1e999' exceeds the range of float64"),
    (HEAD + "2 2 2\n1 1 1\n1 1 2\n", r"a.mtx:4: the entry \(1, 1\) was given in line 3 already"),
    ("%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 1.5\n", r"a.mtx:3: '1\.5' is not an integer"),
    ("%%MatrixMarket matrix coordinate real symmetric\n2 3 0\n", "is square; the size line says 2×3"),
    ("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 1\n", r"a.mtx:3: the entry \(1, 2\) is not in the"),
    ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 1 1\n", r"\(1, 1\) is not strictly in the lower"),
    ("%%MatrixMarket matrix coordinate complex hermitian\n2 2 1\n1 1 1 1\n", "a.mtx:3: a hermitian matrix has a real"),
    ("%%MatrixMarket matrix array complex hermitian\n2 2\n1 0\n1 0\n1 2\n", "a.mtx:5: a hermitian matrix has a real"),
    ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", "a.mtx:5: the file ends after 3 of the 4 entries"),
    ("%%MatrixMarket matrix array real general\n2 2\n1 2\n3 4\n", "a.mtx:3: holds 2 numbers where an array real file"),
    (HEAD + "1000000000 1000000000 1\n1 1 1.0\n", r"declares 1000000000×1000000000 elements, 8e\+18 bytes"),
    (HEAD + f"{10**400} 1 1\n1 1 1.0\n", "a.mtx:2: the size line holds '1000.*more than any memory"),
    ("%%MatrixMarket matrix array real general\n9000000 9000000\n1\n", "above the limit of 4.29e"),
    ("%%MatrixMarket matrix array integer general\n1 1\n" + "7" * 5000, "5000 digits and Python converts 4300 at most"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FileError, match=message) as caught:
        _read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_bound_can_be_raised_or_lowered(tmp_path: Path) -> None:
    path = _file(tmp_path, HEAD + "100 100 1\n1 1 1.0\n")
    assert read_matrix(path, max_bytes=80_000).shape == (100, 100)
    with pytest.raises(FileError, match="above the limit"):
        read_matrix(path, max_bytes=79_999)


def test_errors_far_into_a_file_have_their_line(tmp_path: Path) -> None:
    """The reader takes blocks of a mebibyte: lines are numbered across them."""
    n = 300_000
    body = [f"{i} 1 1.25" for i in range(1, n + 1)]
    body[n - 10] = "7 1 oops"
    with pytest.raises(FileError, match=f":{n - 10 + 3}: 'oops'"):
        _read(tmp_path, HEAD + f"{n} 1 {n}\n" + "\n".join(body))


def test_gzip_truncated_and_corrupt(tmp_path: Path) -> None:
    packed = path_of("bcsstk13").read_bytes()
    path = tmp_path / "a.mtx.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(FileError, match="truncated"):
        read_matrix(path)
    path.write_bytes(packed[:5000] + bytes(200) + packed[5200:])
    with pytest.raises(FileError, match=r"not an intact gzip file|a.mtx.gz:"):
        read_matrix(path)
    path.write_bytes(packed[:-8] + bytes(8))  # wrong checksum
    with pytest.raises(FileError, match="not an intact gzip file"):
        read_matrix(path)


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz"])
@pytest.mark.parametrize("density", [0.05, 0.9])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint64, np.bool_, np.complex128, object])
def test_written_files_read_back_bit_for_bit(tmp_path: Path, suffix: str, density: float, dtype: type) -> None:
    rng = np.random.default_rng(5)
    mask = rng.random((7, 11)) < density
    if dtype is object:
        array = np.array([[3**150 if m else 0 for m in row] for row in mask.tolist()], dtype=object)
    elif dtype is np.complex128:
        array = np.where(mask, rng.standard_normal((7, 11)) + 1j * rng.standard_normal((7, 11)), 0)
    elif np.issubdtype(dtype, np.floating):
        array = np.where(mask, rng.standard_normal((7, 11)) * 10.0 ** rng.integers(-40, 38, (7, 11)), 0).astype(dtype)
        array[0, :4] = [-0.0, np.inf, np.nan, np.finfo(dtype).smallest_subnormal]
    else:
        array = (mask * rng.integers(1, 2 if dtype is np.bool_ else 2**62, (7, 11))).astype(dtype)
    path = tmp_path / f"a{suffix}"
    write_matrix(path, array)
    found = read_matrix(path)
    assert np.array_equal(found, array, equal_nan=dtype is not object)
    if found.dtype == np.float64:
        assert np.array_equal(np.signbit(found), np.signbit(array))
    if dtype is not object:
        text = gzip.decompress(path.read_bytes()) if suffix == ".mtx.gz" else path.read_bytes()
        assert (b"coordinate" in text[:60]) == (density < 0.1)
        assert np.array_equal(scipy.sparse.coo_array(scipy.io.mmread(path)).toarray(), array, equal_nan=True)


def test_vectors_are_columns_and_stacks_are_refused(tmp_path: Path) -> None:
    write_matrix(tmp_path / "v.mtx", np.array([1.5, 2.5]))
    assert read_matrix(tmp_path / "v.mtx").tolist() == [[1.5], [2.5]]
    with pytest.raises(FileError, match=r"not a stack of shape \(2, 2, 2\); write .npy instead"):
        write_matrix(tmp_path / "s.mtx", np.zeros((2, 2, 2)))
    assert not (tmp_path / "s.mtx").exists()
