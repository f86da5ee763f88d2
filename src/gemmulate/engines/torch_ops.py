"""What a product has to know of tensors: which it takes, and which belong to a graph or a transform."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from gemmulate.engines.torch_array import numpy_dtype


def check_kind(x: torch.Tensor, name: str) -> None:
    """TypeError unless it is a dense tensor of a type that has products."""
    if x.layout != torch.strided or x.is_quantized or x.is_nested:
        kind = "quantized" if x.is_quantized else "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise TypeError(f"{name} is a {kind} tensor; products take dense ones: use {name}.to_dense() or the like")
    numpy_dtype(x.dtype, name)


def check_values(x: torch.Tensor, name: str) -> None:
    """TypeError unless it is a dense tensor with data of a type that has products."""
    check_kind(x, name)
    if x.device.type == "meta":
        raise TypeError(f"{name} is on device meta and has no values; use torch.matmul for shapes alone")


def check_device(a: torch.Tensor, x: torch.Tensor, name: str = "b") -> None:
    """TypeError unless both are on one device."""
    if x.device != a.device:
        raise TypeError(f"a is on {a.device}, {name} on {x.device}; move one of them")


def check_tensors(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None) -> None:
    """TypeError unless all are dense tensors with data, of known types, on one device; ValueError for a bad out."""
    for name, x in (("a", a), ("b", b), ("out", out)):
        if x is None:
            continue
        check_values(x, name)
        check_device(a, x, name)
    if out is None:
        return
    if torch.is_grad_enabled() and out.requires_grad:
        raise TypeError("out requires a gradient and can't receive a result; pass out.detach(), or leave it away")
    if overlaps_itself(out):
        raise ValueError(
            f"out has shape {tuple(out.shape)} and strides {out.stride()}: elements share memory; pass out.clone()"
        )


def _has_tangent(x: torch.Tensor | None) -> bool:
    """Whether x is a dual tensor (torch.autograd.forward_ad)."""
    if x is None or forward_ad._current_level < 0:
        return False
    return forward_ad.unpack_dual(x).tangent is not None  # type: ignore[no-untyped-call]


def overlaps_itself(x: torch.Tensor) -> bool:
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


def is_overridden(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None) -> bool:
    """Whether a subclass or a mode takes torch's functions (`__torch_function__`), hence this one, too."""
    return torch.overrides.has_torch_function((a, b, out))


def overridden(
    function: Callable[..., Any], a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None, **options: Any
) -> Any:
    """What that subclass or mode makes of function(a, b, out=out, …): by default the product, as such a subclass."""
    given = options if out is None else {"out": out, **options}
    return torch.overrides.handle_torch_function(function, (a, b, out), a, b, **given)


def is_traced() -> bool:
    """Whether Dynamo (torch.compile) traces the caller."""
    return bool(torch.compiler.is_dynamo_compiling())


@_disable_dynamo
def untraced(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """function(…), run as it is between two parts of a compiled program."""
    return function(*arguments, **options)


def is_wrapped(x: torch.Tensor) -> bool:
    """Whether x has no memory of its own: of torch.func's transforms, fake, all zeros without any (a derivative that is
    none), or a subclass that takes all operators.
    """
    if torch.compiler.is_compiling():  # where Dynamo traces, which cannot ask
        return False
    special = type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return special or x._is_zerotensor() or torch._C._functorch.is_functorch_wrapped_tensor(x)


def without_modes() -> AbstractContextManager[Any]:
    """Within it no mode (TorchDispatchMode) sees the operators of our own, whose sums have to be exact."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext()


def note_written(out: torch.Tensor) -> None:
    """Tell autograd that the values changed by NumPy's hand: a graph that kept them must not use them."""
    if not out.is_inference():
        torch.autograd.graph.increment_version(out)


def wants_derivative(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None) -> bool:
    """Whether the result belongs to a graph or carries a tangent; TypeError where `out` makes that impossible."""
    gradient = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    if not gradient and not any(_has_tangent(x) for x in (a, b, out)):
        return False
    if out is not None:
        kind = "gradient, but a or b requires one" if gradient else "forward derivative, but an argument carries one"
        raise TypeError(f"out takes no {kind}; leave out away, or use torch.no_grad() and detached tensors")
    return True
