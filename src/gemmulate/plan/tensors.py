"""Products of torch tensors: the result is a tensor on the operands' device, with the bits of NumPy's route.

Tensors of the CPU share their memory with the NumPy arrays that every engine takes. Tensors of another device go to
an engine of that device, or, where an engine of the host is asked for by name, to the host and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from gemmulate.engines import get_engine
from gemmulate.engines.base import Engine
from gemmulate.engines.registry import thread_count
from gemmulate.plan.operands import is_array_of, result_dtype
from gemmulate.plan.preferred import preferred_engines
from gemmulate.plan.trusted import trusted_engine
from gemmulate.schemes.accuracy import Bits


def is_tensor(x: Any) -> bool:
    """Whether x is a torch tensor; torch itself is not imported for that."""
    return is_array_of(x, "torch", "Tensor")


def host_array(x: Any, name: str) -> Any:
    """A tensor as a NumPy array, of the same memory where it is the CPU's; anything else as it is."""
    if not is_tensor(x):
        return x
    from gemmulate.engines.torch_array import to_numpy
    from gemmulate.engines.torch_ops import check_values

    check_values(x, name)
    return to_numpy(x)


def multiply_tensors(a: Any, b: Any, out: Any, engine: str | Engine | None, **options: Any) -> Any:
    """`matmul(a, b, …)` of tensors, part of a graph where one of them requires a gradient."""
    from gemmulate.engines import torch_ops

    # Dynamo would go on into NumPy's functions, and makes torch's of them, which have not all types.
    takes = out is None and options["modulus"] is None and options["overflow"] == "raise" and isinstance(engine, _NAMES)
    if torch_ops.is_traced() and not (takes and _DEFINED):
        return torch_ops.untraced(_multiply_tensors, a, b, out, engine, **options)
    return _multiply_tensors(a, b, out, engine, **options)


def _multiply_tensors(a: Any, b: Any, out: Any, engine: str | Engine | None, **options: Any) -> Any:
    from gemmulate.engines import torch_ops
    from gemmulate.plan.matmul import matmul

    for name, x in (("a", a), ("b", b), ("out", out)):
        if not is_tensor(x) and (name != "out" or x is not None):
            raise not_a_tensor(x, name)
    if torch_ops.is_overridden(a, b, out):
        return torch_ops.overridden(matmul, a, b, out, engine=engine, **options)
    torch_ops.check_tensors(a, b, out)
    wrapped = any(torch_ops.is_wrapped(x) for x in (a, b, out) if x is not None)
    if wrapped and (out is not None or options["modulus"] is not None or options["overflow"] != "raise"):
        raise TypeError(
            "an argument belongs to a transform of torch (vmap, a fake tensor, …), where out, modulus and overflow "
            "have no product; leave them away"
        )
    # A modulus and floats, which alone have gradients, are an error of the product itself.
    if wrapped or torch_ops.is_traced() or (torch_ops.wants_derivative(a, b, out) and options["modulus"] is None):
        settings = operator_settings(options["accuracy"], engine, options["threads"], options["formats"])
        return operator()(a, b, *settings)
    return multiply_detached(a, b, out, engine, **options)


def not_a_tensor(x: Any, name: str) -> TypeError:
    return TypeError(
        f"{name} is a {type(x).__name__} beside torch tensors: pass tensors alone (torch.as_tensor) or NumPy arrays "
        "alone (tensor.numpy())"
    )


def multiply_detached(a: Any, b: Any, out: Any, engine: str | Engine | None, **options: Any) -> Any:
    """The product without a gradient; checked tensors of one device."""
    from gemmulate.engines.torch_array import plain
    from gemmulate.engines.torch_ops import without_modes

    with without_modes():
        if out is None or not (out.is_conj() or out.is_neg()):
            return _multiply(a, b, out, engine, **options)
        out.copy_(_multiply(a, b, plain(out), engine, **options))  # `plain` copies what is pending
        return out


def _multiply(a: Any, b: Any, out: Any, engine: str | Engine | None, **options: Any) -> Any:
    from gemmulate.engines.torch import in_memory
    from gemmulate.engines.torch_array import TorchArray, as_tensor, capturing, empty, plain, to_numpy
    from gemmulate.engines.torch_ops import note_written
    from gemmulate.plan.matmul import matmul

    runner = device_engine(a.device, engine, options["threads"])
    if a.device.type == "cuda" and capturing():
        check_capturable(a, b, runner, options)
    # Python ints and planes of formats are made on the host.
    if runner is not None and options["formats"] is None and options["overflow"] != "object":
        target: Any = None if out is None else TorchArray(out)
        x, y = TorchArray(plain(a)), TorchArray(plain(b))
        result: Any = in_memory(runner, lambda: matmul(x, y, out=target, engine=runner, **options))
        return out if out is not None else result.tensor
    target = None if out is None else to_numpy(out)  # a copy, where it is not the CPU's
    result = matmul(to_numpy(a), to_numpy(b), out=target, engine=engine, **options)
    if out is not None:
        if out.device.type != "cpu":
            out.copy_(as_tensor(target))
        else:
            note_written(out)
        return out
    if isinstance(result, int) or result.dtype == object:
        return result
    # NumPy's strides of an empty array are 0, torch takes a length of 0 as one of 1.
    if not result.size:
        return empty(result.shape, result.dtype, a.device).tensor
    return as_tensor(np.asarray(result)).to(a.device)


