"""Arrays of frameworks in `gm.matmul`: who multiplies them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemmulate.plan.cupy_arrays import is_cupy_array, multiply_cupy
from gemmulate.plan.jax_arrays import is_jax_array, multiply_jax
from gemmulate.plan.tensors import is_tensor, multiply_tensors

_FRAMEWORKS: tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...] = (
    (is_tensor, multiply_tensors),
    (is_jax_array, multiply_jax),
    (is_cupy_array, multiply_cupy),
)


def framework_product(a: Any, b: Any, out: Any) -> Callable[..., Any] | None:
    """multiply(a, b, out, engine, **options) where an argument is a framework's array; None where none is."""
    return next((multiply for owns, multiply in _FRAMEWORKS if owns(a) or owns(b) or owns(out)), None)
