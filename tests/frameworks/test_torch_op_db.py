"""Torch's own database of operators, with and without the mode: only the way to the values may change.

Samples, layouts, destinations and wrong arguments come from `op_db`, torch's table of operators with their samples.
Shapes, types, strides and the classes of errors have to be torch's. Values: every operator here is a sum of products
of its arguments, so that rounding errs by at most γ_K = K u / (1 − K u) times the same operator of the magnitudes
(Higham, Accuracy and Stability, 3.1), K being the roundings on the way from an argument to the result. Torch's own and
the emulated result lie within that bound of the exact one, hence within twice of it of each other.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import gemmulate as gm

PRODUCTS = (
    *("mm", "bmm", "mv", "dot", "vdot", "addmm", "addmv", "addbmm", "baddbmm", "matmul", "__rmatmul__", "inner"),
    *("nn.functional.linear", "linalg.multi_dot", "linalg.matrix_power", "einsum", "tensordot"),
)
DTYPES = (torch.float64, torch.complex128)


@pytest.fixture(scope="module")
def database() -> dict[str, Any]:
    """By name; importing it takes seconds, and sets hypothesis up for torch's own tests."""
    profile = hypothesis.settings.get_current_profile_name()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    hypothesis.settings.load_profile(profile)
    return {op.name: op for op in op_db if not op.variant_test_name}


def mode() -> gm.torch.emulate_fp64:
    return gm.torch.emulate_fp64(devices=("cpu",), minimum=0)


