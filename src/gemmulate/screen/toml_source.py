"""TOML with line numbers: every complaint about a spec file names the file, the line and the key.

`tomllib` parses and validates; a scan of the text remembers on which line each key stands.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, final

from gemmulate.errors import FileError
from gemmulate.quantity import UNITS, Quantity, Status, units_of

# A design note is a few kilobytes; a file past this is something else.
MAX_BYTES: Final = 1_000_000
_KEY_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_QUANTITY_KEYS: Final = ("value", "unit", "status", "source", "boundary", "clock")

KeyPath = tuple[str | int, ...]


class SpecError(FileError):
    """A spec file breaks a rule; the message starts with file:line: key."""


class Figure(float):
    """A float that remembers how many decimals it was written with: 218.70 is finer than 218.7."""

    decimals: int

    def __new__(cls, text: str) -> "Figure":
        figure = super().__new__(cls, text)
        mantissa, _, exponent = text.lower().replace("_", "").partition("e")
        figure.decimals = max(0, len(mantissa.partition(".")[2]) - int(exponent or 0))
        return figure


@final
class TomlSource:
    """A parsed file with the line of each key.

    Raises SpecError when the file is too large, no UTF-8 text, or no TOML; OSError when it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise SpecError(f"{self.name}: larger than {MAX_BYTES:,} bytes; a spec file is a short TOML text")
        try:
            text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise SpecError(
                f"{self.name}:{line}: byte 0x{raw[error.start]:02x} is no UTF-8 text; save the TOML file as UTF-8"
            ) from None
        try:
            self.document: dict[str, Any] = tomllib.loads(text, parse_float=Figure)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise SpecError(f"{self.name}: not TOML: {error or 'nested too deeply'}") from None
        self._lines = _key_lines(text)

    def error(self, path: KeyPath, message: str) -> SpecError:
        """A SpecError at the line of `path` (or of the nearest table around it)."""
        probe = path
        # [[name]] where [name] was wanted has its line under (name, 0).
        while probe and probe not in self._lines and (*probe, 0) not in self._lines:
            probe = probe[:-1]
        line = self._lines.get(probe) or self._lines.get((*probe, 0), 1)
        return SpecError(f"{self.name}:{line}: {dotted(path) or 'file'}: {message}")

    def root(self) -> "Section":
        """The top-level table."""
        return Section(self, (), self.document, {})


@final
class Section:
    """One table of the file, read key by key; what was never asked for is an unknown key."""

    def __init__(self, source: TomlSource, path: KeyPath, table: dict[str, Any], defaults: dict[str, str]) -> None:
        self.source = source
        self.path = path
        self.table = table
        self.defaults = defaults

    def __contains__(self, key: str) -> bool:
        return key in self.table

    def error(self, key: str, message: str) -> SpecError:
        return self.source.error((*self.path, key) if key else self.path, message)

    def only(self, allowed: Collection[str]) -> None:
        """Refuse keys outside `allowed`, naming the nearest one."""
        for key in self.table:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(sorted(allowed))}"
                raise self.error(key, f"unknown key; {hint}")

    def _get(self, key: str, kind: type, what: str, required: bool) -> Any:
        if key not in self.table:
            if required:
                raise self.error("", f"key {key!r} is missing; give {what}")
            return None
        value = self.table[key]
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"{_shown(value)} is not {what}")
        return value

    def text(self, key: str, *, default: str | None = None, choices: Collection[str] = ()) -> str:
        """A string; with `choices`, one of them."""
        value = self._get(key, str, "a string", default is None)
        if value is None:
            return default or ""
        if choices and value not in choices:
            raise self.error(key, f"{_shown(value)} is unknown; use one of {', '.join(choices)}")
        if not _printable(value):
            raise self.error(key, f"{_shown(value)} holds a control character; remove it")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, bool, "true or false", False)
        return default if value is None else bool(value)

    def integer(self, key: str) -> int:
        return int(self._get(key, int, "an integer", True))

    def strings(self, key: str) -> list[str]:
        values = self._get(key, list, "a list of strings", False) or []
        for value in values:
            if not isinstance(value, str):
                raise self.error(key, f"{_shown(value)} is not a string")
        return list(values)

    def section(self, key: str, *, required: bool = True) -> "Section":
        table = self._get(key, dict, f"a table [{dotted((*self.path, key))}]", required) or {}
        return Section(self.source, (*self.path, key), table, self.defaults)

    def sections(self, key: str, *, required: bool = False) -> dict[str, "Section"]:
        """The named sub-tables of a table."""
        outer = self.section(key, required=required)
        for name in outer.table:
            if not name.strip() or "\n" in name or not _printable(name):
                path = (*self.path, key, name)
                raise self.source.error(path, f"{_shown(name)} is no name; give one of printable characters")
        return {name: outer.section(name) for name in outer.table}

    def array(self, key: str) -> list["Section"]:
        """The tables of an array of tables."""
        items = self._get(key, list, f"an array of tables [[{key}]]", False) or []
        result = []
        for index, item in enumerate(items):
            path = (*self.path, key, index)
            if not isinstance(item, dict):
                raise self.source.error(path, f"{_shown(item)} is not a table")
            result.append(Section(self.source, path, item, self.defaults))
        return result

    def quantity(
        self,
        key: str,
        dimension: str,
        *,
        interval: bool = False,
        whole: bool = False,
        positive: bool = True,
        most: float = math.inf,
        statuses: Collection[Status] = tuple(Status),
        as_written: bool = False,
    ) -> Quantity:
        """A required number with unit, status and source, of the given dimension.

        interval admits [low, high]; whole asks for integers; positive refuses zero; most is the largest value
        that may stand here in the unit given, statuses the statuses; as_written keeps a `Figure` where there are
        decimals.
        """
        table = self._get(key, dict, "{ value = …, unit = …, status = …, source = … }", True)
        entry = Section(self.source, (*self.path, key), table, self.defaults)
        entry.only(_QUANTITY_KEYS)
        for needed in ("value", "unit", "status"):
            if needed not in table:
                raise self.error(key, f"{needed} is missing; every number carries value, unit, status and source")
        value = _number_or_interval(entry, table["value"], interval, _written if as_written else float)
        unit = entry.text("unit")
        if unit not in UNITS or UNITS[unit][0] != dimension:
            raise self.error(key, f"unit {unit!r} does not measure {dimension}; use {' or '.join(units_of(dimension))}")
        status = Status(entry.text("status", choices=[str(one) for one in Status]))
        if status not in statuses:
            raise self.error(
                key, f"status {str(status)!r} may not stand here; this number must be {' or '.join(statuses)}"
            )
        fields = {name: entry.text(name, default=self.defaults.get(name, "")) for name in _QUANTITY_KEYS[3:]}
        if not fields["source"]:
            raise self.error(key, "source is missing; say where the number comes from, here or in [defaults]")
        try:
            quantity = Quantity(value, unit, status, **fields)
        except ValueError as error:
            raise self.error(key, str(error)) from None
        low, high = quantity.ends
        if low < 0 or (positive and low == 0):
            raise self.error(key, f"value {low:g} must be {'positive' if positive else '0 or more'}")
        if high > most:
            raise self.error(key, f"value {high:g} {unit} is above {most:g}, the most that a block can have")
        if whole and (low != int(low) or high != int(high)):
            raise self.error(key, f"value {quantity.value!r} must be a whole number")
        if dimension == "ratio" and unit != "x" and quantity.to("1")[1] > 1:
            raise self.error(key, f"value {high:g} {unit} is above 100 %; a share lies between 0 and 1")
        return quantity

    def maybe(self, key: str, dimension: str, **rules: Any) -> Quantity | None:
        """`quantity` when the key is there, else None."""
        return self.quantity(key, dimension, **rules) if key in self.table else None


