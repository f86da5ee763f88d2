"""What every task of a distributed product needs to know: the engine by its name, so that tasks can be sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmulate.engines import get_engine
from gemmulate.engines.base import Array, Engine
from gemmulate.plan import matmul


@dataclass(frozen=True)
class Runner:
    """An engine by name, with the threads that one task may use."""

    name: str | None
    threads: int | None

    @property
    def engine(self) -> Engine:
        return get_engine(self.name, self.threads)

    def matmul(self, a: Array, b: Array, **options: Any) -> Array:
        """gm.matmul of two blocks."""
        result: Array = matmul(a, b, engine=self.name, threads=self.threads, **options)
        return result
