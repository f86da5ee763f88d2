"""`gm.matmul` of torch tensors: the bits of NumPy's route, on the tensors' device, for every kind and option."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

import gemmulate as gm

RNG = np.random.default_rng(20261130)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)
INTEGERS = (
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    torch.bool,
)


def spread(shape: tuple[int, ...], bits: int = 30) -> np.ndarray:
    """Entries of both signs whose exponents spread over `bits`."""
    return np.asarray(RNG.standard_normal(shape) * 2.0 ** RNG.integers(-bits, bits, shape))


def as_numpy(x: torch.Tensor) -> np.ndarray:
    return np.asarray(x.to(torch.float32).numpy() if x.dtype == torch.bfloat16 else x.numpy())


def same(got: torch.Tensor, want: np.ndarray) -> bool:
    """Bit for bit, NaN payloads aside."""
    assert isinstance(got, torch.Tensor)
    assert tuple(got.shape) == want.shape
    host = as_numpy(got)
    if want.dtype.name == "bfloat16":
        want = want.astype(np.float32)
    assert host.dtype == want.dtype
    kind = {"f": f"u{host.itemsize}", "c": f"u{host.itemsize // 2}"}.get(host.dtype.kind)
    if kind is None:
        return np.array_equal(host, want)
    clean = [np.nan_to_num(np.ascontiguousarray(x)[..., None].view(f"f{kind[1:]}"), nan=0.125) for x in (host, want)]
    nan = np.array_equal(np.isnan(host), np.isnan(want))
    return nan and np.array_equal(clean[0].view(kind), clean[1].view(kind))


ENGINES = [None, "reference", "torch"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact", gm.Bits(40)], ids=str)
def test_floats(dtype: torch.dtype, accuracy: str, engine: str | None) -> None:
    a, b = (torch.from_numpy(spread(s, 6)).to(dtype) for s in ((9, 33), (33, 7)))
    if dtype == torch.bfloat16:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        x, y = (as_numpy(t).astype(ml_dtypes.bfloat16) for t in (a, b))
    else:
        x, y = as_numpy(a), as_numpy(b)
    want = gm.matmul(x, y, accuracy=accuracy, engine=engine)
    assert same(gm.matmul(a, b, accuracy=accuracy, engine=engine), want)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype: torch.dtype, engine: str | None) -> None:
    info = np.iinfo(str(dtype).removeprefix("torch.")) if dtype != torch.bool else None
    x, y = (
        RNG.integers(0, 2, s).astype(bool)
        if info is None
        else RNG.integers(max(info.min, -(2**25)), min(info.max, 2**25), s, endpoint=True).astype(info.dtype)
        for s in ((5, 17), (17, 6))
    )
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    assert same(gm.matmul(a, b, engine=engine), gm.matmul(x, y))
    assert same(gm.matmul(a, b, overflow="wrap", engine=engine), x @ y)
    for p in (7, 10007, 2**63):
        assert same(gm.matmul(a, b, modulus=p, engine=engine), gm.matmul(x, y, modulus=p))
    objects = gm.matmul(a, b, overflow="object", engine=engine)
    assert objects.dtype == object
    assert (objects == x.astype(object).astype(int).astype(object) @ y.astype(int).astype(object)).all()


@pytest.mark.parametrize(
    ("left", "right"),
    [((4,), (4,)), ((4,), (4, 3)), ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 3)), ((3, 0), (0, 2))],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_shapes(left: tuple[int, ...], right: tuple[int, ...], engine: str | None) -> None:
    x, y = spread(left), spread(right)
    got = gm.matmul(torch.from_numpy(x), torch.from_numpy(y), engine=engine)
    assert same(got, np.asarray(gm.matmul(x, y)))


@pytest.mark.parametrize("engine", ENGINES)
def test_layouts_keep_bits(engine: str | None) -> None:
    def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gm.matmul(x, y, engine=engine)

    x, y = spread((40, 30)), spread((50, 40))
    a, b = torch.from_numpy(x), torch.from_numpy(y)
    assert same(multiply(a.T, b.T), gm.matmul(x.T, y.T))
    assert same(multiply(a[::3, ::2], b[:15:1, :1:]), gm.matmul(x[::3, ::2], y[:15, :1]))
    assert same(multiply(a.expand(3, 40, 30), a.mT), gm.matmul(np.broadcast_to(x, (3, 40, 30)), x.T))
    z = torch.randn(6, 6, dtype=torch.complex128)
    assert same(multiply(z.conj(), z.mH), gm.matmul(z.numpy().conj(), z.numpy().conj().T))
    negative = torch.imag(z.conj())  # a view with the negative bit
    assert same(multiply(negative, z.real), gm.matmul(np.ascontiguousarray(-z.numpy().imag), z.numpy().real))


@pytest.mark.parametrize("engine", ENGINES)
def test_special_values(engine: str | None) -> None:
    x, y = spread((6, 5)), spread((5, 6))
    x[1, 2], x[4, 0], y[3, 3], y[0, 5] = np.nan, np.inf, -np.inf, 0.0
    assert same(gm.matmul(torch.from_numpy(x), torch.from_numpy(y), engine=engine), gm.matmul(x, y))


@pytest.mark.parametrize("engine", ENGINES)
def test_out_receives_the_result(engine: str | None) -> None:
    a, b = (torch.from_numpy(spread(s)) for s in ((7, 5), (5, 4)))
    whole = torch.full((9, 4), 7.0, dtype=torch.float64)
    out = whole[1:8]
    assert gm.matmul(a, b, out=out, engine=engine) is out
    assert same(out.contiguous(), gm.matmul(a.numpy(), b.numpy()))
    assert whole[0].eq(7).all()
    assert whole[8].eq(7).all()
    i = torch.arange(6).reshape(2, 3)
    narrow = torch.empty(2, 2, dtype=torch.int16)
    assert gm.matmul(i, i.T, out=narrow, engine=engine).tolist() == [[5, 14], [14, 50]]
    with pytest.raises(gm.ResultOverflow, match="out's dtype int16"):
        gm.matmul(i * 1000, i.T, out=narrow, engine=engine)
    assert narrow.tolist() == [[5, 14], [14, 50]]
    with pytest.raises(ValueError, match=r"out has shape \(3, 3\)"):
        gm.matmul(i, i.T, out=torch.empty(3, 3, dtype=torch.int64), engine=engine)


def test_overflow_is_an_error() -> None:
    a = torch.full((2, 2), 2**62)
    with pytest.raises(gm.ResultOverflow, match="a result needs 127 bits"):
        gm.matmul(a, a)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (torch.ones(2, 2), np.ones((2, 2), np.float32), "b is a ndarray beside torch tensors"),
        (np.ones((2, 2), np.float32), torch.ones(2, 2), "a is a ndarray"),
        (torch.ones(2, 2).to_sparse(), torch.ones(2, 2), "a is a sparse_coo tensor"),
        (torch.ones(2, 2), torch.ones(2, 2, device="meta"), "b is on device meta"),
        (torch.ones(2, 2).to(torch.float8_e4m3fn), torch.ones(2, 2), "dtype torch.float8_e4m3fn"),
    ],
)
def test_refusals(a: object, b: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        gm.matmul(a, b)


KINDS = {
    "sparse_coo": lambda x: x.to_sparse(),
    "sparse_csr": lambda x: x.to_sparse_csr(),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "_mkldnn": lambda x: x.to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged),
}


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*:UserWarning", "ignore:.*quantiz.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*quantiz.*:UserWarning", "ignore:The PyTorch API of nested:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("product", [gm.matmul, gm.torch.matmul])
def test_tensors_that_are_not_dense(kind: str, product: Callable[..., torch.Tensor]) -> None:
    dense = torch.eye(3)
    with pytest.raises(TypeError, match=f"a is a {kind} tensor; products take dense ones"):
        product(KINDS[kind](dense), dense)
    with pytest.raises(TypeError, match=f"b is a {kind} tensor"):
        product(dense.clone().requires_grad_(), KINDS[kind](dense))


@pytest.mark.parametrize("product", [gm.matmul, gm.torch.matmul])
def test_bad_arguments_of_every_route(product: Callable[..., torch.Tensor]) -> None:
    """The same error with a gradient, within a transform, and without."""

    def routes(x: torch.Tensor, y: object, **options: object) -> None:
        yield lambda: product(x, y, **options)
        yield lambda: product(x.clone().requires_grad_(), y, **options)
        yield lambda: torch.func.vmap(lambda z: product(z, y, **options))(torch.stack([x, x]))

    eye = torch.eye(3)
    for x, y, options, error, message in (
        (eye, eye.numpy(), {}, TypeError, "b is a ndarray beside torch tensors"),
        (eye, 2.0, {}, TypeError, "b is a float beside torch tensors"),
        (eye, torch.ones(2, 3), {}, ValueError, r"a's last dimension \(3\) must equal b's second last one \(2\)"),
        (eye, torch.tensor(1.0), {}, ValueError, "b is 0-dimensional"),
        (torch.tensor(1.0), eye, {}, ValueError, "a is 0-dimensional"),
        (eye, eye, {"threads": 2.5}, TypeError, "threads = 2.5 is not an integer"),
        (eye, eye, {"engine": 5}, ValueError, "engine = 5 is unknown"),
        (eye, eye, {"accuracy": "best"}, ValueError, "accuracy = 'best'"),
        (eye, eye.to(torch.float8_e5m2), {}, TypeError, "b has dtype torch.float8_e5m2"),
        (torch.full((2, 2), 2.0), torch.full((2, 2), 2**60), {}, TypeError, "values beyond 2\\^53"),
    ):
        for call in routes(x, y, **options):
            with pytest.raises(error, match=message):
                call()


def test_subclasses_and_modes_of_torch_s_functions() -> None:
    """As in torch.matmul: such a subclass stays one, and may take the product over."""

    class Tagged(torch.Tensor):
        pass

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            seen.append(function)
            return function(*args, **(kwargs or {}))

    a, b = torch.from_numpy(spread((3, 4))), torch.from_numpy(spread((4, 2)))
    for left, right in ((a.as_subclass(Tagged), b), (a, b.as_subclass(Tagged))):
        for product in (gm.matmul, gm.torch.matmul):
            got = product(left, right, accuracy="exact")
            assert type(got) is type(torch.matmul(left, right)) is Tagged
            assert same(got.as_subclass(torch.Tensor), gm.matmul(a.numpy(), b.numpy(), accuracy="exact"))
    assert type(gm.matmul(torch.nn.Parameter(a), b)) is torch.Tensor
    seen: list[object] = []
    with Seen():
        gm.matmul(a, b)
    assert gm.matmul in seen


def test_empty_results_have_torch_s_strides() -> None:
    for left, right in (((0, 4), (4, 3)), ((3, 0), (0, 2)), ((2, 0, 4), (4, 3)), ((0,), (0, 3)), ((5, 4), (4, 0))):
        a, b = torch.ones(left), torch.ones(right)
        assert gm.matmul(a, b).stride() == torch.matmul(a, b).stride()


def test_zeros_without_memory() -> None:
    zeros = torch._efficientzerotensor((3, 4), dtype=torch.float64)
    assert torch.equal(gm.matmul(zeros, torch.ones(4, 2, dtype=torch.float64)), torch.zeros(3, 2, dtype=torch.float64))


@pytest.mark.parametrize("accuracy", ["fast", "fp64", "exact"])
def test_operands_stay_where_they_are(accuracy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: no matrix of finite entries comes to the host as a whole."""
    from gemmulate.engines import array_engine
    from gemmulate.engines.torch_array import TorchArray

    def refuse(*_: object) -> None:
        raise AssertionError("a matrix was copied to the host")

    fetched = []
    fetch = array_engine.fetch
    monkeypatch.setattr(TorchArray, "__array__", refuse)
    monkeypatch.setattr(array_engine, "fetch", lambda lib, x, at: fetched.append(len(at)) or fetch_rows(lib, x, at))

    def fetch_rows(lib: object, x: TorchArray, at: np.ndarray) -> np.ndarray:
        return x.tensor[torch.from_numpy(at)].numpy() if len(at) else fetch(lib, np.empty((0, x.shape[1])), at)

    x, y = spread((70, 80)), spread((80, 90))
    got = gm.matmul(torch.from_numpy(x), torch.from_numpy(y), accuracy=accuracy, engine="torch")
    assert same(got, gm.matmul(x, y, accuracy=accuracy))
    i = torch.from_numpy(RNG.integers(-(2**20), 2**20, (70, 80)))
    assert torch.equal(gm.matmul(i, i.T, engine="torch"), gm.matmul(i, i.T))


