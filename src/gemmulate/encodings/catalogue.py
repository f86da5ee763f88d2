"""The catalogue: one JSON file per encoding, checked whenever it is read."""

import hashlib
import json
import os
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from gemmulate import formats
from gemmulate.encodings.domain import GRAMMAR, join_key, split_key
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.verify import check_identity
from gemmulate.errors import GemmulateError

_RESTORE = "restore the file from the distribution or regenerate it with `gemmulate encodings search`"
ENTRIES = Path(__file__).with_name("entries")


class CatalogueError(GemmulateError, ValueError):
    """A catalogue file is damaged: the message names the file, what is wrong, and how to restore it."""


class UnknownEncoding(GemmulateError, LookupError):
    """No encoding of that key is in the catalogue; the message says which keys come near."""


class _Record(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One file. What can be derived (products, status, max_depth) is stored for readers and compared on load."""

    key: str
    products: int
    status: str
    max_depth: int
    weights_left: tuple[int, ...]
    weights_right: tuple[int, ...]
    planes_left: tuple[tuple[int, ...], ...]
    planes_right: tuple[tuple[int, ...], ...]
    coefficients: tuple[int, ...]
    divisor: int
    plane_max: int
    bound: int
    bound_by: str
    provenance: dict[str, str]
    checksum: str


def _checksum(record: dict[str, Any]) -> str:
    """SHA-256 of the record without its checksum, as compact JSON with sorted keys."""
    body = {k: v for k, v in record.items() if k != "checksum"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _path(root: Path, key: str) -> Path:
    stem, format_name = key.rsplit(".", 1)
    return root / format_name / f"{stem}.json"


def write(encoding: Encoding, root: Path = ENTRIES) -> Path:
    """Write one entry below `root` (whole or not at all) and return its path."""
    record: dict[str, Any] = {
        "key": encoding.key,
        "products": encoding.products,
        "status": encoding.status,
        "max_depth": encoding.max_depth(),
        "weights_left": encoding.weights_left,
        "weights_right": encoding.weights_right,
        "planes_left": encoding.planes_left,
        "planes_right": encoding.planes_right,
        "coefficients": encoding.coefficients,
        "divisor": encoding.divisor,
        "plane_max": encoding.alphabet.max_abs,
        "bound": encoding.bound,
        "bound_by": encoding.bound_by,
        "provenance": encoding.provenance,
    }
    record["checksum"] = _checksum(record)
    path = _path(root, encoding.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in record.items())
    partial = path.with_suffix(".partial")
    partial.write_text(f"{{\n{lines}\n}}\n")
    os.replace(partial, path)
    return path


def read(path: Path) -> Encoding:
    """Read one entry and check checksum, key, derived fields and identity; CatalogueError when anything differs."""
    restore = _RESTORE
    try:
        raw = path.read_bytes()
        record = msgspec.json.decode(raw, type=_Record)
        if _checksum(msgspec.to_builtins(record)) != record.checksum:
            raise CatalogueError(f"{path} is damaged: its checksum does not match its content; {restore}")
        fields = msgspec.structs.asdict(record)
        derived = {name: fields.pop(name) for name in ("products", "status", "max_depth")}
        del fields["checksum"]
        encoding = Encoding(**fields)
        failure = check_identity(encoding)
        if failure:
            raise CatalogueError(f"{path} holds no encoding of {record.key}: {failure}; {restore}")
        for name, stored in derived.items():
            actual = encoding.max_depth() if name == "max_depth" else getattr(encoding, name)
            if stored != actual:
                raise CatalogueError(f"{path} is damaged: {name} is {stored}, derived {actual}; {restore}")
    except OSError as error:
        raise CatalogueError(f"{path} cannot be read: {error.strerror or error}; {restore}") from None
    except (msgspec.DecodeError, ValueError) as error:
        if isinstance(error, CatalogueError):
            raise
        raise CatalogueError(f"{path} is damaged: {error}; {restore}") from None
    if path.name != _path(path.parent, encoding.key).name or path.parent.name != encoding.format.name:
        raise CatalogueError(f"{path} holds the key {encoding.key}; {restore}")
    return encoding


class Catalogue:
    """Encodings in a folder of JSON files (default: those that gemmulate ships).

    >>> Catalogue().get("mod13.fp4_e2m1").products
    1
    """

    def __init__(self, root: str | os.PathLike[str] | None = None) -> None:
        self.root = Path(root) if root is not None else ENTRIES
        if not self.root.is_dir():
            raise CatalogueError(f"catalogue folder {self.root} does not exist; give a folder of FORMAT/KEY.json files")

    def keys(self, format_name: str | None = None) -> list[str]:
        """All keys, in a natural order; of one format when named."""
        names = (
            [formats.get(format_name).name]
            if format_name is not None
            else sorted(p.name for p in self.root.iterdir() if p.is_dir())
        )
        found = [f"{path.stem}.{name}" for name in names for path in (self.root / name).glob("*.json")]
        return sorted(found, key=_natural)

    def get(self, key: str) -> Encoding:
        """The encoding of a key; a pair stored the other way round is transposed. UnknownEncoding if there is none."""
        try:
            left, right, format_name = split_key(key)
        except ValueError as error:
            if key in self.keys():
                name = _path(self.root, key)
                raise CatalogueError(f"{name} is no entry of a catalogue: {error}; move it elsewhere") from None
            raise
        for candidate, turned in ((key, False), (join_key(right, left, format_name), True)):
            path = _path(self.root, candidate)
            if os.path.lexists(path):
                try:
                    stat = path.stat()
                except OSError as error:  # a link to nowhere or to itself
                    raise CatalogueError(f"{path} cannot be read: {error.strerror or error}; {_RESTORE}") from None
                return _transposed(_read(path, stat.st_mtime_ns, stat.st_size), turned)
        present = self.keys(format_name)
        if not present:
            raise UnknownEncoding(f"no encodings over {format_name} in the catalogue; see `gemmulate encodings list`")
        near = get_close_matches(key, present, n=3) or present[:3]
        raise UnknownEncoding(
            f"no encoding {key!r} in the catalogue ({len(present)} over {format_name}); near it: {', '.join(near)}; "
            f"{GRAMMAR}"
        )

    def lookup(self, left: str, right: str, alphabet: str) -> Encoding:
        """The encoding of a pair of ranges over a format: lookup("int4", "int8", "fp4_e2m1")."""
        return self.get(f"{left}.{right}.{alphabet}")

    def residues(self, format_name: str) -> list[Encoding]:
        """All encodings modulo m over a format."""
        return [self.get(key) for key in self.keys(format_name) if key.startswith("mod")]

    def __iter__(self) -> Iterator[Encoding]:
        return (self.get(key) for key in self.keys())


@lru_cache(maxsize=4096)
def _read(path: Path, changed_ns: int, size: int) -> Encoding:
    """Read once per state of the file: a file that changes while the process runs is checked again."""
    return read(path)


@lru_cache(maxsize=1024)
def _transposed(encoding: Encoding, turned: bool) -> Encoding:
    return encoding.transposed() if turned else encoding


def _natural(key: str) -> tuple[str, bool, tuple[int | str, ...]]:
    """Sort key: by format, integer pairs before residues, numbers by value."""
    stem, format_name = key.rsplit(".", 1)
    parts = "".join(c if c.isdigit() else f" {c} " for c in stem).split()
    return format_name, stem.startswith("mod"), tuple(f"{int(p):08d}" if p.isdigit() else p for p in parts)
