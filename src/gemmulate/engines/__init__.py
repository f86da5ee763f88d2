"""Engines: who runs the products. One abstract contract, bitwise the same results."""

from gemmulate.callable_module import make_callable
from gemmulate.engines.base import Engine, EngineRecord
from gemmulate.engines.registry import engines, get_engine

__all__ = ["Engine", "EngineRecord", "engines", "get_engine"]

make_callable(__name__, "engines")
