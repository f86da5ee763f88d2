"""`torch.ops.gemmulate.matmul(a, b, accuracy, engine, threads, formats)`: the product as one operator of torch.

Opaque to torch.compile, which learns shapes and dtypes from a fake kernel. Its derivatives and batching rule are
products of the same operator, hence of the same scheme, and may be derived and batched again.

`torch.library.custom_op` cannot be had with derivatives under torch.func (pytorch/pytorch#179652) or forward ones, and
an autograd function in Python loses its `jvp` where torch.compile traces torch.func.jvp (#192985). Kernels of the
operator itself for both, which apply one `torch.autograd.Function`, work eagerly and compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._compile import _disable_dynamo

from gemmulate.engines.torch_array import numpy_dtype, torch_dtype
from gemmulate.engines.torch_ops import check_device

Tensor = torch.Tensor
_SCHEMA = (
    "matmul(Tensor a, Tensor b, str accuracy='fp64', str? engine=None, int? threads=None, str? formats=None) -> Tensor"
)
_DEFAULTS = ("fp64", None, None, None)
# Graphs that torch.compile makes itself (mode="reduce-overhead") leave the product out where torch knows the tag: their
# warm-up allocates in their own memory, where tables that stay for good have no place, and the host measures integers.
_TAGS = [getattr(torch.Tag, name) for name in ("pt2_compliant_tag", "cudagraph_unsafe") if hasattr(torch.Tag, name)]
_LIBRARIES: list[torch.library.Library] = []  # whose kernels live as long as they do


def define(
    forward: Callable[..., Tensor],
    result: Callable[[np.dtype[Any], np.dtype[Any]], np.dtype[Any]],
    keep: Callable[[str | None], Any],
) -> Any:
    """Define the operator, once.

    forward(a, b, accuracy, engine, threads, formats) multiplies without a gradient; result(a, b) is its dtype;
    keep(engine) is what has to live as long as a graph whose products name that engine.
    """

    def fake(a: Tensor, b: Tensor, *settings: Any) -> Tensor:
        check_device(a, b)
        x, y = (t.new_empty(t.shape, dtype=torch.float32) for t in (a, b))  # torch's shapes are NumPy's
        return torch.matmul(x, y).to(torch_dtype(result(numpy_dtype(a.dtype), numpy_dtype(b.dtype))))

    library: Any = torch.library.Library("gemmulate", "DEF")  # type: ignore[no-untyped-call]
    _LIBRARIES.append(library)
    library.define(_SCHEMA, tags=tuple(_TAGS))
    operator = torch.ops.gemmulate.matmul.default

    class Product(torch.autograd.Function):
        """The operator with its derivatives, by torch's and by torch.func's rules."""

        @staticmethod
        def forward(*inputs: Any) -> Tensor:
            with torch._C._AutoDispatchBelowAutograd():
                product: Tensor = operator(*inputs)
            return product

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            a, b, *ctx.settings = inputs
            ctx.engine = keep(ctx.settings[1])
            ctx.save_for_backward(a, b)
            ctx.save_for_forward(a, b)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
            a, b = ctx.saved_tensors
            # Vectors as matrices, so that one rule serves every shape.
            left, right = _matrices(a, b)
            full = grad[..., None] if b.ndim == 1 else grad
            full = full[..., None, :] if a.ndim == 1 else full

            def part(x: Tensor, y: Tensor, of: Tensor, matrix: Tensor) -> Tensor:
                product = operator(x, y, *ctx.settings)
                product = product if of.is_complex() or not product.is_complex() else product.real
                summed: Tensor = product.sum_to_size(matrix.shape).reshape(of.shape).to(of.dtype)
                return summed

            grad_a = part(full, right.mH, a, left) if ctx.needs_input_grad[0] else None
            grad_b = part(left.mH, full, b, right) if ctx.needs_input_grad[1] else None
            return grad_a, grad_b, *(None,) * len(ctx.settings)

        @staticmethod
        def jvp(ctx: Any, tangent_a: Tensor | None, tangent_b: Tensor | None, *_: None) -> Tensor:
            a, b = ctx.saved_tensors
            pairs = ((tangent_a, b), (a, tangent_b))
            parts = [operator(x, y, *ctx.settings) for x, y in pairs if x is not None and y is not None]
            tangent: Tensor = sum(parts[1:], start=parts[0])
            return tangent

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
            return _multiply_batched(operator, in_dims, *inputs), 0

    def derived(a: Tensor, b: Tensor, *settings: Any) -> Tensor:
        product: Tensor = Product.apply(a, b, *settings, *_DEFAULTS[len(settings) :])  # type: ignore[no-untyped-call]
        return product

    def transformed(a: Tensor, b: Tensor, *settings: Any) -> Tensor:
        functionalized = _functionalized(operator, a, b, settings)
        return derived(a, b, *settings) if functionalized is None else functionalized

    for kernel, key in (
        (forward, "CompositeExplicitAutograd"),
        (derived, "Autograd"),
        (transformed, "FuncTorchDynamicLayerFrontMode"),
    ):
        library.impl("matmul", _disable_dynamo(kernel), key)
    torch.library.register_fake("gemmulate::matmul", fake, lib=library)
    return operator


def _matrices(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Both as matrices or stacks: a vector is one row on the left, one column on the right."""
    return a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b


