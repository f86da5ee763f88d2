"""What a plan says of products through planes: the encodings that `matmul(…, formats=…)` takes, chosen by its code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmulate.encodings import Design, Encoding
from gemmulate.engines.base import Array, Engine
from gemmulate.schemes.blocks import packed_bytes
from gemmulate.schemes.double_double import PairChoice
from gemmulate.schemes.encoded import planes_stored
from gemmulate.schemes.encoded_engine import EncodedEngine, fast_cover
from gemmulate.schemes.floats import FloatChoice, operand_shifts
from gemmulate.schemes.integers import IntegerChoice

Row = tuple[str, str, str]


@dataclass(frozen=True)
class PlaneUse:
    """The encodings of one product: a single direct one, or one for each modulus."""

    encodings: tuple[Encoding, ...]
    depths: tuple[int, ...]  # terms that the accumulators sum exactly, for each encoding
    partial: str = ""  # of partial covers: the products of the full covers that may have to take their place

    @property
    def moduli(self) -> tuple[int, ...]:
        return tuple(e.modulus for e in self.encodings if e.modulus)

    @property
    def products(self) -> int:
        return sum(e.products for e in self.encodings)

    @property
    def planes(self) -> tuple[int, int]:
        """Different planes of a and of b: a plane that several products share is stored once."""
        left, right = (sum(planes_stored(e, side) for e in self.encodings) for side in ("left", "right"))
        return left, right

    def packed_bytes(self, m: int, k: int, n: int) -> int:
        """Bytes of planes at once, one for each product and term."""
        return packed_bytes(m, n, k * self.products)

    def rows(self) -> list[Row]:
        """Rows of the plan's table: scheme, products, planes, encodings."""
        moduli, rows = self.moduli, list[Row]()
        if not moduli:
            rows.append(("scheme", "direct, 1 encoding", "its ranges hold all values; no residues"))
        elif self.partial:
            rows.append(("scheme", f"residues, {len(moduli)} moduli", self.partial))
        else:
            why = f"{moduli[0]} … {moduli[-1]}: product above the window; blocks of the product take no more"
            rows.append(("scheme", f"residues, {len(moduli)} moduli", why))
        by_format: dict[str, list[Encoding]] = {}
        for e in self.encodings:
            by_format.setdefault(e.format.name, []).append(e)
        counts = ", ".join(f"{sum(e.products for e in part)} {name}" for name, part in by_format.items())
        rows.append(("products", counts, f"of planes as INT8; sums cut after {min(self.depths):,} terms"))
        rows.append(
            ("planes", f"{self.planes[0]} of a, {self.planes[1]} of b", "look-up tables of the residues or values")
        )
        for name, part in by_format.items():
            stems = " ".join(f"{e.key.rsplit('.', 1)[0]}:{e.products}" for e in part)
            rows.append(("encodings", f"{len(part)} over {name}", f"key:products {stems}"))
        return rows

    def facts(self) -> dict[str, Any]:
        """The plan's fields."""
        return {
            "scheme": "residues" if self.moduli else "direct",
            "formats": tuple(dict.fromkeys(e.format.name for e in self.encodings)),
            "moduli": self.moduli,
            "planes": self.planes,
            "encodings": tuple(e.key for e in self.encodings),
        }


def _of(chosen: Design | Encoding, partial: str = "") -> PlaneUse:
    if isinstance(chosen, Encoding):
        return PlaneUse((chosen,), (chosen.max_depth(),))
    depths = tuple(e.max_depth(chosen.rates.accumulator(e.format.name)) for e in chosen.encodings)
    return PlaneUse(chosen.encodings, depths, partial)


def planes_of_floats(engine: Engine, a: Array, bt: Array, choice: FloatChoice, partial: bool) -> PlaneUse | None:
    """Planes of a float product; `partial` where partial covers may serve. None without planes."""
    if not isinstance(engine, EncodedEngine) or choice.system is None:
        return None
    right_inner = None if choice.inner is None else (-choice.inner).astype(np.int32)
    shift_a = operand_shifts(choice.left.scan, choice.bits_left)
    shift_b = operand_shifts(choice.right.scan, choice.bits_right)
    left = engine.pack_floats(True, a, shift_a, choice.inner, choice.system, choice.bits_left, False)
    right = engine.pack_floats(False, bt, shift_b, right_inner, choice.system, choice.bits_right, False)
    full = engine.residue_design(left, right, choice.system)
    found = fast_cover(engine, choice, a.shape[1], a.dtype) if partial and choice.grade == "fast" else None
    if found is None:
        return _of(full)
    return _of(
        found[1].design,
        f"partial covers; {full.products} products of full ones where the roundings made do not prove the bound",
    )


def planes_of_integers(engine: Engine, a: Array, bt: Array, choice: IntegerChoice) -> PlaneUse | None:
    """Planes of an integer product, values as integers or Python ints; None without planes."""
    if not isinstance(engine, EncodedEngine):
        return None
    if choice.modulus is not None:
        a, bt = engine.centred(a, choice.modulus), engine.centred(bt, choice.modulus)
    if choice.system is None:
        za, zb = choice.zero_points or (0, 0)
        return _of(engine.direct_choice(engine.pack_direct(True, a, za), engine.pack_direct(False, bt, zb)))
    left = engine.pack_integers(True, a, choice.system, choice.bits_left)
    right = engine.pack_integers(False, bt, choice.system, choice.bits_right)
    return _of(engine.residue_design(left, right, choice.system))


def planes_of_pairs(engine: Engine, choice: PairChoice) -> PlaneUse | None:
    """Planes of a double-double product; None without planes."""
    if not isinstance(engine, EncodedEngine) or choice.system is None:
        return None
    other = None if choice.inner is None else (-choice.inner).astype(np.int32)
    sides = (choice.left, choice.bits_left, choice.inner, True), (choice.right, choice.bits_right, other, False)
    left, right = (
        engine.pack_pairs(is_left, x.high, x.low, operand_shifts(x.side.scan, bits), inner, choice.system, bits)
        for x, bits, inner, is_left in sides
    )
    return _of(engine.residue_design(left, right, choice.system))
