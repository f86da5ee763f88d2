"""What the compiler says about a kernel: `ptxas -v` logs and `cuobjdump --dump-resource-usage` text.

The two differ: ptxas knows spills and states static shared memory alone; cuobjdump knows no spills (LOCAL stays 0, a
spilling kernel shows in STACK) and from sm_90 on counts the 1,024 reserved bytes in SHARED. Neither sees dynamic
shared memory.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from gemmulate.screen.text_file import EvidenceError, read_lines

MAX_FUNCTIONS: Final = 100_000
_RESERVED: Final = 1024
# Kernel parameters start behind the driver's own constants: at 0x160 up to sm_89, 0x210 on sm_90, 0x380 later.
_FIRST_PARAMETER_SM90: Final = 0x210

_ENTRY = re.compile(r"Compiling entry function '(.+)' for '(sm_\w+)'")
_PROPERTIES = re.compile(r"Function properties for (.+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, (.*))?")
_USED_PART = re.compile(
    r"used (?P<barriers>\d+) barriers|(?P<smem>\d+) bytes smem|(?P<cumulative>\d+) bytes cumulative stack size"
    r"|\d+ bytes (?:cmem|lmem|gmem)(?:\[\d+\])?|\d+ textures?|\d+ surfaces?|\d+ samplers?"
)
_FUNCTION = re.compile(r"\s*Function (.+):")
_RESOURCES = re.compile(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)((?: \w+(?:\[\d+\])?:\d+)*)")
_CONSTANT0 = re.compile(r"CONSTANT\[0\]:(\d+)")
_ARCH = re.compile(r"arch = (sm_\w+)")
_KNOWN: Final = frozenset(
    {"70", "72", "75", "80", "86", "87", "88", "89", "90", "100", "101", "103", "110", "120", "121"}
)
# No count of registers or bytes has more digits; what has is damaged.
_LONG_NUMBER = re.compile(r"\d{13}")
_FAILED = re.compile(r"ptxas (?:fatal|error)\s*:\s*(.+)")
_NAME_ARCH = re.compile(r"(?:^|[_.-])(?:sm_?)?(\d{2,3}[af]?)(?=[_.-]|$)")


class CompiledFunction(msgspec.Struct, frozen=True):
    """One function: bytes except `registers` and `barriers`; None where the listing does not tell.

    `arch` is as the tool writes it ("sm_90a"), "" when unknown. `shared_bytes` is static shared memory without the
    reserve. A device function has no registers of its own.
    """

    function: str
    arch: str
    registers: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    stack_bytes: int
    shared_bytes: int | None
    barriers: int | None
    source: str
    note: str = ""


def read_compiled(path: str | Path, arch: str = "") -> list[CompiledFunction]:
    """The functions of a ptxas log or a cuobjdump listing, in the order of the file.

    arch ("90a" or "sm_90a") is used where a cuobjdump listing names none. Raises EvidenceError when the file is empty,
    binary, cut short, neither listing, or of another architecture than said; OSError when it cannot be read. Memory is
    bounded by 100,000 functions.
    """
    reader = _Reader(str(path), _sm(arch))
    line = ""
    for number, line in enumerate(read_lines(path), 1):
        reader.take(number, line.rstrip("\r\n"))
    reader.finish(cut=not line.endswith(("\n", "\r")))
    return reader.functions


def _sm(arch: str) -> str:
    name = arch.strip().removeprefix("sm_").replace(".", "")
    if name and name.rstrip("af") not in _KNOWN:
        raise ValueError(f"arch = {arch!r} is unknown; write it as 90a or sm_90a")
    return f"sm_{name}" if name else ""


class _Reader:
    """The state between lines: the function that is open, and the architecture that holds."""

    def __init__(self, path: str, arch: str) -> None:
        self.path = path
        self.given = arch
        self.arch = ""
        self.functions: list[CompiledFunction] = []
        self.entry = ""  # ptxas: the kernel whose "Used" line is still to come
        self.properties = ""  # ptxas: the function whose stack line is still to come
        self.named = ""  # cuobjdump: the function whose resources are still to come
        self.last_was_evidence = False
        self.stacks: dict[str, tuple[int, int, int]] = {}
        self.failure = ""  # what the compiler refused

    def error(self, text: str, number: int | None = None) -> EvidenceError:
        return EvidenceError(f"{self.path}{'' if number is None else f':{number}'}: {text}")

    def take(self, number: int, line: str) -> None:
        if not line or line.isspace():
            self.last_was_evidence = False
            return
        self.last_was_evidence = True
        if _LONG_NUMBER.search(line) and (_USED.search(line) or _STACK.search(line) or _RESOURCES.fullmatch(line)):
            raise self.error(
                "a figure of more than 12 digits counts no registers or bytes; the file is damaged", number
            )
        if match := _ENTRY.search(line):
            self._close_entry()
            self.entry, self.stacks = match[1], {}
            self._state_arch(match[2], number)
        elif match := _PROPERTIES.search(line):
            self.properties = match[1].strip()
        elif self.properties and (match := _STACK.search(line)):
            self._stack(match)
        elif match := _USED.search(line):
            if not self.entry:
                raise self.error("a 'Used … registers' line without its kernel; the log is filtered or damaged", number)
            self._used(number, match)
        elif match := _FUNCTION.fullmatch(line):
            if self.named:
                raise self.error(f"function {self.named!r} has no resource line", number)
            self.named = match[1]
        elif self.named:
            self._resources(number, line)
        elif match := _ARCH.fullmatch(line.strip()):
            self._state_arch(match[1], number)
        elif match := _FAILED.search(line):
            self.failure = self.failure or match[1].strip()
        else:
            self.last_was_evidence = "ptxas info" in line and "ompil" not in line
        if len(self.functions) > MAX_FUNCTIONS:
            raise self.error(f"more than {MAX_FUNCTIONS:,} functions; split the file", number)

    def finish(self, cut: bool) -> None:
        if self.failure:
            raise self.error(f"holds the compiler's error: {self.failure[:300]}")
        self._close_entry()
        if self.properties or self.named:
            raise self.error(f"ends within function {self.properties or self.named!r}; the file is cut short")
        if not self.functions:
            raise self.error("holds no ptxas -v or cuobjdump --dump-resource-usage lines; compile with -Xptxas -v")
        if cut and self.last_was_evidence:
            raise self.error("its last line has no line end and may be cut short; add one if the file is whole")

    def _state_arch(self, arch: str, number: int) -> None:
        if self.given and arch.rstrip("af") != self.given.rstrip("af"):
            raise self.error(f"is about {arch}, not {self.given}", number)
        self.arch = arch

    def _close_entry(self) -> None:
        if self.entry:
            raise self.error(f"no 'Used … registers' line for kernel {self.entry!r}; the log is cut short or damaged")

    def _stack(self, match: re.Match[str]) -> None:
        frame, stores, loads = int(match[1]), int(match[2]), int(match[3])
        if self.properties == self.entry:
            self.stacks[self.entry] = (frame, stores, loads)
        else:
            # Its registers are part of its callers'.
            self.functions.append(
                CompiledFunction(self.properties, self.arch, None, stores, loads, frame, None, None, "ptxas", "device")
            )
        self.properties = ""

    def _used(self, number: int, match: re.Match[str]) -> None:
        found: dict[str, int] = {}
        for part in match[2].split(", ") if match[2] else ():
            known = _USED_PART.fullmatch(part.strip())
            if known is None:
                raise self.error(f"{part.strip()!r} is not understood in a 'Used' line", number)
            found |= {name: int(value) for name, value in known.groupdict().items() if value is not None}
        if self.entry not in self.stacks:
            raise self.error(f"kernel {self.entry!r} has no stack and spill line; the log is damaged", number)
        frame, stores, loads = self.stacks[self.entry]
        self.functions.append(
            CompiledFunction(
                self.entry,
                self.arch,
                int(match[1]),
                stores,
                loads,
                frame,
                found.get("smem", 0),
                found.get("barriers"),
                "ptxas",
            )
        )
        self.entry = ""

    def _resources(self, number: int, line: str) -> None:
        match = _RESOURCES.fullmatch(line)
        if match is None:
            raise self.error(f"{line.strip()[:60]!r} is no resource line for function {self.named!r}", number)
        constant = _CONSTANT0.search(match[5])
        early = constant is not None and int(constant[1]) < _FIRST_PARAMETER_SM90
        arch, note = self._listing_arch(early, number)
        shared = int(match[3])
        static: int | None = shared
        if shared and not early:
            if not arch:
                static = None
                note = f"SHARED:{shared} may include {_RESERVED} reserved bytes (sm_90 and later); give --arch"
            elif _at_least_sm90(arch) and shared < _RESERVED:
                static = None
                note = f"SHARED:{shared} is less than the {_RESERVED} reserved bytes of {arch}; not understood"
            elif _at_least_sm90(arch):
                static = shared - _RESERVED
        self.functions.append(
            CompiledFunction(
                self.named, arch, int(match[1]), None, None, int(match[2]), static, None, "cuobjdump", note
            )
        )
        self.named = ""

    def _listing_arch(self, early: bool, number: int) -> tuple[str, str]:
        """Architecture of a cuobjdump listing, and where it comes from when the listing does not say.

        early: the constant bank is laid out as up to sm_89.
        """
        stated = self.arch or self.given
        if stated:
            if early and _at_least_sm90(stated):
                raise self.error(
                    f"function {self.named!r} has the constant bank of sm_89 or before, not {stated}", number
                )
            return stated, ""
        named = _arch_of_name(self.path)
        if not named or (early and _at_least_sm90(named)):
            return "", "the listing names no architecture; give --arch"
        return named, f"{named} is taken from the file's name"


def _at_least_sm90(arch: str) -> bool:
    digits = arch.removeprefix("sm_").rstrip("af")
    return digits.isdigit() and int(digits) >= 90


def _arch_of_name(path: str) -> str:
    stems = [stem for stem in _NAME_ARCH.findall(Path(path).stem) if stem.rstrip("af") in _KNOWN]
    return f"sm_{stems[-1]}" if stems else ""


def choose(functions: Iterable[CompiledFunction], name: str, path: str) -> CompiledFunction:
    """The one kernel whose name contains `name` ("" when there is only one); raises EvidenceError otherwise."""
    kernels = [one for one in functions if one.registers is not None and name in one.function]
    if len(kernels) == 1:
        return kernels[0]
    if not kernels:
        raise EvidenceError(f"{path}: no kernel name contains {name!r}")
    shown = ", ".join(f"{one.function[:60]} ({one.arch or 'unknown architecture'})" for one in kernels[:4])
    raise EvidenceError(
        f"{path}: {len(kernels)} kernels match {name!r}: {shown}; give more of the name after the colon"
    )