class Transparent(TorchDispatchMode):
    """A mode that changes nothing: within any, torch itself takes some products into other parts."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def transposed(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT if x.ndim > 1 else torch.stack([x, x], dim=-1)[..., 0]


def pending(x: Tensor) -> Tensor:
    """The same values, with a conjugation or a negation pending."""
    return x.conj().resolve_conj().conj() if x.is_complex() else torch._neg_view(-x) if x.is_floating_point() else x


def differentiable(x: Tensor) -> Tensor:
    return x.clone().requires_grad_() if x.dtype in DTYPES else x


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": torch.clone,
    "transposed": transposed,
    "pending": pending,
    "differentiable": differentiable,
}


def samples(op: Any, dtype: torch.dtype) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    for sample in op.reference_inputs("cpu", dtype):
        if op.name == "linalg.matrix_power" and (sample.args or (sample.kwargs["n"],))[0] < 0:
            continue  # begins with an inverse, which is no sum of products
        yield sample.input, sample.args, sample.kwargs


def roundings(arguments: object) -> int:
    """K: the depths of all products are among the lengths of the arguments; each scalar is one product or sum more.

    A complex product or sum errs by at most 3 times as much, relative to the moduli: √2 for both parts,
    2 for the depth.
    """
    leaves = tree_leaves(arguments)
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    power = max([1, *(x for x in leaves if type(x) is int)])  # of a matrix: as many products; else more than needed
    return 3 * power * (sum(sum(x.shape) for x in tensors) + 2 * len(leaves) + 2)


def magnitudes(arguments: Any) -> Any:
    absolute = tree_map_only(Tensor, lambda x: x.detach().abs(), arguments)
    return tree_map_only((int, float, complex), lambda x: x if type(x) in (int, bool) else abs(x), absolute)


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, type[Exception] | None]:
    """What it returns, or the class of its error."""
    try:
        return call(*args, **kwargs), None
    except Exception as error:
        return None, type(error)


def appearance(result: Any) -> list[object]:
    return [
        (x.shape, x.dtype, x.stride(), x.layout, x.requires_grad, type(x), type(x.grad_fn).__name__)
        for x in tree_leaves(result)
    ]


def assert_within(ours: Any, theirs: Any, bound: Any, k: int) -> None:
    factor = 2 * k * 2.0**-53 / (1 - k * 2.0**-53)
    for x, y, z in zip(*(tree_leaves(v) for v in (ours, theirs, bound)), strict=True):
        error = (x - y).abs()
        assert (error <= factor * z.abs()).all(), f"{error.max().item()} beyond {factor} of {z.abs().max().item()}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_samples(name: str, dtype: torch.dtype, layout: str, database: dict[str, Any]) -> None:
    op, count = database[name], 0
    for arguments in samples(op, dtype):
        value, args, kwargs = tree_map_only(Tensor, LAYOUTS[layout], arguments)
        theirs, _ = outcome(op, value, *args, **kwargs)
        with mode() as active:
            ours, error = outcome(op, value, *args, **kwargs)
        assert error is None
        count += active.count
        assert appearance(ours) == appearance(theirs)
        x, y, z = magnitudes(arguments)
        bound = op(x, *y, **z)
        k = roundings(arguments)
        assert_within(ours, theirs, bound, k)
        if layout == "differentiable" and theirs.requires_grad:
            check_gradients(op, (value, args, kwargs), ours, theirs, k)
    assert count or layout != "plain"  # torch makes products and sums of some other layouts


@pytest.mark.parametrize("layout", ["plain", "pending"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_inference(name: str, dtype: torch.dtype, layout: str, database: dict[str, Any]) -> None:
    """There torch hands operators over before it takes them apart."""
    op, count = database[name], 0
    for arguments in samples(op, dtype):
        with torch.inference_mode():
            value, args, kwargs = tree_map_only(Tensor, LAYOUTS[layout], arguments)
            theirs = op(value, *args, **kwargs)
            with mode() as active:
                ours = op(value, *args, **kwargs)
        count += active.count
        assert appearance(ours) == appearance(theirs)
        assert ours.is_inference()
        x, y, z = magnitudes(arguments)
        assert_within(ours, theirs, op(x, *y, **z), roundings(arguments))
    assert count


def check_gradients(op: Any, arguments: Any, ours: Tensor, theirs: Tensor, k: int) -> None:
    """Products, too, of the cotangent with the other arguments."""
    wanted = [x for x in tree_leaves(arguments) if isinstance(x, Tensor) and x.requires_grad]
    cotangent = torch.ones_like(theirs)
    with mode():
        got = torch.autograd.grad(ours, wanted, cotangent, allow_unused=True)
    expected = torch.autograd.grad(theirs, wanted, cotangent, allow_unused=True)
    x, y, z = tree_map_only(Tensor, lambda t: t.requires_grad_(t.is_floating_point()), magnitudes(arguments))
    bounds = torch.autograd.grad(
        op(x, *y, **z),
        [t for t in tree_leaves((x, y, z)) if isinstance(t, Tensor) and t.requires_grad],
        torch.ones(theirs.shape, dtype=torch.float64),
        allow_unused=True,
    )
    kept = [i for i, value in enumerate(expected) if value is not None]
    assert kept == [i for i, value in enumerate(got) if value is not None]
    assert [got[i].stride() for i in kept] == [expected[i].stride() for i in kept]
    # One product more, with the cotangent, whose depth is a length of the result.
    assert_within([got[i] for i in kept], [expected[i] for i in kept], [bounds[i] for i in kept], 2 * k)


DESTINATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "fitting": torch.zeros_like,
    "transposed": lambda x: transposed(torch.zeros_like(x)),
    "pending": lambda x: pending(torch.zeros_like(x)),
    "too large": lambda x: torch.zeros(*x.shape, 3, dtype=x.dtype),
    "empty": lambda x: torch.zeros(0, dtype=x.dtype),
    "narrow": lambda x: torch.zeros(x.shape, dtype=torch.float32),
    "integer": lambda x: torch.zeros(x.shape, dtype=torch.int64),
    "wider": lambda x: torch.zeros(x.shape, dtype=torch.complex128),
    "elsewhere": lambda x: torch.zeros_like(x, device="meta"),
    "differentiable": lambda x: torch.zeros_like(x).requires_grad_(),
    "expanded": lambda x: torch.zeros((), dtype=x.dtype).expand(x.shape),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_destinations(name: str, destination: str, database: dict[str, Any]) -> None:
    op, count = database[name], 0
    if not op.supports_out:
        pytest.skip("takes no out")
    for dtype in DTYPES:
        for value, args, kwargs in samples(op, dtype):
            shape = op(value, *args, **kwargs)
            theirs, ours = DESTINATIONS[destination](shape), DESTINATIONS[destination](shape)
            with Transparent():
                result, expected = outcome(op, value, *args, **kwargs, out=theirs)
            assert (result is theirs) == (expected is None)
            with mode() as active:
                result, error = outcome(op, value, *args, **kwargs, out=ours)
            assert error is expected
            assert (result is ours) == (expected is None)
            count += active.count
            if expected is None:
                assert appearance(ours) == appearance(theirs)
            if expected is None and destination not in ("elsewhere", "expanded"):  # which have no values to speak of
                x, y, z = magnitudes((value, args, kwargs))
                assert_within(ours, theirs, op(x, *y, **z), roundings((value, args, kwargs)))
    assert count or destination != "fitting" or name == "nn.functional.linear"  # whose form with out is one of its own


@pytest.mark.parametrize("name", ["addmm", "addmv", "addbmm", "baddbmm"])
def test_in_place(name: str, database: dict[str, Any]) -> None:
    op, count = database[name], 0
    for dtype in DTYPES:
        for value, args, kwargs in samples(op, dtype):
            for layout in LAYOUTS.values():
                theirs, ours = layout(value.detach().clone()), layout(value.detach().clone())
                with torch.no_grad():
                    result, expected = outcome(op.inplace_variant, theirs, *args, **kwargs)
                    with mode() as active:
                        got, error = outcome(op.inplace_variant, ours, *args, **kwargs)
                assert error is expected
                assert (got is ours) == (result is theirs) == (expected is None)
                count += active.count
                assert appearance(ours) == appearance(theirs)
                x, y, z = magnitudes((value, args, kwargs))
                if expected is None:
                    assert_within(ours, theirs, op(x, *y, **z), roundings((value, args, kwargs)))
                assert ours._version == theirs._version
    assert count


WRONG: dict[str, Callable[[Tensor], Tensor]] = {
    "one row more": lambda x: torch.cat([x, x[:1]]) if x.ndim else x,
    "one column more": lambda x: torch.cat([x, x[..., :1]], dim=-1) if x.ndim else x,
    "one dimension more": lambda x: x[None],
    "one dimension less": lambda x: x[0] if x.ndim and len(x) else x.reshape(-1),
    "other type": lambda x: x.to(torch.complex64 if x.is_complex() else torch.float32),
    "integer": lambda x: x.real.to(torch.int64),
    "other kind": lambda x: x.abs() if x.is_complex() else x.to(torch.complex128),
    "sparse": lambda x: x.to_sparse(),
    "elsewhere": lambda x: x.to("meta"),
}


def changed(arguments: Any, target: int, change: Callable[[Tensor], Tensor]) -> Any:
    """With another one in place of the tensor that comes at `target` among the tensors."""
    order = itertools.count()
    return tree_map_only(Tensor, lambda x: change(x) if next(order) == target else x, arguments)


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*:UserWarning")
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", PRODUCTS)
def test_wrong_arguments(name: str, wrong: str, database: dict[str, Any]) -> None:
    """Each tensor changed in turn: torch's error, or its result where torch takes that, too."""
    for dtype in DTYPES:
        for value, args, kwargs in samples(database[name], dtype):
            tensors = sum(isinstance(x, Tensor) for x in tree_leaves((value, args, kwargs)))
            for target in range(tensors):
                x, y, z = changed((value, args, kwargs), target, WRONG[wrong])
                theirs, expected = outcome(database[name], x, *y, **z)
                with mode():
                    ours, error = outcome(database[name], x, *y, **z)
                assert error is expected
                if expected is None and theirs.layout == torch.strided:
                    assert appearance(ours) == appearance(theirs)
            assert tensors


def test_errors_of_the_database(database: dict[str, Any]) -> None:
    found = 0
    for op in (database[name] for name in PRODUCTS if database[name].error_inputs_func is not None):
        for case in op.error_inputs("cpu"):
            sample = case.sample_input
            with mode(), pytest.raises(case.error_type, match=case.error_regex):
                op(sample.input, *sample.args, **sample.kwargs)
            found += 1
    assert found
