"""How far results are from the truth, in units of u = 2^-53, and whether they are the CPU's bits: on sampled elements.

Data of wide exponents are (rand − 1/2) · exp(φ · randn), as in Ozaki, Ogita, Oishi and Rump (2012) and the work on
emulation that followed. The truth is the correctly rounded product, by the native engine on the host, of the sampled
rows and columns alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

import gemmulate as gm
from gemmulate.engines import get_engine
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.base import Norms, Scan
from gemmulate.engines.torch_array import TorchArray
from gemmulate.plan.matmul import complex_parts
from gemmulate.schemes.accuracy import Grade
from gemmulate.schemes.floats import FloatChoice, Side, choose_floats, grade_of, multiply_floats

U = 2.0**-53
SAMPLES = 12  # rows and columns: 144 elements
WHOLE = 1024  # largest m, n and k of a product that is compared with the CPU's as a whole
GRADES: dict[str, Grade] = {"fast": "fast", "fp64": "componentwise", "exact": "exact"}


def gaussian(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Standard normal entries on the generator's device."""
    return torch.randn(shape, dtype=dtype, device=generator.device, generator=generator)


def wide(shape: tuple[int, ...], phi: float, generator: torch.Generator) -> torch.Tensor:
    """(rand − 1/2) · exp(φ · randn)."""
    uniform = torch.rand(shape, dtype=torch.float64, device=generator.device, generator=generator) - 0.5
    return uniform.mul_(gaussian(shape, generator).mul_(phi).exp_())


def sampled(size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Indices spread over range(size), the first and the last among them."""
    return np.unique(np.linspace(0, size - 1, min(SAMPLES, size)).round().astype(np.int64))


def _real(a: Any, bt: Any) -> list[tuple[Any, Any]]:
    """Real operands whose products are the parts of the result: themselves, or those of complex ones."""
    return list(complex_parts(a, bt)) if a.dtype.kind == "c" else [(a, bt)]


def _host(x: torch.Tensor, index: np.ndarray[Any, Any]) -> Any:
    return x[torch.from_numpy(index).to(x.device)].cpu().numpy()


def _elements(c: torch.Tensor, rows: Any, columns: Any) -> list[Any]:
    """The sampled elements of the result's parts."""
    found = _host(c, rows)[:, columns]
    return [found.real, found.imag] if np.iscomplexobj(found) else [found]


def errors(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> dict[str, float]:
    """Largest |C − R| over u |A||B| (componentwise) and over u |R| (relative) of sampled elements of matrices.

    R is correctly rounded; an element whose |A||B| or R is 0 counts only as such: it must be met exactly.
    """
    rows, columns = sampled(a.shape[0]), sampled(b.shape[1])
    pairs = _real(_host(a, rows), _host(b.T, columns))
    worst = {"componentwise": 0.0, "relative": 0.0}
    for (x, yt), got in zip(pairs, _elements(c, rows, columns), strict=True):
        truth = gm.matmul(x, yt.T, accuracy="exact")
        scales = {"componentwise": np.abs(x) @ np.abs(yt).T, "relative": np.abs(truth)}
        for name, scale in scales.items():
            worst[name] = max(worst[name], _worst(np.abs(got - truth), scale))
    return worst


def _worst(difference: Any, scale: Any) -> float:
    found = np.zeros_like(difference)
    np.divide(difference, U * scale, out=found, where=scale > 0)
    found[(scale == 0) & (difference != 0)] = np.inf
    return float(found.max(initial=0.0))


def same_bits(engine: ArrayEngine, a: torch.Tensor, b: torch.Tensor, grade: str, c: torch.Tensor) -> bool:
    """Whether a device's result has the bits of the CPU's native engine.

    Products up to 1024 are compared as a whole. Of larger ones the native engine computes the sampled elements, from
    their rows and columns, with the bits and moduli that the whole product takes.
    """
    if max(*a.shape, *b.shape) <= WHOLE:
        truth = gm.matmul(a.cpu().numpy(), b.cpu().numpy(), accuracy=grade, engine="native")
        return bool(np.array_equal(patterns(c.cpu().numpy()), patterns(truth)))
    rows, columns = sampled(a.shape[0]), sampled(b.shape[1])
    native, equal = get_engine("native"), True
    on_device: Any = (TorchArray(a), TorchArray(b.T))
    for (x, yt), got in zip(_real(*on_device), _elements(c, rows, columns), strict=True):
        chosen = choose_floats(engine, x, yt, grade_of(GRADES[grade], x, yt, x.dtype))
        out = np.empty((len(rows), len(columns)))
        left, right = (_host(side.tensor, index) for side, index in ((x, rows), (yt, columns)))
        multiply_floats(native, left, right, _part(chosen, rows, columns), out)
        equal = equal and np.array_equal(patterns(got), patterns(out))
    return equal


def patterns(x: Any) -> Any:
    return np.ascontiguousarray(x).view(np.int64)


def _part(choice: FloatChoice, rows: Any, columns: Any) -> FloatChoice:
    """The choice for a product as it concerns some of its rows and columns."""
    place = {(int(i), int(j)): (p, q) for p, i in enumerate(rows) for q, j in enumerate(columns)}
    repair = [place[at] for i, j in choice.repair.tolist() if (at := (i, j)) in place]
    return replace(
        choice,
        left=_side(choice.left, rows),
        right=_side(choice.right, columns),
        repair=np.array(repair, dtype=np.int64).reshape(-1, 2),
    )


def _side(side: Side, index: Any) -> Side:
    return replace(side, scan=Scan(*(v[index] for v in side.scan)), norms=Norms(*(v[index] for v in side.norms)))
