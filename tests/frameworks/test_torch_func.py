"""Derivatives and batching of products: torch.func, forward derivatives and their compositions, eager and compiled.

Expected: the same transform of torch.matmul in double precision. Both compute sums of a few products of numbers about
1, each with an error of at most k u |A||B|, which torch.testing's tolerances for the dtype exceed by far.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, func
from torch.autograd import forward_ad

import gemmulate as gm
from gemmulate.engines.reference import ReferenceEngine

# Of torch itself, whichever product it is: its forward derivatives, its linearize.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
]

Product = Callable[..., Tensor]
DTYPES = (torch.float64, torch.float32, torch.complex128, torch.complex64)
PRODUCTS = {"gm.matmul": gm.matmul, "gm.torch.matmul": gm.torch.matmul, "operator": torch.ops.gemmulate.matmul}
SHAPES = [
    ((4,), (4,)),
    ((4,), (4, 3)),
    ((3, 4), (4,)),
    ((3, 4), (4, 2)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((4,), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 1, 4), (4, 3)),
]


def random(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed + sum(shape)))


def energy(x: Tensor) -> Tensor:
    """A real scalar whose third derivatives do not vanish."""
    return (x * x.conj()).real.pow(2).sum()


def assert_same(ours: object, theirs: object, dtype: torch.dtype) -> None:
    narrow = dtype in (torch.float32, torch.complex64)
    torch.testing.assert_close(ours, theirs, check_dtype=True, **({"rtol": 1e-4, "atol": 1e-3} if narrow else {}))


@pytest.fixture(params=PRODUCTS.values(), ids=PRODUCTS.keys())
def product(request: pytest.FixtureRequest) -> Product:
    multiply: Product = request.param
    return multiply


TRANSFORMS: dict[str, Callable[[Product, Tensor, Tensor], object]] = {
    "grad": lambda p, a, b: func.grad(lambda x, y: energy(p(x, y)), argnums=(0, 1))(a, b),
    "vjp": lambda p, a, b: func.vjp(p, a, b)[1](p(a.detach(), b.detach())),
    "jvp": lambda p, a, b: func.jvp(p, (a, b), (a.flip(0), b * 2)),
    "jvp of one": lambda p, a, b: func.jvp(lambda y: p(a, y), (b,), (b.flip(-1),)),
    "linearize": lambda p, a, b: func.linearize(lambda x: p(x, b), a)[1](a.flip(-1)),
    "vjp of jvp": lambda p, a, b: func.grad(lambda x: energy(func.jvp(lambda y: p(x, y), (b,), (b * 2,))[1]))(a),
    "jvp of vjp": lambda p, a, b: func.jvp(func.grad(lambda x: energy(p(x, b))), (a,), (a + 1,)),
    "grad of grad": lambda p, a, b: func.grad(lambda x: energy(func.grad(lambda y: energy(p(x, y)))(b)))(a),
    "grad of vmap": lambda p, a, b: func.grad(
        lambda x: energy(func.vmap(p, in_dims=(0, None))(torch.stack([x, -x]), b))
    )(a),
    "vmap of grad": lambda p, a, b: func.vmap(func.grad(lambda x, y: energy(p(x, y))), in_dims=(0, 1))(
        torch.stack([a, -a, a + 1]), torch.stack([b, b * 2, b - 1], dim=1)
    ),
}


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transforms(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype) -> None:
    transform, (a, b) = TRANSFORMS[name], (random(s, dtype) for s in shapes)
    assert_same(transform(gm.torch.matmul, a, b), transform(torch.matmul, a, b), dtype)


JACOBIANS: dict[str, Callable[[Product, Tensor, Tensor], object]] = {
    "jacrev": lambda p, a, b: func.jacrev(p, argnums=(0, 1))(a, b),
    "jacfwd": lambda p, a, b: func.jacfwd(p, argnums=(0, 1))(a, b),
    "hessian": lambda p, a, b: func.hessian(lambda x: energy(p(x, b)))(a),
    "jacfwd of jacfwd": lambda p, a, b: func.jacfwd(func.jacfwd(lambda x: energy(p(a, x))))(b),
    "jacrev of jacfwd": lambda p, a, b: func.jacrev(func.jacfwd(lambda x: energy(p(x, b))))(a),
    "jacrev of jacrev": lambda p, a, b: func.jacrev(func.jacrev(lambda x, y: energy(p(x, y))), argnums=1)(a, b),
}


@pytest.mark.parametrize("name", JACOBIANS)
@pytest.mark.parametrize("shapes", SHAPES[:4], ids=str)
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_jacobians(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype, product: Product
) -> None:
    transform, (a, b) = JACOBIANS[name], (random(s, dtype) for s in shapes)
    assert_same(transform(product, a, b), transform(torch.matmul, a, b), dtype)


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (-1, 1), (1, None), (None, -1)], ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.int64], ids=str)
def test_vmap_is_a_loop(
    in_dims: tuple[int | None, int | None],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    dtype: torch.dtype,
    product: Product,
) -> None:
    """Bit for bit: exact results do not depend on what is multiplied at once."""
    stacks = [random((3, *s), torch.float64, 7) * 100 for s in shapes]
    stacks = [x.to(dtype) * (1 + 0.5j) if dtype.is_complex else x.to(dtype) for x in stacks]
    arguments = [x[0] if d is None else x.movedim(0, d) for x, d in zip(stacks, in_dims, strict=True)]
    got = func.vmap(lambda x, y: product(x, y, accuracy="exact"), in_dims=in_dims)(*arguments)
    loop = [
        gm.matmul(*(x[0 if d is None else i] for x, d in zip(stacks, in_dims, strict=True)), accuracy="exact")
        for i in range(3)
    ]
    assert torch.equal(got, torch.stack(loop))


def test_vmap_nests_and_places_its_dimension() -> None:
    a, b = random((2, 3, 4, 5)), random((3, 5, 2))
    inner = func.vmap(lambda x, y: gm.matmul(x, y, accuracy="exact"), in_dims=(0, 2), out_dims=1)
    got = func.vmap(inner, in_dims=(1, 0), out_dims=2)(a.movedim(0, 1), b.expand(2, 3, 5, 2).permute(0, 2, 3, 1))
    assert torch.equal(got, gm.matmul(a, b, accuracy="exact").permute(2, 1, 0, 3))
    chunked = func.vmap(lambda x: gm.matmul(x, b[0], accuracy="exact"), chunk_size=2)(a[:, 0])
    assert torch.equal(chunked, gm.matmul(a[:, 0], b[0], accuracy="exact"))


def test_rows_against_one_matrix_are_one_product() -> None:
    """Also beyond the sizes whose products are rounded correctly, where bits depend on what is multiplied at once."""
    x, w = random((90, 80)), random((80, 100))
    assert torch.equal(func.vmap(lambda v: gm.matmul(v, w))(x), gm.matmul(x, w))
    assert torch.equal(func.vmap(lambda v: gm.matmul(w.T, v))(x), gm.matmul(w.T, x.T).T)
    stack = torch.stack([x, x * 2.0**20])
    assert torch.equal(func.vmap(lambda m: gm.matmul(m, w))(stack), torch.stack([gm.matmul(m, w) for m in stack]))


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dual_tensors(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype, product: Product) -> None:
    a, b = (random(s, dtype) for s in shapes)

    def tangent(p: Product) -> Tensor:
        with forward_ad.dual_level():
            dual = p(forward_ad.make_dual(a, a * 3), forward_ad.make_dual(b, b.flip(-1)))
            return torch.stack(list(forward_ad.unpack_dual(dual)))

    assert_same(tangent(product), tangent(torch.matmul), dtype)


@pytest.mark.parametrize("shapes", SHAPES[:7], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_gradcheck(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype, product: Product) -> None:
    """Against finite differences: reverse, forward, batched, and the second derivatives of both orders."""
    if dtype.is_complex and shapes[0] == (2, 1, 3, 4):
        pytest.skip("hundreds of numbers: seconds, and the same formulas")
    a, b = (random(s, dtype).requires_grad_() for s in shapes)
    first = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(product, (a, b), fast_mode=False, **first)
    second = {"check_fwd_over_rev": True, "check_rev_over_rev": True, "check_batched_grad": True}
    assert torch.autograd.gradgradcheck(product, (a, b), fast_mode=True, **second)


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16], ids=str)
def test_narrow_and_mixed_types(narrow: torch.dtype) -> None:
    a, b = random((3, 4), narrow), random((4, 2), torch.float32)
    i = torch.arange(12).reshape(4, 3)
    for left, right in ((a, b), (a, b.to(narrow)), (a, b.to(torch.complex64)), (i.double(), a.double())):
        common = torch.promote_types(left.dtype, right.dtype)
        t = torch.ones_like(left)
        out, tangent = func.jvp(lambda x, right=right: gm.matmul(x, right), (left,), (t,))
        assert out.dtype == tangent.dtype == gm.matmul(left, right).dtype == common
        assert torch.equal(tangent, gm.matmul(t, right))
        grad = func.grad(lambda x, right=right: gm.matmul(x, right).abs().sum())(left)
        assert grad.dtype == left.dtype
    # Beside a differentiated argument, integers have no tangent.
    x = random((3,), torch.float64)
    out, tangent = func.jvp(lambda v: gm.matmul(i, v), (x,), (x * 2,))
    assert torch.equal(tangent, gm.matmul(i, x * 2))
    whole = func.grad(lambda v: (v.sum() * gm.matmul(i, i.T)).sum())(x)
    assert torch.equal(whole, torch.full_like(x, gm.matmul(i, i.T).sum().item()))


COMPILED: dict[str, Callable[[Product, Tensor, Tensor], object]] = {
    **{name: TRANSFORMS[name] for name in ("grad", "jvp", "jvp of vjp", "grad of vmap", "vmap of grad")},
    **{name: JACOBIANS[name] for name in ("jacrev", "jacfwd", "hessian")},
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_transforms(name: str) -> None:
    """Whole graphs, with the bits of the eager ones."""
    a, b = random((3, 4)), random((4, 2))

    def transformed(x: Tensor, y: Tensor) -> object:
        return COMPILED[name](gm.torch.matmul, x, y)

    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(transformed, backend="aot_eager", fullgraph=True)(a, b), transformed(a, b), rtol=0, atol=0
    )


def test_functionalize() -> None:
    a, b = random((2, 3, 4)), random((4, 2))
    for p in PRODUCTS.values():
        assert torch.equal(func.functionalize(lambda x, p=p: p(x, b))(a), p(a, b))
        assert torch.equal(func.vmap(func.functionalize(lambda x, p=p: p(x, b)))(a), p(a, b))


class Marked(ReferenceEngine):
    """An engine that no registry knows, which counts what it is asked for."""

    name = "marked"

    def __init__(self) -> None:
        super().__init__()
        self.used = 0

    def scan(self, x, inner):  # type: ignore[no-untyped-def]
        self.used += 1
        return super().scan(x, inner)


def test_an_engine_itself_runs_the_derivatives() -> None:
    """Not the registered engine of that name, nor an error of the registry; also after its caller let go of it."""
    a, b = random((70, 80)).requires_grad_(), random((80, 70))
    engine = Marked()
    result = gm.matmul(a, b, engine=engine)
    before = engine.used
    assert before
    counts = engine.__dict__
    del engine
    (grad,) = torch.autograd.grad(result.sum(), a)
    assert counts["used"] > before
    assert torch.equal(grad, gm.matmul(torch.ones(70, 70, dtype=torch.float64), b.T))
    assert torch.equal(
        func.jvp(lambda x: gm.torch.matmul(x, b, engine=Marked()), (a.detach(),), (a.detach(),))[1],
        gm.matmul(a.detach(), b),
    )


def test_out_and_derivatives() -> None:
    a = torch.ones(2, 2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(a, a)
        with pytest.raises(TypeError, match="out takes no forward derivative"):
            gm.matmul(a, dual, out=torch.empty(2, 2))
        with pytest.raises(TypeError, match="out takes no forward derivative"):
            gm.matmul(a, a, out=dual)
        assert gm.matmul(a, a, out=torch.empty(2, 2)).eq(2).all()
