"""Engines: who runs the products. One abstract contract, bitwise the same results."""

from gemmulate.engines.base import Engine, EngineRecord
from gemmulate.engines.registry import engines, get_engine

__all__ = ["Engine", "EngineRecord", "engines", "get_engine"]
