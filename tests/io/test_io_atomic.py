"""Contract: an output appears complete or not at all, and nothing stays beside it whatever happens."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from gemmulate.errors import FileError
from gemmulate.io import check_output, write_atomically, write_matrix


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_interrupted_write_leaves_the_old_file_alone(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted() -> None:
        with write_atomically(path) as file:
            file.write(b"half")
            assert path.read_text() == "old"
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_mode_of_new_and_replaced_files(tmp_path: Path) -> None:
    previous = os.umask(0o027)
    try:
        write_matrix(tmp_path / "new.npy", np.eye(2))
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "new.npy").stat().st_mode) == 0o640
    (tmp_path / "new.npy").chmod(0o604)
    write_matrix(tmp_path / "new.npy", np.ones((2, 2)))
    assert stat.S_IMODE((tmp_path / "new.npy").stat().st_mode) == 0o604
    assert np.load(tmp_path / "new.npy").tolist() == [[1, 1], [1, 1]]


def test_links_stay_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name in ("present", "dangling"):
        target = tmp_path / "real" / f"{name}.npy"
        if name == "present":
            np.save(target, np.zeros(1))
        link = tmp_path / f"{name}.npy"
        link.symlink_to(target)
        write_matrix(link, np.eye(2))
        assert link.is_symlink()
        assert np.load(target).tolist() == [[1, 0], [0, 1]]
    assert sorted(os.listdir(tmp_path / "real")) == ["dangling.npy", "present.npy"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "d.npy").mkdir()
    (tmp_path / "f").write_text("")
    os.mkfifo(tmp_path / "p.npy")
    (tmp_path / "loop.npy").symlink_to(tmp_path / "loop.npy")
    for name, message in (
        ("d.npy", "is a directory"),
        ("no/c.npy", "the folder .*/no does not exist"),
        ("f/c.npy", "is not a directory|Not a directory"),
        ("p.npy", "not a regular file"),
        ("loop.npy", "symbolic links"),
        ("a" * 300 + ".npy", "File name too long"),
        ("c.txt", "cannot write .txt files; the suffix must be one of .npy, .mtx, .mtx.gz, .csv"),
        ("c", "c: has no suffix; the suffix must be one of"),
    ):
        for call in (check_output, lambda p: write_matrix(p, np.eye(2))):
            with pytest.raises(FileError, match=message):
                call(tmp_path / name)


@pytest.mark.parametrize(
    ("denied", "message"), [("a.npy", "is write-protected"), ("", "the folder .* may not be written")]
)
def test_protected_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str, message: str) -> None:
    """The operating system's answer is replaced, since it lets root write everywhere."""
    path = tmp_path / "a.npy"
    write_matrix(path, np.eye(1))
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place) != tmp_path / denied)
    with pytest.raises(FileError, match=message):
        write_matrix(path, np.eye(2))
    assert np.load(path).shape == (1, 1)


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match=r"a.npy: cannot be written: No space left on device"):
        write_matrix(tmp_path / "a.npy", np.eye(2))
    assert os.listdir(tmp_path) == []
