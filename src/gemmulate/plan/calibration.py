"""What every engine of this machine takes, term by term, on one thread: the part of the host's record for plans."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from gemmulate.engines import engines, get_engine
from gemmulate.engines.base import Engine
from gemmulate.engines.residue_system import residue_system
from gemmulate.model.device import WAYS, EngineRates
from gemmulate.schemes.floats import choose_floats, multiply_floats

_SEED: Final = 7
_BITS: Final = 51
# Sizes: large enough that terms show above the calls, small enough for NumPy's engine to finish.
_EDGE: Final = {"native": 480, "reference": 24}
_LEAST_S: Final = 1e-15  # a difference of two times that noise turned negative


def least_seconds(run: Callable[[], object], budget_s: float = 0.12) -> float:
    """Least processor time of some calls after a first one."""
    run()
    seen: list[float] = []
    end = time.perf_counter() + budget_s
    while len(seen) < 3 or (time.perf_counter() < end and len(seen) < 400):
        start = time.process_time()
        run()
        seen.append(time.process_time() - start)
    return max(min(seen), 1e-9)


def measure_engine(engine: Engine) -> EngineRates:
    """Every term of one engine, each from runs in which it outweighs the others."""
    rng = np.random.default_rng(_SEED)
    edge = _EDGE["reference" if engine.name == "reference" else "native"]
    x, y = rng.standard_normal((edge, edge)), rng.standard_normal((edge, edge))
    whole = rng.integers(-(1 << 30), 1 << 30, (edge, edge))
    system = residue_system(4 * edge << (2 * _BITS))
    assert system is not None
    r, inputs, outputs = len(system.moduli), edge * edge, edge * edge
    # Rows of a left operand lie side by side, columns of a right one apart: what each takes, on average.
    columns = y.T
    tops = [engine.scan(z, None).top for z in (x, columns)]
    shift, across = ((_BITS - top).astype(np.int32) for top in tops)

    def packed(left: bool, source: Any, scale: Any) -> Any:
        return engine.pack_floats(left, source, scale, None, system, _BITS, False)

    def multiplied(depth: int) -> float:
        a, b = rng.standard_normal((edge, depth)), rng.standard_normal((edge, depth))
        tops = [(_BITS - engine.scan(z, None).top).astype(np.int32) for z in (a, b)]
        left, right, out = packed(True, a, tops[0]), packed(False, b, tops[1]), np.empty((edge, edge))
        return least_seconds(lambda: engine.multiply_floats(left, right, system, -tops[0], -tops[1], out, None))

    # Depths far apart, so that products and reconstruction stand clear of each other and of noise.
    shallow, deep = edge // 8, 4 * edge
    full, little = multiplied(deep), multiplied(shallow)
    mma = max((full - little) / (r * outputs * (deep - shallow)), _LEAST_S)
    rec = max((little - mma * r * outputs * shallow) / (r * outputs), _LEAST_S)
    left, right = engine.pack_magnitudes(True, x, tops[0], None), engine.pack_magnitudes(False, columns, tops[1], None)
    sums = [engine.norms(z, t, None).sum for z, t in zip((x, columns), tops, strict=True)]
    need = np.empty((edge, edge), dtype=np.uint8)
    assessed = least_seconds(lambda: engine.assess(left, right, sums[0], sums[1], 1e-15, need))
    few, every = rng.standard_normal((8, 4096 if edge > 24 else 64)), np.argwhere(np.ones((8, 8), dtype=bool))
    dots = np.empty((8, 8))
    call = _calls(engine)
    return EngineRates(
        call=call,
        range=sum(least_seconds(lambda z=z: engine.integer_range(z)) for z in (whole, whole.T)) / (2 * inputs),  # type: ignore[misc]
        survey=sum(
            least_seconds(lambda z=z: engine.scan(z, None)) + least_seconds(lambda z=z, t=t: engine.norms(z, t, None))  # type: ignore[misc]
            for z, t in zip((x, columns), tops, strict=True)
        ) / (2 * inputs),
        dec=(
            least_seconds(lambda: packed(True, x, shift)) + least_seconds(lambda: packed(False, columns, across))
        ) / (2 * r * inputs),
        mma=mma,
        rec=rec,
        assess=max((assessed - mma * outputs * edge) / outputs, _LEAST_S),
        dot=least_seconds(lambda: engine.exact_dots(few, few, every, dots)) / (64 * few.shape[1]),
    )  # fmt: skip


def _calls(engine: Engine) -> dict[str, float]:
    """Products of so few terms that the call is what they take, by every way."""
    from gemmulate.plan.matmul import matmul

    rng = np.random.default_rng(_SEED)
    a, b = rng.standard_normal((3, 3)), rng.standard_normal((3, 3))
    out = np.empty((3, 3))
    ones = np.ones((1, 1), np.int8), np.full((1, 1), 1 << 30)

    def whole(x: Any, y: Any, accuracy: Any = "fp64") -> float:
        return least_seconds(lambda: matmul(x, y, accuracy=accuracy, engine=engine.name, threads=1))

    def residues(grade: Any) -> float:
        def run() -> None:
            multiply_floats(engine, a, b, choose_floats(engine, a, b, grade, anchored=False), out)

        return least_seconds(run)

    # `matmul` rounds products as small as these correctly in one call: "long" and "exact" of a few terms. What the
    # general ways take is timed below it, and the way into it added.
    small = whole(a, b, "exact")
    at = np.argwhere(np.ones((3, 3), dtype=bool))
    entry = max(small - least_seconds(lambda: engine.exact_dots(a, b, at, out)), 0.0)
    return {
        "direct": whole(ones[0], ones[0]),
        "integers": whole(ones[1], ones[1]),
        "fast": entry + residues("fast"),
        "fp64": entry + residues("componentwise"),
        "exact": entry + residues("exact"),
        "long": small,
    }


def measure_engines(progress: Callable[[int, int], None] = lambda done, total: None) -> dict[str, EngineRates]:
    """Every engine that runs here, one thread. Takes about 3 s each."""
    names = [record.name for record in engines() if record.available and record.name != "native"]
    found = {}
    for done, name in enumerate(names):
        progress(done, len(names))
        found[name] = measure_engine(get_engine(name, 1))
    # A call is the same code for every instruction set, and a burst of other work can outlast one measurement: the
    # native engines share the least, lest noise decide between them on small products.
    native = [rates.call for name, rates in found.items() if name.startswith("native-")]
    shared = {way: min(call[way] for call in native) for way in WAYS} if native else {}
    for name, rates in found.items():
        if name.startswith("native-"):
            found[name] = msgspec.structs.replace(rates, call=shared)
    return found


def engines_section(found: dict[str, EngineRates]) -> str:
    """The part of a device file that holds the engines' rates."""
    lines = ["", "# Seconds on one thread: see EngineRates in the model's device module."]
    for name, rates in found.items():
        lines.append(f"[engines.{name}]")
        lines += [
            f"{key} = {getattr(rates, key):.4e}" for key in ("range", "survey", "dec", "mma", "rec", "assess", "dot")
        ]
        calls = ", ".join(f"{way} = {seconds:.4e}" for way, seconds in rates.call.items())
        lines.append(f"call = {{ {calls} }}")
    return "\n".join(lines) + "\n"