def _multiply_batched(operator: Any, in_dims: tuple[int | None, ...], a: Tensor, b: Tensor, *settings: Any) -> Tensor:
    """The products along one more dimension of a, b or both, which comes first in the result.

    As stacks, each matrix for itself; but rows (or columns) that meet one and the same matrix are one product with it,
    which is then surveyed and packed once.
    """
    dim_a, dim_b = in_dims[:2]
    a, b = (x if dim is None else x.movedim(dim, 0) for x, dim in ((a, dim_a), (b, dim_b)))
    ndim_a, ndim_b = a.ndim - (dim_a is not None), b.ndim - (dim_b is not None)
    for name, ndim in (("a", ndim_a), ("b", ndim_b)):
        if ndim == 0:
            raise ValueError(
                f"{name} is 0-dimensional; a product needs vectors, matrices or stacks (use * for scalars)"
            )
    row, column = ndim_a == 1, ndim_b == 1
    a, b = a[..., None, :] if row else a, b[..., None] if column else b
    if dim_b is None and b.ndim == 2 and a.ndim == 3 and a.shape[1] == 1:
        product = operator(a[:, 0], b, *settings)[:, None]
    elif dim_a is None and a.ndim == 2 and b.ndim == 3 and b.shape[2] == 1:
        product = operator(a, b[..., 0].T, *settings).T[..., None]
    else:
        rank = max(a.ndim - (dim_a is not None), b.ndim - (dim_b is not None))
        # Dimensions of stacks are aligned at their right ends: the new one has to be the first of all.
        a = a if dim_a is None else a[:, *(None,) * (rank + 1 - a.ndim)]
        b = b if dim_b is None else b[:, *(None,) * (rank + 1 - b.ndim)]
        product = operator(a, b, *settings)
    product = product[..., 0] if column else product
    vectors: Tensor = product[..., 0, :] if row and not column else product[..., 0] if row else product
    return vectors


def _functionalized(operator: Any, a: Tensor, b: Tensor, settings: tuple[Any, ...]) -> Tensor | None:
    """The product where torch.func.functionalize is the innermost transform, which knows no autograd functions."""
    from torch._C._functorch import TransformType
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter
    from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI

    interpreter: Any = retrieve_current_functorch_interpreter()
    if interpreter.key() != TransformType.Functionalize:
        return None
    layer: Any = FunctorchFunctionalizeAPI(interpreter)
    x, y = layer.unwrap_tensors((a, b))
    with layer.redispatch_to_next():
        product = operator(x, y, *settings)
    wrapped: Tensor = layer.wrap_tensors(product)
    return wrapped
