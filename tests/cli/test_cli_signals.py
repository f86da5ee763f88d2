"""Contract: signals and terminals. A signal leaves the folder as it was, and a status that shells know; a progress bar
shows on a terminal and nowhere else.
"""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gemmulate.data import path_of

# A job in the background inherits an ignored SIGINT.
_COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from gemmulate.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("number", "status", "message"),
    [(signal.SIGINT, 130, "gemmulate: interrupted\n"), (signal.SIGTERM, 143, ""), (signal.SIGHUP, 129, "")],
)
def test_no_temporary_file_is_left(tmp_path: Path, number: int, status: int, message: str) -> None:
    # An outer product: next to no work, and two million lines to write.
    np.save(tmp_path / "column.npy", np.arange(4000).reshape(-1, 1))
    np.save(tmp_path / "row.npy", np.arange(1, 501).reshape(1, -1))
    before = sorted(os.listdir(tmp_path))
    arguments = [str(tmp_path / name) for name in ("column.npy", "row.npy")]
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "matmul", *arguments, "-o", str(tmp_path / "c.mtx")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while sorted(os.listdir(tmp_path)) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (status, "", message)
    assert sorted(os.listdir(tmp_path)) == before


def test_closed_standard_output(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.eye(2))
    shell = '"$0" -c "$1" matmul "$2" "$2" -o "$3" >&-'
    arguments = [sys.executable, _COMMAND, tmp_path / "a.npy", tmp_path / "c.npy"]
    done = subprocess.run(["bash", "-c", shell, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert np.load(tmp_path / "c.npy").tolist() == [[1, 0], [0, 1]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the always full device of Linux")
def test_full_standard_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "gemmulate: No space left on device\n"


def _on_terminal(*arguments: str, interrupt_at: bytes | None = None) -> tuple[int, bytes]:
    """Run the command on a terminal of its own; interrupt it when the given bytes have appeared."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *arguments],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(its)
    output = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # the terminal's last user is gone
            break
        if not chunk:
            break
        output += chunk
        if interrupt_at is not None and interrupt_at in output:
            process.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(ours)
    return process.wait(timeout=60), output


def test_ctrl_c_during_a_long_product(tmp_path: Path) -> None:
    matrix, target = str(path_of("bcsstk13")), tmp_path / "c.npy"
    start = time.monotonic()
    status, output = _on_terminal(
        "matmul", matrix, matrix, "-o", str(target), "--accuracy", "exact", interrupt_at=b"multiplying"
    )
    assert status == 130
    assert b"gemmulate: interrupted" in output
    assert b"Traceback" not in output
    assert os.listdir(tmp_path) == []
    assert time.monotonic() - start < 60


def test_a_progress_bar_on_a_terminal_only(tmp_path: Path) -> None:
    matrix, target = str(path_of("west0067")), str(tmp_path / "c.npy")
    status, output = _on_terminal("matmul", matrix, matrix, "-o", target)
    assert status == 0
    assert b"multiplying" in output
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, "matmul", matrix, matrix, "-o", target], capture_output=True, check=True
    )
    assert b"multiplying" not in done.stdout + done.stderr
    assert done.stderr == b""
