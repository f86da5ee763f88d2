"""Torch: the product as an operator, and FP64 products of whole programs through narrow units.

`gm.matmul` takes tensors as it takes arrays. Here are the operator that torch.compile sees, and a mode that sends the
float64 products of code that knows nothing of gemmulate through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:
    raise ImportError("gemmulate.torch needs torch: pip install torch") from error

from gemmulate.engines.base import Engine
from gemmulate.engines.torch_ops import check_kind, overlaps_itself
from gemmulate.errors import FileError
from gemmulate.model.device import Device, calibrated_file, catalogue_key, load_device
from gemmulate.plan.candidates import PricedPlan
from gemmulate.plan.matmul import check_options
from gemmulate.plan.plan import plan
from gemmulate.plan.problem import Problem
from gemmulate.plan.tensors import not_a_tensor, operator, operator_settings
from gemmulate.schemes.accuracy import Bits

__all__ = ["emulate_fp64", "matmul"]

# m·k·n below which a mode leaves products to torch, whatever the model says: some fifty launches of about 5 µs each
# (model: none) are then longer than the product natively, even at 1.3 TFLOP/s (2 · 512³ / 1.3e12 = 206 µs).
LEAST_WORK = 512**3

_OPERATOR = operator()  # once, here: torch.compile cannot define it


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    accuracy: str | Bits = "fp64",
    engine: str | Engine | None = None,
    threads: int | None = None,
    formats: str | Sequence[str] | None = None,
) -> torch.Tensor:
    """`gm.matmul(a, b, …)` as one operator, `torch.ops.gemmulate.matmul`: use it in code that is compiled.

    Shapes, dtypes, bits, accuracies and errors are those of `gm.matmul`; integer results are checked (int64 or
    uint64). Differentiable, any number of times, forwards and backwards, for floats and complex numbers; every
    derivative is a product at the same accuracy (sums are torch's). The transforms of torch.func (grad, vjp, jvp,
    jacrev, jacfwd, hessian, vmap) apply and compose. torch.compile and torch.export treat it as opaque; there an
    engine is given by name.

    >>> import gemmulate as gm, torch
    >>> gm.torch.matmul(torch.tensor([[0.1, 0.2, -0.3]], dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64))
    tensor([[2.7756e-17]], dtype=torch.float64)
    """
    check_options(accuracy, None, "raise")
    if not torch.compiler.is_compiling():
        for name, x in (("a", a), ("b", b)):
            if not isinstance(x, torch.Tensor):
                raise not_a_tensor(x, name)
            check_kind(x, name)
    result: torch.Tensor = _OPERATOR(a, b, *operator_settings(accuracy, engine, threads, formats))
    return result


class emulate_fp64(TorchDispatchMode):  # type: ignore[no-untyped-call]  # noqa: N801 - used as a function: `with gm.torch.emulate_fp64():`
    """Within this context float64 and complex128 products of tensors on `devices` run through `gm.matmul`.

    mm, bmm, addmm, baddbmm, addbmm, mv, addmv, dot, vdot, also in place and with `out`, and what torch makes of them
    (matmul, linear, einsum, multi_dot, derivatives): α A B + β C takes the emulated A B, then torch's own two
    operations; addbmm is one product over all of its sum. Everything else, other types and devices, small products and
    those with α = 0 stay torch's. Contexts nest; the inner one decides. Within one, torch.compile runs functions
    eagerly (fullgraph=True is torch's error): it knows no such modes.

    `accuracy`, `engine`, `threads`: as `gm.matmul`. `devices`: device types ("cuda"). `minimum`: m·k·n from which a
    product is emulated; None asks the plan: where the time model of the device, by its name in the catalogue, finds
    emulation faster, and m·k·n ≥ 512³. Devices that the catalogue lacks are emulated from 512³ on. `count` holds how
    many products were emulated. Not run on a GPU so far.

    >>> import gemmulate as gm, torch
    >>> a = torch.tensor([[0.1, 0.2, -0.3]], dtype=torch.float64)
    >>> with gm.torch.emulate_fp64(devices=("cpu",), minimum=0) as mode:
    ...     (a @ torch.ones(3, 1, dtype=torch.float64)).item(), mode.count
    (2.7755575615628914e-17, 1)
    """

    def __init__(
        self,
        accuracy: str | Bits = "fp64",
        *,
        minimum: int | None = None,
        devices: Sequence[str] = ("cuda",),
        engine: str | Engine | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        check_options(accuracy, None, "raise")
        if minimum is not None and (isinstance(minimum, bool) or not isinstance(minimum, int) or minimum < 0):
            raise ValueError(f"minimum = {minimum!r} is not a number of multiplications ≥ 0; None asks the plan")
        if isinstance(devices, str) or not all(isinstance(d, str) for d in devices):
            raise TypeError(f'devices = {devices!r} is not a sequence of device types; pass for example ("cuda",)')
        self._options: dict[str, Any] = {"accuracy": accuracy, "engine": engine, "threads": threads}
        self._minimum = minimum
        self._devices = frozenset(devices)
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Torch calls it for every operator."""
        kwargs = kwargs or {}
        if any(t.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for t in types):
            return NotImplemented  # a subclass says what it is made of; products of its parts come here again
        routed = _ROUTED.get(func)
        if routed is None:
            with self:  # in inference mode torch does not take matmul, linear, … apart beforehand
                parts = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if parts is NotImplemented else parts
        result = self._emulated(routed, *args, **kwargs)
        if result is None:
            return func(*args, **kwargs)
        self.count += 1
        return result

    def _emulated(
        self, routed: _Routed, *args: Any, out: torch.Tensor | None = None, alpha: Any = 1, beta: Any = 1
    ) -> torch.Tensor | None:
        """What the operator gives; None where it stays torch's, which also finds the errors of wrong arguments."""
        c, (a, b) = (args[0], args[1:]) if routed.added else (None, args)
        if (a.ndim, b.ndim) != routed.ndim or not self._takes(a, b, routed.summed):
            return None
        left, right = (_plain(x) for x in (a, b))
        if routed.conjugate:
            left = left.conj_physical()
        if routed.summed:
            left, right = left.movedim(0, 1).flatten(1), right.flatten(0, 1)
        shape = (*left.shape[:-1], *(right.shape[-1:] if right.ndim > 1 else ()))
        target = c if routed.in_place else out
        if target is not None and not _can_receive(target, shape, a):
            return None
        if c is not None and not _can_add(c, shape, a, alpha, beta):
            return None
        result = matmul(left, right, **self._options)
        if c is not None:
            result = _add(_plain(c).expand(shape), result, alpha, beta)
        return result if target is None else target.copy_(result)

    def _takes(self, a: torch.Tensor, b: torch.Tensor, summed: bool) -> bool:
        wide = (torch.float64, torch.complex128)
        if a.dtype not in wide or b.dtype != a.dtype or a.device.type not in self._devices or b.device != a.device:
            return False
        if a.layout != torch.strided or b.layout != torch.strided or a._is_zerotensor() or b._is_zerotensor():
            return False
        if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0] or a.shape[:-2] != b.shape[:-2]:
            return False  # torch's own error
        m, k, n = a.shape[-2] if a.ndim > 1 else 1, a.shape[-1], b.shape[-1] if b.ndim > 1 else 1
        k *= a.shape[0] if summed else 1
        if self._minimum is not None:
            return m * k * n >= self._minimum
        return m * k * n >= LEAST_WORK and emulation_pays(_device_name(a.device), *(_rounded(v) for v in (m, k, n)))