def dotted(path: KeyPath) -> str:
    """A key path as TOML writes it, indices in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            text += f".{part}" if part.isprintable() else f".{part!r}"
    return text.lstrip(".")


def _number_or_interval(
    entry: Section, value: Any, interval: bool, number: Callable[[Any], float]
) -> float | tuple[float, float]:
    if isinstance(value, list):
        if not interval:
            raise entry.error("", f"value {_shown(value)} is an interval; a single number is needed")
        if len(value) != 2 or not all(_is_number(end) for end in value):
            raise entry.error("", f"value {_shown(value)} is not [low, high]")
        return number(value[0]), number(value[1])
    if not _is_number(value):
        raise entry.error("", f"value {_shown(value)} is not a number")
    return number(value)


def _written(value: Any) -> float:
    return value if isinstance(value, Figure) else float(value)


def _is_number(value: Any) -> bool:
    # Python's integers may exceed the range of a float; such a figure is a typing error.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _printable(text: str) -> bool:
    """Whether a text may go to a terminal: escape sequences may not."""
    return all(character.isprintable() or character in "\n\t" for character in text)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _key_lines(text: str) -> dict[KeyPath, int]:
    """The line of each table header and key. The text is known to be valid TOML."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    depth, quote = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        if not depth and not quote:
            stripped = line.strip()
            if stripped.startswith("["):
                array = stripped.startswith("[[")
                keys = _resolve(_keys(stripped.lstrip("[")), counts)
                if array:
                    counts[keys] = counts.get(keys, -1) + 1
                    keys = (*keys, counts[keys])
                table = keys
                lines.setdefault(table, number)
                continue
            keys = _keys(stripped)
            for length in range(1, len(keys) + 1):
                lines.setdefault((*table, *keys[:length]), number)
        depth, quote = _open_after(line, depth, quote)
    return lines


def _keys(text: str) -> KeyPath:
    keys: list[str | int] = []
    position = 0
    while match := _KEY_PART.match(text, position):
        keys.append(next(part for part in match.groups() if part is not None))
        position = match.end()
        if text[position : position + 1] != ".":
            break
        position += 1
    return tuple(keys)


def _resolve(keys: KeyPath, counts: dict[KeyPath, int]) -> KeyPath:
    """Header keys with the running index after each array of tables they pass through."""
    path: KeyPath = ()
    for index, key in enumerate(keys):
        path = (*path, key)
        if index < len(keys) - 1 and path in counts:
            path = (*path, counts[path])
    return path


def _open_after(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Bracket depth and open multi-line quote after `line`."""
    position = 0
    while position < len(line):
        if quote:
            end = line.find(quote, position)
            while quote == '"""' and end > 0 and line[end - 1] == "\\":
                end = line.find(quote, end + 1)
            if end < 0:
                return depth, quote
            position, quote = end + 3, ""
            continue
        character = line[position]
        if line.startswith(('"""', "'''"), position):
            quote = line[position : position + 3]
            position += 3
        elif character in "\"'":
            position += 1
            while position < len(line) and line[position] != character:
                position += 2 if character == '"' and line[position] == "\\" else 1
            position += 1
        elif character == "#":
            break
        else:
            depth += (character in "[{") - (character in "]}")
            position += 1
    return depth, quote
