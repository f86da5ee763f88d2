"""Domains: the integers or residues an encoding covers, and the written grammar of catalogue keys.

    key      = range "." range "." format | residue "." format
    range    = "int" n      −2^(n−1) … 2^(n−1) − 1
             | "uint" n     0 … 2^n − 1
             | "sig" n      |x| ≤ 2^n − 1, a significand of n bits with its sign (FP16: sig11)
             | "pm" n       |x| ≤ n
    residue  = "mod" m      all residues modulo m
             | "mod" m "c" c    c of the m residues: a partial-cover modulus
    format   = a name in gemmulate.formats

Examples: int4.int8.fp4_e2m1, sig11.sig11.fp4_e2m1, mod139.fp4_e2m1, mod97c95.fp4_e2m1.
"""

import re
from dataclasses import dataclass

from gemmulate import formats

_RANGE = re.compile(r"(int|uint|sig|pm)([1-9][0-9]{0,3})")
_RESIDUE = re.compile(r"mod([1-9][0-9]{0,5})(?:c([1-9][0-9]{0,5}))?")
# Wider ranges are built from residues, and their look-up tables would not fit a cache.
_MOST_BITS = 20
GRAMMAR = (
    "a key is RANGE.RANGE.FORMAT or modM.FORMAT, e.g. int4.int8.fp4_e2m1 or mod139.fp4_e2m1 "
    "(ranges: intN, uintN, sigN, pmN; partial cover: modMcC)"
)


@dataclass(frozen=True, slots=True)
class Domain:
    """Consecutive integers low … high, or residues modulo `modulus` of which `covered` are reached.

    >>> Domain.parse("int4")
    Domain(name='int4', low=-8, high=7, modulus=None)
    """

    name: str
    low: int
    high: int
    modulus: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Domain":
        """Read one range or residue of the grammar; ValueError says what is allowed."""
        if match := _RANGE.fullmatch(text):
            kind, n = match[1], int(match[2])
            if kind != "pm" and n > _MOST_BITS:
                raise ValueError(
                    f"range {text!r} has {n} bits: direct encodings end at {_MOST_BITS}; use residues beyond"
                )
            low = {"int": -(1 << n - 1), "uint": 0, "sig": 1 - (1 << n), "pm": -n}[kind]
            high = {"int": (1 << n - 1) - 1, "uint": (1 << n) - 1, "sig": (1 << n) - 1, "pm": n}[kind]
            return cls(text, low, high)
        if match := _RESIDUE.fullmatch(text):
            m = int(match[1])
            covered = int(match[2] or m)
            if m < 2 or covered > m or (match[2] and covered == m):
                raise ValueError(f"residue {text!r}: the modulus is at least 2 and a partial cover is below it")
            return cls(text, 0, covered - 1, m)
        raise ValueError(f"unknown range {text!r}: {GRAMMAR}")

    @property
    def size(self) -> int:
        """How many integers or residues are covered."""
        return self.high - self.low + 1

    @property
    def partial(self) -> bool:
        return self.modulus is not None and self.size < self.modulus


def split_key(key: str) -> tuple[Domain, Domain, str]:
    """Left domain, right domain and format name of a catalogue key; ValueError explains the grammar.

    >>> [d.name for d in split_key("int4.int8.fp4_e2m1")[:2]]
    ['int4', 'int8']
    """
    parts = key.split(".") if isinstance(key, str) else []
    if len(parts) == 2 and parts[0].startswith("mod"):
        parts = [parts[0], parts[0], parts[1]]
    elif len(parts) != 3 or any(p.startswith("mod") for p in parts[:2]):
        raise ValueError(f"key {key!r} does not parse: {GRAMMAR}")
    left, right = Domain.parse(parts[0]), Domain.parse(parts[1])
    return left, right, formats.get(parts[2]).name


def join_key(left: Domain, right: Domain, format_name: str) -> str:
    """The key of a pair of domains over a format."""
    return f"{left.name}.{format_name}" if left.modulus else f"{left.name}.{right.name}.{format_name}"