class _Routed(NamedTuple):
    """An operator that is a product: dimensions of A and B, and what else it does."""

    ndim: tuple[int, int]
    added: bool = False  # β C + α A B, C being the first argument
    in_place: bool = False  # the result is written to C
    conjugate: bool = False  # of A
    summed: bool = False  # over the stack


def _routes() -> Iterator[tuple[Any, _Routed]]:
    aten = torch.ops.aten
    for name, routed in {
        "mm": _Routed((2, 2)),
        "bmm": _Routed((3, 3)),
        "mv": _Routed((2, 1)),
        "dot": _Routed((1, 1)),
        "vdot": _Routed((1, 1), conjugate=True),
        "addmm": _Routed((2, 2), added=True),
        "addmv": _Routed((2, 1), added=True),
        "baddbmm": _Routed((3, 3), added=True),
        "addbmm": _Routed((3, 3), added=True, summed=True),
    }.items():
        yield getattr(aten, name).default, routed
        yield getattr(aten, name).out, routed
        if routed.added:
            yield getattr(aten, f"{name}_").default, routed._replace(in_place=True)


_ROUTED = dict(_routes())


def _plain(x: torch.Tensor) -> torch.Tensor:
    """With no conjugation or negation pending, which operators below a mode do not see."""
    return x.resolve_conj().resolve_neg()


def _can_receive(target: torch.Tensor, shape: tuple[int, ...], a: torch.Tensor) -> bool:
    """Whether the result can be written as it is; torch resizes, converts or refuses others."""
    if (tuple(target.shape), target.dtype, target.device) != (shape, a.dtype, a.device):
        return False
    return target.layout == torch.strided and not (target.is_conj() or target.is_neg() or overlaps_itself(target))


def _can_add(c: torch.Tensor, shape: tuple[int, ...], a: torch.Tensor, alpha: Any, beta: Any) -> bool:
    """Whether torch adds C to a product of A, so that wrong arguments get torch's own error.

    With α = 0 libraries of torch do not read A and B, and each has its own rule for their NaN: none is emulated.
    """
    if alpha == 0 or not (a.is_complex() or not (isinstance(alpha, complex) or isinstance(beta, complex))):
        return False
    if c.dtype != a.dtype or c.device != a.device or c.layout != torch.strided or c._is_zerotensor():
        return False
    fits = zip(reversed(c.shape), reversed(shape), strict=False)
    return c.ndim <= len(shape) and all(size in (1, whole) for size, whole in fits)


def _add(c: torch.Tensor, product: torch.Tensor, alpha: Any, beta: Any) -> torch.Tensor:
    """α AB + β C, as torch defines it: with β = 0 no value of C counts."""
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return scaled + (c if beta == 1 else c * beta)


def _rounded(v: int) -> int:
    """The size rounded down to a power of two: the model is asked once for like shapes."""
    return 1 << max(0, v.bit_length() - 1)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _measured(name: str) -> Device | None:
    """The record made of the device; None where there is none, or a damaged one: the choice touches time alone."""
    path = calibrated_file(name)
    try:
        return load_device(path) if path.exists() else None
    except (FileError, OSError):
        return None


@lru_cache(maxsize=1024)
def emulation_pays(name: str, m: int, k: int, n: int) -> bool:
    """Whether the time model finds another scheme faster than native FP64 on the device called `name`.

    The record that `gemmulate model calibrate --device cuda` made of it counts, before that the catalogue's.
    """
    measured, key = _measured(name), catalogue_key(name)
    if measured is not None:
        # Phases of the engine that was measured run one after another.
        priced = plan(Problem(m, k, n), device=measured, composition="serial")
    elif key is not None:
        priced = plan(Problem(m, k, n), device=key)
    else:
        return True
    return isinstance(priced, PricedPlan) and priced.chosen is not None and priced.chosen.scheme != "native"
