"""Compiling a .cu file for several architectures just to read what ptxas says; no GPU is needed."""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gemmulate.errors import EngineUnavailable
from gemmulate.screen.compiled import CompiledFunction, read_compiled
from gemmulate.screen.text_file import EvidenceError

TIMEOUT_S: Final = 600
_ARCH = re.compile(r"(?:sm_)?(\d{1,2})\.?(\d[af]?)")


def find_nvcc() -> str | None:
    """nvcc on PATH, under CUDA_HOME, or of the wheels nvidia-cuda-nvcc; None when there is none."""
    found = shutil.which("nvcc")
    if found:
        return found
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        homes += [str(folder) for folder in [*sorted(Path(place).glob("cu*")), Path(place) / "cuda_nvcc"]]
    for home in homes:
        if os.access(Path(home) / "bin" / "nvcc", os.X_OK):
            return str(Path(home) / "bin" / "nvcc")
    return None


def compile_and_read(source: str | Path, archs: Sequence[str], flags: Sequence[str] = ()) -> list[CompiledFunction]:
    """Compile `source` to a cubin for each of `archs` ("90a", "sm_120a") and read ptxas' report.

    flags are passed to nvcc. Raises EngineUnavailable without nvcc, EvidenceError when the compiler refuses the file,
    ValueError for what is no architecture, OSError when the file cannot be read.
    """
    if not archs:
        raise ValueError("no architecture to compile for; give for instance 90a,120a")
    names = [_sm(arch) for arch in archs]
    with Path(source).open("rb"):
        pass
    nvcc = find_nvcc()
    if nvcc is None:
        raise EngineUnavailable(
            "no nvcc on PATH or under CUDA_HOME; install CUDA, or pip install nvidia-cuda-nvcc, or give a ptxas -v log"
        )
    functions = []
    with tempfile.TemporaryDirectory(prefix="gemmulate-") as folder:
        for name in names:
            log = Path(folder) / f"{name}.log"
            _run(nvcc, name, source, Path(folder) / "out.cubin", log, flags)
            functions += read_compiled(log)
    return functions


def _sm(arch: str) -> str:
    match = _ARCH.fullmatch(arch.strip())
    if match is None:
        raise ValueError(f"arch = {arch!r} is no architecture; write it as 90a or sm_90a")
    return f"sm_{match[1]}{match[2]}"


def _run(nvcc: str, arch: str, source: str | Path, cubin: Path, log: Path, flags: Sequence[str]) -> None:
    command = [nvcc, "-cubin", f"-arch={arch}", "-Xptxas", "-v", *flags, "-o", str(cubin), str(source)]
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise EvidenceError(f"{source}: nvcc took more than {TIMEOUT_S} s for {arch} and was stopped") from None
    if done.returncode:
        text = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = next((line for line in text if "error" in line.lower()), text[-1] if text else "no message")
        raise EvidenceError(f"{source}: nvcc refused it for {arch}: {reason.strip()[:300]}")
