"""Contract: npy and npz give what NumPy saved, never unpickle, and refuse files that are not what they declare."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gemmulate.errors import FileError
from gemmulate.io import read_matrix, write_matrix


class _Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("/tmp/gemmulate-was-unpickled"),))


ARRAYS = [
    np.arange(12.0).reshape(3, 4),
    np.asfortranarray(np.arange(12).reshape(3, 4)),
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.array([True, False]),
    np.zeros((0, 5)),
    np.zeros((2, 0, 3), dtype=np.uint8),
    np.array(3.5),
    np.arange(24, dtype=np.float16).reshape(2, 3, 4),
    np.array([[1 + 2j]]),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{a.shape}")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed, None])
def test_reads_what_numpy_saved(tmp_path: Path, array: np.ndarray, save: object) -> None:
    path = tmp_path / ("a.npy" if save is None else "a.npz")
    np.save(path, array) if save is None else save(path, array)  # type: ignore[operator]
    found = read_matrix(path)
    assert found.shape == array.shape
    assert found.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(found, array)


@pytest.mark.parametrize("array", [a for a in ARRAYS if a.dtype.isnative], ids=lambda a: f"{a.dtype}{a.shape}")
def test_numpy_reads_what_we_write(tmp_path: Path, array: np.ndarray) -> None:
    write_matrix(tmp_path / "a.npy", array)
    found = np.load(tmp_path / "a.npy")
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert np.array_equal(found, array)


def test_members(tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    np.savez(path, left=np.eye(2), right=np.ones(3))
    assert read_matrix(f"{path}:left").tolist() == np.eye(2).tolist()
    assert read_matrix(f"{path}:right.npy").tolist() == [1, 1, 1]
    with pytest.raises(FileError, match=r"has 2 members; name one as .*p\.npz:MEMBER out of left, right"):
        read_matrix(path)
    with pytest.raises(FileError, match="no member 'middle'; it has left, right"):
        read_matrix(f"{path}:middle")
    np.savez(path)
    with pytest.raises(FileError, match="the archive is empty"):
        read_matrix(path)


def test_never_unpickles(tmp_path: Path) -> None:
    bomb = np.array([_Bomb()], dtype=object)
    np.save(tmp_path / "a.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "a.npz", bomb=bomb)
    (tmp_path / "raw.npy").write_bytes(pickle.dumps(_Bomb()))
    for name, message in (("a.npy", "never loaded"), ("a.npz", "never loaded"), ("raw.npy", "not a readable npy")):
        with pytest.raises(FileError, match=message):
            read_matrix(tmp_path / name)
    assert not Path("/tmp/gemmulate-was-unpickled").exists()


def _npy(header: str, data: bytes, version: bytes = b"\x01\x00") -> bytes:
    text = (header + " " * (-(10 + len(header) + 1) % 64) + "\n").encode()
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + data


BROKEN = [
    (b"", "the file is empty"),
    (b"\x93NUMPY\x01\x00", "not a readable npy"),
    (b"\x93NUMPY\x09\x00aa", "not a readable npy|npy version"),
    (_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3)}", bytes(71)), "truncated: .* 72 bytes and 71 are"),
    (_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10**9,)}", b""), "not a readable npy"),
    (_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (999999999, 999999999)}", b""), "truncated"),
    (_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -8)}", bytes(64)), "truncated"),
    (_npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(64)), "never loaded"),
    (_npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", bytes(64)), "structured"),
    (_npy("{'descr': 'zz', 'fortran_order': False, 'shape': (1,)}", bytes(64)), "not a readable npy"),
    (_npy("__import__('os')", bytes(64)), "not a readable npy"),
    (_npy("(" * 1000, bytes(64)), "not a readable npy"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BROKEN)
def test_broken_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises(FileError, match=message) as caught:
        read_matrix(path)
    assert "\n" not in str(caught.value)


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.random.default_rng(0).random((50, 50)))
    whole = path.read_bytes()
    for data in (whole[:1000], whole[:100] + bytes(300) + whole[400:], b"PK\x03\x04" + bytes(100)):
        path.write_bytes(data)
        with pytest.raises(FileError, match="not an intact npz archive"):
            read_matrix(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("note.txt", "hello")
    with pytest.raises(FileError, match=r"the member 'note.txt' is not a readable npy"):
        read_matrix(path)


def test_archives_that_unpack_beyond_the_bound_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.zeros((1000, 1000)))
    assert path.stat().st_size < 20_000
    with pytest.raises(FileError, match=r"unpacks to 8e[+]06 bytes, above the limit"):
        read_matrix(path, max_bytes=1 << 20)


def test_python_ints_do_not_go_to_npy(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"without pickling; write .mtx or .csv instead"):
        write_matrix(tmp_path / "a.npy", np.array([[2**80]], dtype=object))
    assert list(tmp_path.iterdir()) == []


def test_a_name_does_not_hide_another_format(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.eye(2))
    for suffix in (".mtx", ".csv", ".npz", ".mtx.gz"):
        (tmp_path / f"a{suffix}").write_bytes(buffer.getvalue())
        with pytest.raises(FileError, match=f"is named {suffix} but holds npy data"):
            read_matrix(tmp_path / f"a{suffix}")
