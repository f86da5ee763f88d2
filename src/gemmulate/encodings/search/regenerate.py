"""Regeneration: one key, or everything of a format, found again by search."""

from pathlib import Path

from gemmulate import formats
from gemmulate.encodings import catalogue
from gemmulate.encodings.domain import split_key
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.search import ranges, residues
from gemmulate.encodings.search.journal import Journal, Progress, silent
from gemmulate.encodings.search.modular import Rejected


def search_key(key: str) -> tuple[Encoding | None, tuple[Rejected, ...]]:
    """The cheapest encoding the classes give for one key, and the classes that failed with their reasons.

    >>> found, rejected = search_key("mod17.fp4_e2m1")
    >>> found.products, [r.search for r in rejected]
    (3, ['one', 'square'])
    """
    left, right, format_name = split_key(key)
    if left.partial:
        raise ValueError(f"{key}: partial covers are searched with the format as a whole, not by key")
    if left.modulus:
        if format_name not in residues.REACH:
            raise ValueError(f"no residue search over {format_name}: choose from {', '.join(residues.REACH)}")
        found, rejected = residues.one_modulus((left.modulus, format_name))
        return (residues.bounded(found) if found else None), rejected
    return ranges.one_pair((f"{left.name}.{right.name}", format_name))


def regenerate(
    format_name: str,
    root: Path,
    *,
    processes: int = 1,
    progress: Progress = silent,
) -> list[Encoding]:
    """Search everything of one format and write it below `root`; an interrupted run goes on where it stopped."""
    name = formats.get(format_name).name
    if name not in residues.REACH:
        raise ValueError(f"no search over {name}: choose from {', '.join(residues.REACH)}")
    journal = Journal(root / f"{name}.search.jsonl")
    found = ranges.search_ranges(name, processes=processes, journal=journal, progress=progress)
    found += residues.search_residues(name, processes=processes, journal=journal, progress=progress)
    for encoding in found:
        catalogue.write(encoding, root)
    if journal.path is not None:
        journal.path.unlink(missing_ok=True)
    return found
