"""What is timed: a command or a Python callable. Each can run once and say how long it took and what it gave."""

import contextlib
import hashlib
import os
import resource
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, final

from gemmulate.errors import GemmulateError
from gemmulate.evidence.outputs import fingerprint

_CHUNK: Final = 1 << 16
_STDERR_KEPT: Final = 4096


class SubjectError(GemmulateError, RuntimeError):
    """A side could not be run: not found, failed, or ran past its time."""


class Subject(Protocol):
    """One side of a comparison: `name` is A or B, `description` what a reader of the record needs."""

    name: str
    description: str

    def run(self, repeats: int) -> float:
        """Seconds for `repeats` runs."""
        ...

    def output(self) -> str | None:
        """Fingerprint of what the last run gave; None when it cannot be told."""
        ...

    def release(self) -> None:
        """Forget what the last run gave.

        A result that one side holds while the other runs takes a block of memory away from it. Over ABBA and BAAB quads
        A then returns to one block more often and B to another, and what the blocks differ by looks like a difference
        of the sides.
        """
        ...


# Wall time is what a user waits for; the processor time of all threads is steadier on a machine that others use too.
CLOCKS: Final[dict[str, Callable[[], float]]] = {"wall": time.perf_counter, "cpu": time.process_time}


CUDA_LIBRARIES: Final = ("torch", "cupy")


def clock(timer: str) -> Callable[[], float]:
    """The clock of a CPU timer; raises ValueError for another name."""
    if timer in CUDA_LIBRARIES:
        raise ValueError(
            f"timer = {timer!r} is for CUDA callables; use 'wall' or 'cpu' here, or gm.evidence.compare(f, g, "
            f"timer={timer!r}) from Python"
        )
    if timer not in CLOCKS:
        raise ValueError(f"timer = {timer!r} is unknown; use 'wall', 'cpu', or for CUDA callables 'torch', 'cupy'")
    return CLOCKS[timer]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@final
class Command:
    """An external command, without a shell. Time from start to exit; standard output is its result.

    The timer "cpu" counts the processor time of the command and of the children that it waited for.

    Output is hashed as it comes, so that its size does not matter; standard input is empty. On a time-out or an
    interruption the whole process group is killed.
    """

    def __init__(self, name: str, command: str, timeout_s: float, timer: str = "wall") -> None:
        clock(timer)
        try:
            self.arguments = shlex.split(command)
        except ValueError as error:
            raise SubjectError(f"--{name.lower()} {command!r} cannot be split into words: {error}") from None
        if not self.arguments:
            raise SubjectError(f"--{name.lower()} is empty; give a command")
        if "\0" in command:
            raise SubjectError(f"--{name.lower()} contains a NUL character, which no command can have")
        self.name = name
        self.description = command
        self.timeout_s = timeout_s
        self._cpu = timer == "cpu"
        self._digest: str | None = None

    def run(self, repeats: int) -> float:
        return sum(self._once() for _ in range(repeats))

    def output(self) -> str | None:
        return self._digest

    def release(self) -> None:
        self._digest = None

    def _once(self) -> float:
        used = _children_cpu()
        start = time.perf_counter()
        try:
            process = subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise SubjectError(
                f"command {self.name} cannot be started: {self.arguments[0]}: {os.strerror(error.errno or 0)}"
            ) from None
        try:
            self._digest, errors = self._drain(process, start + self.timeout_s)
            status = process.wait(max(0.0, start + self.timeout_s - time.perf_counter()))
            seconds = time.perf_counter() - start
        except subprocess.TimeoutExpired:
            raise SubjectError(
                f"command {self.name} ran longer than {self.timeout_s:g} s and was stopped; raise --timeout"
            ) from None
        finally:
            _end(process)
        if status:
            raise SubjectError(f"command {self.name} {_ending(status)}{_last_words(errors)}")
        return _children_cpu() - used if self._cpu else seconds

    def _drain(self, process: "subprocess.Popen[bytes]", deadline: float) -> tuple[str | None, bytes]:
        """Read both pipes until they close; (fingerprint of stdout, None when it is empty; end of stderr)."""
        assert process.stdout is not None
        assert process.stderr is not None
        digest, errors, written = hashlib.sha256(), b"", False
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            while selector.get_map():
                left = deadline - time.perf_counter()
                if left <= 0:
                    raise subprocess.TimeoutExpired(self.arguments, self.timeout_s)
                for key, _ in selector.select(left):
                    chunk = os.read(key.fd, _CHUNK)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is process.stdout:
                        digest.update(chunk)
                        written = True
                    else:
                        errors = (errors + chunk)[-_STDERR_KEPT:]
        return (digest.hexdigest() if written else None), errors


@final
class Function:
    """A Python callable without arguments, timed by the wall or by the processor time of all threads."""

    def __init__(self, name: str, function: Callable[[], Any], timer: str = "wall") -> None:
        self._clock = clock(timer)
        self.name = name
        self.description = describe(function)
        self.function = function
        self._result: Any = None

    def run(self, repeats: int) -> float:
        function, now, result = self.function, self._clock, None
        start = now()
        for _ in range(repeats):
            result = function()
        seconds = now() - start
        self._result = result
        return seconds

    def output(self) -> str | None:
        return fingerprint(self._result)

    def release(self) -> None:
        self._result = None


def code_function(name: str, code: str, namespace: dict[str, Any], timer: str = "wall") -> Function:
    """A Function that evaluates the Python expression `code` in `namespace`; raises SubjectError for bad code."""
    try:
        compiled = compile(code.strip(), f"<--{name.lower()}>", "eval")
    except (SyntaxError, ValueError) as error:
        raise SubjectError(f"--{name.lower()} is no Python expression: {error}") from None

    def evaluate() -> Any:
        try:
            return eval(compiled, namespace)
        except (Exception, SystemExit) as error:
            raise SubjectError(f"side {name} raised {type(error).__name__}: {error}") from error

    subject = Function(name, evaluate, timer)
    subject.description = f"py:{code.strip()}"
    return subject


def namespace_of(setup: str) -> dict[str, Any]:
    """The names that `setup`, Python statements, defines; raises SubjectError when it fails."""
    namespace: dict[str, Any] = {"__name__": "__setup__"}
    try:
        exec(compile(setup, "<--setup>", "exec"), namespace)
    except (Exception, SystemExit) as error:
        raise SubjectError(f"--setup raised {type(error).__name__}: {error}") from error
    return namespace


def describe(function: Callable[[], Any]) -> str:
    """Module and name of a callable."""
    owner = function if isinstance(function, type) else type(function)
    name = getattr(function, "__qualname__", owner.__qualname__)
    return f"{getattr(function, '__module__', None) or owner.__module__}.{name}"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Leave no process behind, whatever happened."""
    # Not yet waited for: the number is still the group's own, even when only its children are left.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _ending(status: int) -> str:
    if status < 0:
        known = {one.value: one.name for one in signal.Signals}
        return f"was ended by {known.get(-status, f'signal {-status}')}"
    return f"failed with exit status {status}"


def _last_words(errors: bytes) -> str:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    text = "".join(character if character.isprintable() else "?" for character in lines[-1]) if lines else ""
    return f": {text[:200]}" if text else ""