def test_plan_takes_tensors() -> None:
    a = torch.ones(3, 4, dtype=torch.int8)
    assert gm.plan(a, a.T).scheme == "direct"


def test_tensors_do_not_make_numpy_callers_load_torch() -> None:
    code = (
        "import sys, numpy as np, gemmulate as gm; gm.matmul(np.eye(2), np.eye(2)); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_default_engine_of_a_device_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmulate.engines.array_engine import ArrayEngine
    from gemmulate.plan.trusted import trusted_engine

    trusted_engine.cache_clear()
    assert trusted_engine("cpu", ("torch-cuda", "torch")) == "torch"  # what is not there is passed over in silence
    trusted_engine.cache_clear()
    multiply = ArrayEngine.multiply_floats

    def wrong(self: ArrayEngine, *arguments: object) -> object:
        outcome = multiply(self, *arguments)  # type: ignore[arg-type]
        if self.name == "torch":
            arguments[5].tensor[0, 0] += 1  # type: ignore[attr-defined]
        return outcome

    def crowded(*_: object) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as full:
        full.setattr(ArrayEngine, "multiply_floats", crowded)
        full.setattr(torch.cuda, "empty_cache", lambda: None)
        with pytest.raises(MemoryError, match="does not fit the memory of cpu"):
            trusted_engine("cpu", ("torch", "torch-fp8"))
    assert trusted_engine("cpu", ("torch", "torch-fp8")) == "torch"
    trusted_engine.cache_clear()
    monkeypatch.setattr(ArrayEngine, "multiply_floats", wrong)
    with pytest.warns(RuntimeWarning, match="engine torch is not used on cpu: its float64 fast product differs"):
        assert trusted_engine("cpu", ("torch", "torch-fp8")) == "torch-fp8"
    trusted_engine.cache_clear()
    with pytest.raises(gm.EngineUnavailable, match="no engine runs on cpu"):
        trusted_engine("cpu", ("torch-cuda", "cupy"))
    trusted_engine.cache_clear()


def test_a_cuda_device_tries_engines_by_its_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the name of the device and the trial are put in place: the list is the catalogue's."""
    from gemmulate.plan import tensors

    asked: list[tuple[str, tuple[str, ...]]] = []

    def trusted(device: str, names: tuple[str, ...]) -> str:
        asked.append((device, names))
        return "native"

    monkeypatch.setattr(tensors, "trusted_engine", trusted)
    for name in ("NVIDIA B300 SXM6 AC", "NVIDIA H200"):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        assert tensors.device_engine(torch.device("cuda", 1), None, None) is None  # the host's
    assert [device for device, _ in asked] == ["cuda:1", "cuda:1"]
    assert asked[0][1][0] == "triton-bf16"
    assert asked[1][1] == ("triton", "torch-cuda")


@pytest.mark.parametrize("engine", [None, "torch"])
def test_out_with_a_conjugation_or_negation_pending(engine: str | None) -> None:
    a, b = (torch.complex(*(torch.from_numpy(spread(s, 9)) for _ in range(2))) for s in ((3, 5), (5, 4)))
    kept = torch.zeros(3, 4, dtype=torch.complex128)
    out = gm.matmul(a, b, accuracy="exact", out=kept.conj(), engine=engine)
    want = gm.matmul(a.numpy(), b.numpy(), accuracy="exact")
    assert same(out.resolve_conj(), want)
    assert same(kept, want.conj())
    gm.matmul(a.real, b.real, accuracy="exact", out=kept.conj().imag, engine=engine)
    assert same(kept.imag, -gm.matmul(a.real.numpy(), b.real.numpy(), accuracy="exact"))


@pytest.mark.parametrize("engine", [None, "torch"])
def test_out_whose_elements_share_memory_is_refused(engine: str | None) -> None:
    a, b = torch.ones(3, 2), torch.ones(2, 4)
    for out in (torch.zeros(1, 4).expand(3, 4), torch.zeros(9).as_strided((3, 4), (2, 1))):
        with pytest.raises(ValueError, match="elements share memory"):
            gm.matmul(a, b, out=out, engine=engine)
        assert not out.any()
    crossing = torch.zeros(12).as_strided((3, 4), (1, 3))  # neither nested nor shared
    assert (gm.matmul(a, b, out=crossing, engine=engine) == 2).all()
    crossing = torch.zeros(20).as_strided((2, 3), (3, 2))
    assert (gm.matmul(a[:2], b[:, :3], out=crossing, engine=engine) == 2).all()


@pytest.mark.parametrize("engine", [None, "torch"])
def test_autograd_knows_that_out_was_written(engine: str | None) -> None:
    a, b, out = torch.ones(2, 3), torch.ones(3, 2), torch.ones(2, 2)
    x = torch.ones(2, 2, requires_grad=True)
    y = (x * out).sum()  # keeps out for the backward product
    gm.matmul(a, b, out=out, engine=engine)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    with pytest.raises(TypeError, match="out requires a gradient"):
        gm.matmul(a, b, out=x, engine=engine)
    assert (x == 1).all()
    with torch.no_grad():
        assert (gm.matmul(a, b, out=x, engine=engine) == 3).all()


def test_a_modulus_is_not_lost_where_a_gradient_is_wanted() -> None:
    with pytest.raises(TypeError, match="modulus = 7 needs integer operands"):
        gm.matmul(torch.ones(2, 2, requires_grad=True), torch.ones(2, 2), modulus=7)


@pytest.mark.parametrize("engine", [None, "torch"])
def test_tensors_without_memory(engine: str | None) -> None:
    """Of torch.func and fake ones: by the operator, whose result torch knows how to wrap."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    stack, b = torch.from_numpy(spread((4, 3, 5))), torch.from_numpy(spread((5, 2)))

    def product(x: torch.Tensor) -> torch.Tensor:
        return gm.matmul(x, b, accuracy="exact", engine=engine)

    want = gm.matmul(stack.numpy(), b.numpy(), accuracy="exact")
    assert same(torch.func.vmap(product)(stack), want)
    assert same(torch.func.functionalize(product)(stack), want)
    with FakeTensorMode() as mode:
        fake = gm.matmul(mode.from_tensor(stack), mode.from_tensor(b), engine=engine)
    assert (fake.shape, fake.dtype) == (want.shape, torch.float64)
    with pytest.raises(TypeError, match="out, modulus and overflow"):
        torch.func.vmap(lambda x: gm.matmul(x, x, overflow="wrap"))(torch.ones(2, 3, 3, dtype=torch.int64))


def test_prepared_and_planned_tensors() -> None:
    x, y = spread((4, 6)), spread((6, 3))
    a = torch.complex(*(torch.from_numpy(x),) * 2)
    for tensor in (a.conj().imag, torch.from_numpy(x).requires_grad_()):
        sign = -1 if tensor.is_neg() else 1
        got = gm.prepare(tensor) @ y
        assert got.tobytes() == (sign * gm.matmul(x, y)).tobytes()
    for call in (gm.prepare, lambda t: gm.plan(t, t)):
        with pytest.raises(TypeError, match="a is on device meta"):
            call(torch.ones(2, 2, device="meta"))
        with pytest.raises(TypeError, match="a is a sparse_coo tensor"):
            call(torch.ones(2, 2).to_sparse())
