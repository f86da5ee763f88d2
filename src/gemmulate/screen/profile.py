"""Nsight Compute exports: every CSV dialect, and .ncu-rep through the vendor's own module.

Dialects: the long details page (20 columns, rule rows between, rows of 16 columns), the long metrics page (15 columns,
thousands separators, n/a), the wide raw page with a row of units; UTF-16 with a byte-order mark; decimal commas.
"""

import csv
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from gemmulate.errors import EngineUnavailable
from gemmulate.screen.figures import MixedStyles, base_unit, decimal_mark, parse_number, says_nothing
from gemmulate.screen.profile_items import CHIPS, ITEMS, Item, exists, metric_on, substitute
from gemmulate.screen.text_file import EvidenceError, read_lines

MAX_KERNELS: Final = 100_000
_MAX_REPEATS: Final = 16
_REPORT_MAGIC: Final = b"NVR\0"
_LONG: Final = ("ID", "Kernel Name", "Block Size", "Grid Size", "CC", "Section Name", "Metric Name", "Metric Unit")
_WIDE: Final = ("ID", "Kernel Name", "CC")
# A spreadsheet saves semicolons or tabs where the profiler wrote commas.
_HEADER = re.compile(r'\s*(?:"ID"|ID)([,;\t])(?=.*Kernel Name)')
_WANTED: Final = {base + suffix for item in ITEMS for base in item.bases for suffix in item.suffixes}
_DETAILS: Final = {(section, name) for item in ITEMS for section, name, _ in item.details}


class Evidence(msgspec.Struct, frozen=True):
    """One item for one kernel. `value` is None when the file has none; `note` then says why and what to collect."""

    item: str
    value: float | None
    unit: str
    metric: str
    note: str = ""


class Identity(msgspec.Struct, frozen=True):
    """What tells one profiled launch from another."""

    process: str
    id: str
    kernel: str
    compute_capability: str


class ProfiledKernel(msgspec.Struct, frozen=True):
    """One profiled launch."""

    id: str
    kernel: str
    compute_capability: str
    chip: str
    evidence: list[Evidence]


PROFILER_TIME: Final = "under the profiler: base clocks, flushed caches; not to be mixed with wall times"

Key = tuple[str, str]  # (section, name); the section is "" for metrics by name
Figures = dict[Key, list[tuple[str, str]]]  # -> (unit, text), in the order found


def read_profile(path: str | Path) -> list[ProfiledKernel]:
    """The evidence items of every kernel in a profiler export, in the order of the file.

    Values come in base units: bytes (Kbyte = 1000 B), seconds, hertz, percent. Raises EvidenceError for a file that is
    empty, binary, cut short, no export, or holds only the profiler's errors; EngineUnavailable for an .ncu-rep without
    the ncu_report module; OSError when it cannot be read. Memory is bounded by 100,000 kernels.
    """
    with Path(path).open("rb") as file:
        head = file.read(4)
    if head == _REPORT_MAGIC or (head and str(path).endswith(".ncu-rep")):
        return _read_report(path)
    reader = _Csv(str(path))
    mark = reader.decimal_mark()
    kernels = [_kernel(identity, figures, mark) for identity, figures in reader.kernels()]
    if not kernels:
        raise EvidenceError(f"{path}: holds a header and no kernel; the export is cut short or nothing was profiled")
    return kernels


