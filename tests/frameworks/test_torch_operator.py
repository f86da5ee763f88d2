"""The operator: accuracy of its gradients, torch.compile, torch's checks of operators."""

from typing import Any

import numpy as np
import pytest
import torch

import gemmulate as gm


def random(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(20261130 + len(shape))
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()


def test_gradients_are_products_of_the_same_accuracy() -> None:
    a, b = (random(s, torch.float64) for s in ((5, 60), (60, 7)))
    g = torch.randn(5, 7, dtype=torch.float64)
    for options in ({"accuracy": "exact"}, {"accuracy": gm.Bits(20)}, {"formats": "fp4_e2m1", "accuracy": "exact"}):
        grad_a, grad_b = torch.autograd.grad(gm.matmul(a, b, **options), (a, b), g)
        x, y, z = a.detach().numpy(), b.detach().numpy(), g.numpy()
        assert np.array_equal(grad_a.numpy(), gm.matmul(z, y.T, **options))
        assert np.array_equal(grad_b.numpy(), gm.matmul(x.T, z, **options))


def test_one_gradient_alone_and_mixed_kinds() -> None:
    a, b = random((3, 4), torch.float64), random((4, 2), torch.complex128).detach()
    (grad,) = torch.autograd.grad(gm.matmul(a, b).abs().sum(), a)
    (want,) = torch.autograd.grad(torch.matmul(a.to(b.dtype), b).abs().sum(), a)
    torch.testing.assert_close(grad, want)
    with torch.no_grad():
        assert not gm.matmul(a, b).requires_grad
    with pytest.raises(TypeError, match="out takes no gradient"):
        gm.matmul(a, a.T, out=torch.empty(3, 3, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64, torch.bfloat16], ids=str)
def test_torch_checks_the_operator(dtype: torch.dtype) -> None:
    gm.torch.matmul(torch.eye(2), torch.eye(2))  # defines it
    a, b = random((3, 4), dtype), random((4, 5), dtype)
    torch.library.opcheck(torch.ops.gemmulate.matmul.default, (a, b), {"accuracy": "fp64"})


@pytest.mark.skipif(not hasattr(torch.Tag, "cudagraph_unsafe"), reason="torch's graphs know no such tag")
def test_graphs_that_torch_compile_makes_leave_the_product_out() -> None:
    from torch._inductor.utils import is_cudagraph_unsafe_fx_node

    found: list[list[bool]] = []

    def look(graph: Any, _inputs: Any) -> Any:
        found.append([is_cudagraph_unsafe_fx_node(node) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    a = torch.eye(3)
    got = torch.compile(lambda x: gm.torch.matmul(x, x) + 1, backend=look, fullgraph=True)(a)
    assert torch.equal(got, a + 1)
    assert found == [[True, False]]


@pytest.mark.parametrize("left", [torch.int64, torch.uint8, torch.bool, torch.float16])
@pytest.mark.parametrize("right", [torch.int32, torch.uint64, torch.bool, torch.bfloat16])
def test_shapes_and_types_known_beforehand(left: torch.dtype, right: torch.dtype) -> None:
    a, b = torch.ones(2, 3, 4, dtype=left), torch.ones(4, dtype=right)
    got = gm.torch.matmul(a, b)
    fake = gm.torch.matmul(a.to("meta"), b.to("meta"))
    assert (fake.shape, fake.dtype) == (got.shape, got.dtype)
    assert got.to(torch.float64).eq(1 if left == right == torch.bool else 4).all() or got.eq(4).all()


@pytest.mark.parametrize("product", ["operator", "function"])
def test_compile(product: str) -> None:
    multiply = gm.torch.matmul if product == "operator" else gm.matmul

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(multiply(x, w, accuracy="exact")).sum()

    a, b = random((6, 8), torch.float64), random((8, 3), torch.float64)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=product == "operator")
    want, got = layer(a, b), compiled(a, b)
    assert got.item() == want.item()
    assert all(
        torch.equal(x, y)
        for x, y in zip(torch.autograd.grad(got, (a, b)), torch.autograd.grad(want, (a, b)), strict=True)
    )


@pytest.mark.parametrize(
    "options",
    [{"accuracy": gm.Bits(54)}, {"accuracy": "fast"}, {"engine": "torch"}, {"engine": "torch-fp8"}, {"modulus": 7}, {}],
    ids=str,
)
def test_the_function_in_compiled_programs(options: dict[str, Any]) -> None:
    """Without a gradient: Dynamo does not go on into the NumPy functions of the product."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = (x.to(torch.int64), y.to(torch.int64)) if "modulus" in options else (x, y)
        return gm.matmul(x + 1, y, **options) * 2

    a, b = (random(shape, torch.float64).detach() * 9 for shape in ((6, 8), (8, 3)))
    assert torch.equal(torch.compile(program, backend="eager")(a, b), program(a, b))


def test_export_and_dynamic_shapes() -> None:
    """Programs of any number of rows, taken once, with the bits of the eager module; torch.func over its weights."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(random((8, 3), torch.float64).detach())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(gm.torch.matmul(x, self.weight, accuracy="exact"))

    layer = Layer()
    inputs = [random((n, 8), torch.float64).detach() for n in (6, 4, 11)]
    rows = torch.export.Dim("rows", min=2, max=64)
    exported = torch.export.export(layer, (inputs[0],), dynamic_shapes={"x": {0: rows}}).module()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    for x in inputs:
        assert torch.equal(exported(x), layer(x))
        assert torch.equal(compiled(x), layer(x))

    def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(layer, weights, (row,)).sum()

    weights = {"weight": layer.weight.detach()}
    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weights, inputs[0])["weight"]
    for got, row in zip(per_sample, inputs[0], strict=True):
        (want,) = torch.autograd.grad(layer(row).sum(), layer.weight)
        assert torch.equal(got, want)


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="accuracy = 'best' is unknown"):
        gm.torch.matmul(torch.eye(2), torch.eye(2), accuracy="best")
    with pytest.raises(ValueError, match="engine = 'quantum' is unknown"):
        gm.torch.matmul(torch.eye(2), torch.eye(2), engine="quantum")
