"""Exact and reproducible wide matrix products from narrow matrix units.

Importing this package computes nothing: the layers load when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemmulate.errors import EngineUnavailable, GemmulateError, ResultOverflow

if TYPE_CHECKING:
    from gemmulate.engines import engines
    from gemmulate.formats.double_double import DoubleDouble
    from gemmulate.plan.candidates import PricedPlan
    from gemmulate.plan.matmul import matmul
    from gemmulate.plan.plan import Plan, plan
    from gemmulate.plan.prepared import Prepared, prepare
    from gemmulate.plan.problem import Problem
    from gemmulate.schemes.accuracy import Bits

__version__ = "0.1.0"

# Public name -> module that defines it. Loaded on first use, so that `import gemmulate` stays cheap.
_LAZY: dict[str, str] = {
    "Bits": "gemmulate.schemes.accuracy",
    "DoubleDouble": "gemmulate.formats.double_double",
    "matmul": "gemmulate.plan",
    "Plan": "gemmulate.plan",
    "Prepared": "gemmulate.plan",
    "PricedPlan": "gemmulate.plan",
    "prepare": "gemmulate.plan",
    "Problem": "gemmulate.plan",
}
_SUBPACKAGES = (
    "formats",
    "encodings",
    "engines",
    "schemes",
    "plan",
    "model",
    "screen",
    "evidence",
    "distributed",
    "io",
    "torch",
    "jax",
)

__all__ = [
    "Bits",
    "DoubleDouble",
    "EngineUnavailable",
    "GemmulateError",
    "Plan",
    "Prepared",
    "PricedPlan",
    "Problem",
    "ResultOverflow",
    "__version__",
    "engines",
    "matmul",
    "plan",
    "prepare",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    elif name in _SUBPACKAGES:
        value = import_module(f"gemmulate.{name}")
    else:
        raise AttributeError(f"module 'gemmulate' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_SUBPACKAGES})
