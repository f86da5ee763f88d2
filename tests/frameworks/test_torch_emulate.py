"""The mode that sends float64 products of a program through gemmulate: what it takes, what it leaves alone."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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
        torch.nn.functional.bilinear(a, a, torch.ones(2, 12, 12, dtype=torch.float64))
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


def test_sums_over_stacks_and_conjugates() -> None:
    """Rounded once: addbmm's products are one, over the stack, too; the first vector of vdot is conjugated."""
    a, b = (x.reshape(4, 3, -1) for x in cancelling(12, 10, 6, torch.complex128)[:1] * 2)
    left, right = a * (1 + 2j), b.mT.contiguous()
    flat = gm.matmul(left.movedim(0, 1).flatten(1), right.flatten(0, 1), accuracy="exact")
    c = torch.randn(3, 3, dtype=torch.complex128)
    with emulated() as mode:
        assert torch.equal(torch.addbmm(c, left, right, beta=2, alpha=0.5), flat * 0.5 + c * 2)
        assert torch.equal(
            torch.vdot(left[0, 0], left[1, 2]), gm.matmul(left[0, 0].conj(), left[1, 2], accuracy="exact")
        )
        assert mode.count == 2


def test_pending_conjugations_of_what_is_added() -> None:
    a, b = cancelling(6, 12, 5, torch.complex128)
    c = torch.randn(6, 5, dtype=torch.complex128)
    ab = gm.matmul(a, b, accuracy="exact")
    with emulated():
        assert torch.equal(torch.addmm(c.conj(), a, b), ab + c.conj().resolve_conj())
        assert torch.equal(torch.addmm(c.conj(), a, b, beta=2j), ab + c.conj().resolve_conj() * 2j)
    real = [x.real for x in (c.conj(), a, b)]
    with emulated():
        got = torch.addmm(c.conj().imag, *real[1:])
    assert torch.equal(got, gm.matmul(real[1], real[2], accuracy="exact") - c.imag)


def test_no_product_where_alpha_is_zero() -> None:
    a, b = cancelling(40, 40, 40)
    nan = torch.full_like(a, torch.nan)
    want = torch.addmm(b, nan, a, alpha=0)
    with emulated() as mode:
        assert torch.equal(torch.addmm(b, nan, a, alpha=0), want)
    assert mode.count == 0


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, of its dual tensors
def test_derivatives_and_batches() -> None:
    a, b = cancelling(5, 20, 4)
    g = torch.ones(5, 4, dtype=torch.float64)
    with emulated() as mode:
        (transposed,) = torch.func.vjp(lambda x: x @ b, a)[1](g)
        assert torch.equal(transposed, gm.matmul(g, b.T, accuracy="exact"))
        tangent = torch.func.jvp(lambda x: x @ b, (a,), (a * 2,))[1]
        assert torch.equal(tangent, gm.matmul(a * 2, b, accuracy="exact"))
        assert torch.equal(torch.func.vmap(lambda x: x @ b)(a), gm.matmul(a, b, accuracy="exact"))
        count = mode.count
        assert count >= 5  # torch multiplies some zeros, too
        jacobian = torch.func.jacfwd(lambda x: x @ b[:, 0])(a[0])  # a dot product with torch's zeros without memory
        assert torch.equal(jacobian, b[:, 0])
        assert torch.func.hessian(lambda x: (x @ b).pow(3).sum())(a[0]).shape == (20, 20)
        assert mode.count > count


def modules() -> list[tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    torch.manual_seed(20261130)
    x = torch.randn(7, 3, 8, dtype=torch.float64)
    return [
        (torch.nn.Linear(8, 5), (x,)),
        (torch.nn.Linear(8, 5, bias=False), (x[0, 0],)),
        (torch.nn.MultiheadAttention(8, 2), (x, x, x)),
        (torch.nn.MultiheadAttention(8, 2, batch_first=True), (x, x, x)),
        (torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0), (x,)),
        (torch.nn.LSTM(8, 4, num_layers=2, bidirectional=True), (x,)),
        (torch.nn.GRU(8, 4), (x,)),
        (torch.nn.RNNCell(8, 4), (x[0],)),
    ]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("at", range(len(modules())))
def test_modules(at: int, training: bool) -> None:
    """Results and gradients as torch's own in float64, to torch's tolerance for it; they run through products here."""
    module, inputs = modules()[at]
    module = module.to(torch.float64).train(training)
    inputs = tuple(x.clone().requires_grad_(training) for x in inputs)

    def run() -> list[torch.Tensor]:
        with torch.set_grad_enabled(training):
            output = module(*inputs)
        first = output[0] if isinstance(output, tuple) else output
        if not training:
            return [first]
        wanted = [*module.parameters(), *dict.fromkeys(inputs)]
        return [first, *torch.autograd.grad(first.pow(2).sum(), wanted)]

    want = run()
    with emulated() as mode:
        got = run()
    assert mode.count
    for x, y in zip(got, want, strict=True):
        assert (x.stride(), x.requires_grad) == (y.stride(), y.requires_grad)
        torch.testing.assert_close(x, y)


def test_copies_and_pickles_are_modes_of_their_own() -> None:
    a, b = cancelling(6, 12, 5)
    first = emulated()
    with first:
        a @ b
    for second in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        with second:
            assert torch.equal(a @ b, gm.matmul(a, b, accuracy="exact"))
        assert (first.count, second.count) == (1, 2)
    with first, first:
        a @ b
    assert first.count == 2


def test_threads_have_modes_of_their_own() -> None:
    a, b = cancelling(6, 12, 5)
    exact, native = gm.matmul(a, b, accuracy="exact"), a @ b
    with emulated() as mode, ThreadPoolExecutor(1) as pool:
        assert torch.equal(pool.submit(torch.mm, a, b).result(), native)
        assert torch.equal(a @ b, exact)

    def work(_: int) -> bool:
        with emulated() as own:
            return all(torch.equal(a @ b, exact) for _ in range(20)) and own.count == 20

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))
    assert mode.count == 1


def test_compiled_functions_run_eagerly_within() -> None:
    a, b = cancelling(6, 12, 5)
    compiled = torch.compile(lambda x: torch.relu(x @ b), backend="aot_eager")
    torch._dynamo.reset()
    want = torch.relu(gm.matmul(a, b, accuracy="exact"))
    with emulated() as mode:
        assert torch.equal(compiled(a), want)
        assert mode.count == 1
    native = compiled(a)
    assert torch.equal(native, torch.relu(a @ b))
    with emulated() as mode:
        assert torch.equal(compiled(a), want)
        assert mode.count == 1


def test_subclasses_that_take_operators_apart() -> None:
    """Products of what such a tensor is made of are emulated, as it has no product of ours."""

    class Boxed(torch.Tensor):
        inner: torch.Tensor

        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> "Boxed":
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner: torch.Tensor) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            opened = [x.inner if isinstance(x, Boxed) else x for x in args]
            return Boxed(func(*opened, **(kwargs or {})))

    a, b = cancelling(6, 12, 5)
    with emulated() as mode:
        product = Boxed(a) @ b
    assert isinstance(product, Boxed)
    assert torch.equal(product.inner, gm.matmul(a, b, accuracy="exact"))
    assert mode.count == 1