def check_capturable(a: Any, b: Any, runner: Engine | None, options: dict[str, Any]) -> None:
    """RuntimeError where the host would read data while a CUDA graph is captured, which ends the capture."""
    if runner is None or options["formats"] is not None:
        reason = "the engine asked for runs on the host"
    elif not all(x.is_floating_point() or x.is_complex() for x in (a, b)):
        reason = f"the widths of integers (a is {a.dtype}, b {b.dtype}) are measured, and the host reads them"
    elif not isinstance(options["accuracy"], Bits) and runner.resident is None:
        reason = f"accuracy = {options['accuracy']!r} chooses bits from the data, with engine {runner.name} on the host"
    else:
        return
    raise RuntimeError(
        f"{reason}: not while a CUDA graph is captured; multiply floats with accuracy=gm.Bits(n), whose work follows "
        'from shapes alone (54 bits of float64 and 25 of float32 keep the bound of "fast")'
    )


def device_engine(device: Any, engine: str | Engine | None, threads: int | None) -> Engine | None:
    """The engine that multiplies tensors where they are; None where the product runs on the host.

    By default that is, for a CUDA device, the first of `preferred_engines` that proves itself (`trusted_engine`). The
    name of another engine takes the product to the host, from any device.
    """
    if engine is None:
        if device.type == "cpu":
            return None
        if device.type != "cuda":
            raise TypeError(
                f'a is on device {device}, for which there is no engine; move it to the CPU, or pass engine="native" '
                "to have it copied there and back"
            )
        from gemmulate.engines.torch import device_name

        engine = trusted_engine(str(device), preferred_engines(device_name(device)))
    runner = get_engine(engine, threads)
    if runner.arrays is None:
        return None
    from gemmulate.engines.torch import on_device

    return on_device(runner, device)


_NAMES = (str, type(None))  # of engines, as the operator takes them
_DEFINED: list[Any] = []  # not a cached function: torch.compile warns of those
_INSTANCES: WeakValueDictionary[str, Engine] = WeakValueDictionary()  # by the names that stand for them


def operator() -> Any:
    """`torch.ops.gemmulate.matmul`, defined when it is first asked for."""
    if not _DEFINED:
        from gemmulate.engines.torch_operator import define

        _DEFINED.append(define(_forward, result_dtype, lambda engine: _INSTANCES.get(engine or "")))
    return _DEFINED[0]


def _forward(  # torch leaves out arguments that equal their defaults
    a: Any,
    b: Any,
    accuracy: str = "fp64",
    engine: str | None = None,
    threads: int | None = None,
    formats: str | None = None,
) -> Any:
    from gemmulate.engines import torch_ops

    torch_ops.check_tensors(a, b, None)
    options = {"modulus": None, "overflow": "raise", "threads": threads, "formats": formats}
    runner = engine if engine is None else _INSTANCES.get(engine, engine)
    return multiply_detached(a, b, None, runner, accuracy=accuracy_of(accuracy), **options)


def operator_settings(
    accuracy: str | Bits, engine: str | Engine | None, threads: int | None, formats: str | Sequence[str] | None
) -> tuple[str, str | None, int | None, str | None]:
    """The settings as torch's operator takes them, with the errors of `gm.matmul`.

    An engine itself gets a name of its own, which `_forward` knows as long as the engine lives.
    """
    from gemmulate.plan.matmul import engine_for

    if not isinstance(engine, (str, Engine, type(None))) or not isinstance(formats, (str, type(None))):
        engine_for(engine, None, formats)
    name = None if isinstance(engine, Engine) else engine
    if isinstance(engine, Engine):
        name = f"{engine.name} at {id(engine):#x}"
        _INSTANCES[name] = engine
    listed = formats if formats is None or isinstance(formats, str) else ",".join(formats)
    return f"Bits({accuracy.n})" if isinstance(accuracy, Bits) else accuracy, name, thread_count(threads), listed


def accuracy_of(name: str) -> str | Bits:
    """The accuracy that `operator_settings` names."""
    return Bits(int(name[5:-1])) if name.startswith("Bits(") and name[5:-1].isdecimal() else name
