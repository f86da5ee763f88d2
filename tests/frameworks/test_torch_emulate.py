"""The mode that sends float64 products of a program through gemmulate: what it takes, what it leaves alone."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

import gemmulate as gm
from gemmulate.torch import catalogue_key, emulation_pays


def cancelling(m: int, k: int, n: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands whose products cancel, so that torch's own and correctly rounded results differ."""
    rng = np.random.default_rng(m * k * n)
    half = rng.standard_normal((m, k // 2))
    a = np.concatenate([half, -half * (1 + 2.0**-40)], axis=1)
    b = np.concatenate([np.ones((k // 2, n)), np.ones((k // 2, n))])
    return torch.from_numpy(a).to(dtype), torch.from_numpy(b).to(dtype)


def emulated(**options: object) -> gm.torch.emulate_fp64:
    return gm.torch.emulate_fp64("exact", devices=("cpu",), **{"minimum": 0, **options})


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_products_become_correctly_rounded(dtype: torch.dtype) -> None:
    a, b = cancelling(8, 30, 6, dtype)
    want = gm.matmul(a, b, accuracy="exact")
    assert not torch.equal(a @ b, want)
    stack = torch.stack([a, a + 1])
    with emulated() as mode:
        assert torch.equal(a @ b, want)
        assert torch.equal(torch.mm(a, b), want)
        assert torch.equal(torch.nn.functional.linear(a, b.T), want)
        assert torch.equal(torch.einsum("ik,kj->ij", a, b), want)
        assert torch.equal((stack @ b)[0], want)
        assert torch.equal(torch.bmm(stack, b.expand(2, 30, 6))[0], want)
        assert torch.equal(a @ b[:, 0], want[:, 0])
        assert torch.equal(torch.dot(a[0], b[:, 0]), want[0, 0])
        assert mode.count == 8
    assert not torch.equal(a @ b, want)


def test_sums_keep_torch_s_definition() -> None:
    a, b = cancelling(4, 10, 3)
    ab = gm.matmul(a, b, accuracy="exact")
    c = torch.randn(4, 3, dtype=torch.float64)
    nan = torch.full((4, 3), torch.nan, dtype=torch.float64)
    with emulated() as mode:
        assert torch.equal(torch.addmm(c, a, b), ab + c)
        assert torch.equal(torch.addmm(c, a, b, beta=0.5, alpha=-2), ab * -2 + c * 0.5)
        assert torch.equal(torch.addmm(nan, a, b, beta=0), ab)
        assert torch.equal(torch.addmm(c[0], a, b), ab + c[0])
        assert torch.equal(torch.baddbmm(c[None], a[None], b[None], alpha=3)[0], ab * 3 + c)
        assert torch.equal(torch.addmv(c[:, 0], a, b[:, 0]), ab[:, 0] + c[:, 0])
        assert torch.equal(torch.nn.functional.linear(a, b.T, c[0]), ab + c[0])
        assert mode.count == 7


def test_backward_products_too() -> None:
    a, b = cancelling(5, 20, 4)
    a.requires_grad_()
    g = torch.ones(5, 4, dtype=torch.float64)
    with emulated() as mode:
        (grad,) = torch.autograd.grad(a @ b, a, g)
        assert mode.count == 2
    assert torch.equal(grad, gm.matmul(g, b.T, accuracy="exact"))


def test_what_it_leaves_alone() -> None:
    a, b = cancelling(6, 12, 5)
    with emulated(minimum=6 * 12 * 5 + 1) as mode:
        a @ b
    with emulated() as other:
        a.float() @ b.float()
        a.to(torch.bfloat16) @ b.to(torch.bfloat16)
        torch.ones(2, 2, dtype=torch.int64) @ torch.ones(2, 2, dtype=torch.int64)
        out = torch.empty(6, 5, dtype=torch.float64)
        torch.mm(a, b, out=out)
        with pytest.raises(RuntimeError, match=r"cannot be multiplied|size mismatch"):
            a @ a
    with gm.torch.emulate_fp64(minimum=0) as cuda_alone:
        a @ b
    assert (mode.count, other.count, cuda_alone.count) == (0, 0, 0)


def test_the_inner_context_decides() -> None:
    a, b = cancelling(6, 12, 5)
    with emulated() as outer, emulated(engine="reference") as inner:
        a @ b
    assert (outer.count, inner.count) == (0, 1)


def test_the_plan_decides_where_it_pays() -> None:
    assert catalogue_key("NVIDIA H200 NVL") == "h200"
    assert catalogue_key("NVIDIA GeForce RTX 5090") == "rtx5090"
    assert catalogue_key("NVIDIA RTX PRO 6000 Blackwell Server Edition") == "rtxpro6000"
    assert catalogue_key("NVIDIA L40S") == "l40s"
    assert catalogue_key("Voodoo 2") is None
    assert emulation_pays("NVIDIA B300", 4096, 4096, 4096)
    assert not emulation_pays("NVIDIA A100-SXM4-80GB", 4096, 4096, 1)
    assert emulation_pays("Voodoo 2", 4096, 4096, 4096)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"accuracy": "best"}, ValueError, "accuracy = 'best'"),
        ({"minimum": -1}, ValueError, "minimum = -1"),
        ({"minimum": 2.5}, ValueError, "minimum = 2.5"),
        ({"devices": "cuda"}, TypeError, "devices = 'cuda'"),
    ],
)
def test_bad_options(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gm.torch.emulate_fp64(**options)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b: torch.mm(a[None], b[None]),
        lambda a, b: torch.mm(a[0], b),
        lambda a, b: torch.mv(a, b),
        lambda a, b: torch.dot(a, b),
        lambda a, b: torch.bmm(a[None], b.expand(3, 12, 5)),
        lambda a, b: torch.addmm(torch.zeros(2, 6, 5, dtype=torch.float64), a, b),
        lambda a, b: torch.addmm(torch.zeros(6, 5), a, b),
        lambda a, b: torch.addmm(torch.zeros(6, 5, dtype=torch.float64), a, b, alpha=1j),
    ],
)
def test_wrong_calls_get_torch_s_error(wrong: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    a, b = cancelling(6, 12, 5)
    with pytest.raises((RuntimeError, TypeError)):
        wrong(a, b)
    with emulated() as mode, pytest.raises(RuntimeError):
        wrong(a, b)
    assert mode.count == 0


def test_inference_mode() -> None:
    a, b = cancelling(6, 12, 5)
    with torch.inference_mode(), emulated() as mode:
        products = a @ b, torch.nn.functional.linear(a, b.T), torch.einsum("ij,jk->ik", a, b)
    assert mode.count == 3
    for product in products:
        assert torch.equal(product, gm.matmul(a, b, accuracy="exact"))


def test_sparse_products_stay_torch_s() -> None:
    a, b = cancelling(6, 12, 5)
    with emulated() as mode:
        assert torch.equal(a.to_sparse() @ b, torch.sparse.mm(a.to_sparse(), b))
    assert mode.count == 0


def test_the_engine_s_own_sums_are_not_emulated() -> None:
    a, b = cancelling(70, 150, 70)
    with gm.torch.emulate_fp64("fast", devices=("cpu",), minimum=0) as mode:
        assert torch.equal(gm.matmul(a, b, accuracy="exact", engine="torch"), gm.matmul(a, b, accuracy="exact"))
    assert mode.count == 0