class _Csv:
    """One CSV export: its rows after the profiler's messages, and the dialect that its header shows."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.wide = False
        self._last: Identity | None = None

    def decimal_mark(self) -> str:
        try:
            return decimal_mark(text for _, _, _, text in self.cells() if "." in text or "," in text)
        except MixedStyles as error:
            raise EvidenceError(f"{self.path}: {error}; export with one locale") from None

    def kernels(self) -> Iterator[tuple[Identity, Figures]]:
        """Kernels with the figures that an item needs; the rows of one kernel are adjacent."""
        open_kernel: Identity | None = None
        figures: Figures = {}
        seen: set[tuple[str, str]] = set()
        for identity, key, unit, text in self.cells():
            if identity != open_kernel:
                if open_kernel is not None:
                    yield open_kernel, figures
                if (identity.process, identity.id) in seen:
                    raise EvidenceError(f"{self.path}: kernel ID {identity.id} comes twice; give one export per file")
                seen.add((identity.process, identity.id))
                if len(seen) > MAX_KERNELS:
                    raise EvidenceError(f"{self.path}: more than {MAX_KERNELS:,} kernels; split the file")
                open_kernel, figures = identity, {}
            if key[1] in _WANTED or key in _DETAILS:
                name = ("", key[1]) if key[1] in _WANTED else key
                found = figures.setdefault(name, [])
                # The rows of one name differ in unit or section; more of them are repeats that would fill the memory.
                if len(found) < _MAX_REPEATS:
                    found.append((unit, text))
        if open_kernel is not None:
            yield open_kernel, figures

    def cells(self) -> Iterator[tuple[Identity, Key, str, str]]:
        """(kernel, (section, name), unit, text) of every figure."""
        rows = self._rows()
        header = next(rows)
        rows = self._one_header(rows, header)
        self.wide = "Metric Name" not in header
        missing = [name for name in (_WIDE if self.wide else _LONG) if name not in header]
        if missing:
            raise EvidenceError(f"{self.path}: no column {missing[0]!r}; this is no Nsight Compute export")
        column = {name: index for index, name in enumerate(header)}
        yield from self._wide(rows, header, column) if self.wide else self._long(rows, header, column)

    def _long(
        self, rows: Iterator[list[str]], header: list[str], column: dict[str, int]
    ) -> Iterator[tuple[Identity, Key, str, str]]:
        value = column.get("Metric Value", len(header))
        name_at, section_at, unit_at = column["Metric Name"], column["Section Name"], column["Metric Unit"]
        for row in rows:
            # Rows end after the value; only rule rows carry the rule's columns.
            if len(row) <= value or len(row) > len(header):
                raise self._bad_row(row, header)
            name = row[name_at]
            if name:
                yield self._identity(row, column), (row[section_at], name), row[unit_at], row[value]

    def _wide(
        self, rows: Iterator[list[str]], header: list[str], column: dict[str, int]
    ) -> Iterator[tuple[Identity, Key, str, str]]:
        units = next(rows, None)
        if units is None or len(units) != len(header) or units[column["ID"]]:
            raise EvidenceError(f"{self.path}: the row of units under the header is missing; export with --page raw")
        first = column["CC"] + 1
        for row in rows:
            if len(row) != len(header):
                raise self._bad_row(row, header)
            identity = self._identity(row, column)
            for index in range(first, len(row)):
                yield identity, ("", header[index]), units[index], row[index]

    def _one_header(self, rows: Iterator[list[str]], header: list[str]) -> Iterator[list[str]]:
        for row in rows:
            if row == header:
                raise EvidenceError(f"{self.path}: a second header; give one export per file")
            yield row

    def _bad_row(self, row: list[str], header: list[str]) -> EvidenceError:
        return EvidenceError(
            f"{self.path}: a row of {len(row)} columns under {len(header)}, {row[0][:40]!r}; the file is cut short, or "
            "the profiled program printed into it"
        )

    def _identity(self, row: list[str], column: dict[str, int]) -> Identity:
        """The kernel of a row; the rows of a kernel are adjacent, so the last one is kept."""
        process = row[column["Process ID"]] if "Process ID" in column else ""
        number, name, capability = row[column["ID"]], row[column["Kernel Name"]], row[column["CC"]]
        last = self._last
        if last is None or last.id != number or last.process != process or last.kernel != name:
            self._last = last = Identity(process, number, name, capability)
        return last

    def _rows(self) -> Iterator[list[str]]:
        """CSV rows from the header on; what the profiler and the program print before it is skipped."""
        lines = read_lines(self.path)
        first, delimiter = self._header(lines)
        rows = csv.reader(_chain(first, self._body(lines)), delimiter=delimiter, strict=True)
        try:
            for row in rows:
                if row:
                    yield row
        except csv.Error as error:
            raise EvidenceError(f"{self.path}: damaged or cut short near line {rows.line_num}: {error}") from None

    def _header(self, lines: Iterator[str]) -> tuple[str, str]:
        """The header line and its delimiter."""
        error = ""
        for line in lines:
            if match := _HEADER.match(line):
                return line, match[1]
            if line.startswith("==ERROR==") and not error:
                error = line.removeprefix("==ERROR==").strip()
        if error:
            raise EvidenceError(f"{self.path}: holds only the profiler's error: {error}")
        raise EvidenceError(
            f'{self.path}: no header that starts with "ID" and has "Kernel Name"; this is no Nsight Compute CSV export'
        )

    def _body(self, lines: Iterator[str]) -> Iterator[str]:
        last = "\n"
        for line in lines:
            if line.startswith("==ERROR=="):
                raise EvidenceError(f"{self.path}: the profiler failed: {line.removeprefix('==ERROR==').strip()}")
            if not line.startswith("=="):
                yield line
                last = line
        # A row may end early without looking damaged: the last of "12" and "123" are both figures.
        if not last.endswith(("\n", "\r", '"')):
            raise EvidenceError(f"{self.path}: its last line has no end and may be cut short")


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _kernel(identity: Identity, figures: Figures, mark: str) -> ProfiledKernel:
    chip = CHIPS.get(identity.compute_capability, "")
    evidence = [_item(item, figures, mark, chip) for item in ITEMS]
    found = {one.item: one for one in evidence}
    issue, idle = found["issue_active"], found["no_eligible"]
    if idle.value is None and issue.value is not None and 0 <= issue.value <= 100:
        derived = Evidence("no_eligible", 100 - issue.value, "%", f"100 − {issue.metric}")
        evidence[evidence.index(idle)] = derived
    return ProfiledKernel(identity.id, identity.kernel, identity.compute_capability, chip, evidence)


def _item(item: Item, figures: Figures, mark: str, chip: str) -> Evidence:
    refused = ""
    odd: Evidence | None = None
    for metric, unit, text in _candidates(item, figures):
        found = _figure(item, metric, unit, text, mark)
        if found is not None:
            return found
        refused = refused or metric
        if odd is None and not says_nothing(text):
            odd = Evidence(item.name, None, item.unit, metric, f"{text.strip()[:40]!r} is not understood as a figure")
    return odd or _absent(item, chip, refused)


def _candidates(item: Item, figures: Figures) -> Iterator[tuple[str, str, str]]:
    """(metric, unit, text) of every figure that may give the item, best first."""
    for suffix in item.suffixes:
        for base in item.bases:
            for unit, text in figures.get(("", base + suffix), ()):
                yield base + suffix, unit, text
    for section, name, wanted in item.details:
        for unit, text in figures.get((section, name), ()):
            if base_unit(unit)[0] == wanted:
                yield f"{section} / {name}", unit, text


def _figure(item: Item, metric: str, unit: str, text: str, mark: str) -> Evidence | None:
    value = parse_number(text, mark)
    if value is None:
        return None
    base, factor = base_unit(unit)
    # Dividing by the inverse keeps decimal figures decimal.
    scaled = value * factor if factor >= 1 else value / round(1 / factor)
    note = PROFILER_TIME if item.name == "duration" else ""
    if base and item.unit and base != item.unit:
        note = f"unit {unit!r} is not known and not converted to {item.unit}"
    return Evidence(item.name, scaled, base or item.unit, metric, note)


@cache
def _absent(item: Item, chip: str, refused: str) -> Evidence:
    """Shared by all kernels that lack the item, so that a large export stays small in memory."""
    metric = metric_on(item, chip)
    if metric is None:
        other = substitute(item, chip)
        instead = f", use {other}" if other else ""
        return Evidence(item.name, None, item.unit, item.bases[0] + item.suffixes[0], f"not on this chip{instead}")
    if refused:
        if chip and not exists(refused.partition(".")[0], chip):
            return Evidence(item.name, None, item.unit, refused, f"not on this chip, use {metric}")
        return Evidence(item.name, None, item.unit, refused, "the profiler gave no value")
    return Evidence(item.name, None, item.unit, metric, f"not collected; collect {metric}")


def _read_report(path: str | Path) -> list[ProfiledKernel]:
    try:
        module: Any = import_module("ncu_report")
    except ImportError:
        raise EngineUnavailable(
            f"{path} is a binary report; pip install ncu-report (proprietary), or export it: "
            "ncu --import FILE --csv --page raw"
        ) from None
    try:
        report = module.load_report(str(path))
    except Exception as error:  # the vendor's module raises its own kinds
        raise EvidenceError(f"{path}: cannot be loaded as a report: {error}") from None
    kernels: list[ProfiledKernel] = []
    for range_index in range(report.num_ranges()):
        part = report.range_by_idx(range_index)
        for index in range(part.num_actions()):
            action = part.action_by_idx(index)
            figures: Figures = {}
            for name in action.metric_names():
                if name in _WANTED:
                    metric = action.metric_by_name(name)
                    figures[("", name)] = [(metric.unit(), repr(metric.value()))]
            capability = [
                action.metric_by_name(f"device__attribute_compute_capability_{level}") for level in ("major", "minor")
            ]
            version = ".".join(str(int(one.value())) for one in capability if one is not None)
            identity = Identity("", str(len(kernels)), str(action.name()), version)
            kernels.append(_kernel(identity, figures, "."))
    if not kernels:
        raise EvidenceError(f"{path}: the report holds no kernel")
    return kernels
