"""The product as torch sees it: checks of tensors, and one operator with gradient and shapes known beforehand.

`torch.ops.gemmulate.matmul(a, b, accuracy, engine, threads, formats)` is opaque to torch.compile, which learns shapes
and dtypes from its fake implementation; its backward products run through the same operator, hence the same scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from gemmulate.engines.torch_array import numpy_dtype, torch_dtype

_NAME = "gemmulate::matmul"
_SCHEMA = "(Tensor a, Tensor b, str accuracy='fp64', str? engine=None, int? threads=None, str? formats=None) -> Tensor"


def check_values(x: torch.Tensor, name: str) -> None:
    """TypeError unless it is a dense tensor with data of a type that has products."""
    if x.layout != torch.strided or x.is_quantized or x.is_nested:
        kind = "quantized" if x.is_quantized else "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise TypeError(f"{name} is a {kind} tensor; products take dense ones: use {name}.to_dense() or the like")
    if x.device.type == "meta":
        raise TypeError(f"{name} is on device meta and has no values; use torch.matmul for shapes alone")
    numpy_dtype(x.dtype, name)


def check_tensors(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None) -> None:
    """TypeError unless all are dense tensors with data, of known types, on one device; ValueError for a bad out."""
    for name, x in (("a", a), ("b", b), ("out", out)):
        if x is None:
            continue
        check_values(x, name)
        if x.device != a.device:
            raise TypeError(f"a is on {a.device}, {name} on {x.device}; move one of them")
        refuse_tangent(x, name)
    if out is None:
        return
    if torch.is_grad_enabled() and out.requires_grad:
        raise TypeError("out requires a gradient and can't receive a result; pass out.detach(), or leave it away")
    if _overlaps_itself(out):
        raise ValueError(
            f"out has shape {tuple(out.shape)} and strides {out.stride()}: elements share memory; pass out.clone()"
        )


def refuse_tangent(x: torch.Tensor, name: str) -> None:
    """TypeError for a dual tensor: a product would silently lose its tangent."""
    if forward_ad._current_level < 0:
        return
    if forward_ad.unpack_dual(x).tangent is not None:  # type: ignore[no-untyped-call]
        raise TypeError(
            f"{name} carries a forward derivative, which products do not have; use a reverse one (torch.autograd.grad)"
        )


def _overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two elements of the tensor are one in memory."""
    reach, nested = 0, True
    for stride, size in sorted((x.stride(d), x.shape[d]) for d in range(x.ndim) if x.shape[d] > 1):
        nested = nested and stride > reach
        reach += stride * (size - 1)
    if nested or not x.numel():
        return False
    offsets = np.zeros((), dtype=np.int64)  # of strides that are not nested, rare
    for d in range(x.ndim):
        offsets = offsets[..., None] + np.arange(x.shape[d], dtype=np.int64) * x.stride(d)
    return len(np.unique(offsets)) < x.numel()


def is_wrapped(x: torch.Tensor) -> bool:
    """Whether x has no memory of its own: of torch.func's transforms, fake, or a subclass that takes all operators."""
    if torch.compiler.is_compiling():  # where Dynamo traces, which cannot ask
        return False
    special = type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return special or torch._C._functorch.is_functorch_wrapped_tensor(x)


def without_modes() -> AbstractContextManager[Any]:
    """Within it no mode (TorchDispatchMode) sees the operators of our own, whose sums have to be exact."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()


def note_written(out: torch.Tensor) -> None:
    """Tell autograd that the values changed by NumPy's hand: a graph that kept them must not use them."""
    if not out.is_inference():
        torch.autograd.graph.increment_version(out)


def wants_gradient(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None) -> bool:
    """Whether the result belongs to a graph; TypeError where `out` makes that impossible."""
    needed = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    if needed and out is not None:
        raise TypeError("out takes no gradient, but a or b requires one; leave out away, or use torch.no_grad()")
    return needed


def define(
    forward: Callable[..., torch.Tensor], result: Callable[[np.dtype[Any], np.dtype[Any]], np.dtype[Any]]
) -> Any:
    """Define the operator, once.

    forward(a, b, accuracy, engine, threads, formats) multiplies without a gradient; result(a, b) is its dtype.
    """
    operator = torch.library.custom_op(_NAME, forward, mutates_args=(), schema=_SCHEMA)

    def fake(a: torch.Tensor, b: torch.Tensor, *settings: Any) -> torch.Tensor:
        x, y = (t.new_empty(t.shape, dtype=torch.float32) for t in (a, b))  # torch's shapes are NumPy's
        return torch.matmul(x, y).to(torch_dtype(result(numpy_dtype(a.dtype), numpy_dtype(b.dtype))))

    def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        a, b, *ctx.settings = inputs
        ctx.save_for_backward(a, b)

    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        a, b = ctx.saved_tensors
        # Vectors as matrices, so that one rule serves every shape.
        left, right = a[None, :] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
        full = grad[..., None] if b.ndim == 1 else grad
        full = full[..., None, :] if a.ndim == 1 else full

        def part(x: torch.Tensor, y: torch.Tensor, of: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
            product = operator(x, y, *ctx.settings)
            product = product if of.is_complex() or not product.is_complex() else product.real
            summed: torch.Tensor = product.sum_to_size(matrix.shape).reshape(of.shape).to(of.dtype)
            return summed

        grad_a = part(full, right.mH, a, left) if ctx.needs_input_grad[0] else None
        grad_b = part(left.mH, full, b, right) if ctx.needs_input_grad[1] else None
        return grad_a, grad_b, *(None,) * len(ctx.settings)

    operator.register_fake(fake)
    operator.register_autograd(backward, setup_context=keep)
    return operator
