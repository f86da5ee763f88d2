"""Products with gm.Bits(n) of tensors: nothing is read by the host, so that a CUDA graph can hold them.

Not run on a GPU. In its place: tensors of the device meta, which have no data to read; a trace of one product's tensor
operations, replayed on other data as a graph is; and torch's word on whether its stream is being captured, replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import gemmulate as gm
from gemmulate.engines import array_crt
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.residue_system import ResidueSystem
from gemmulate.engines.torch import TorchLibrary
from gemmulate.engines.torch_array import TorchArray, to_device
from gemmulate.engines.torch_fp4 import unit_scales
from gemmulate.engines.torch_fp8 import Fp8Library
from gemmulate.plan import tensors
from gemmulate.plan.matmul import matmul
from gemmulate.plan.trusted import trusted_engine

CUDA = torch.device("cuda", 0)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.complex128)
SHAPES = [((24, 65), (65, 17)), ((2, 12, 33), (33, 11)), ((12, 40), (40,)), ((3, 0), (0, 4)), ((0, 3), (3, 4))]


def on(engine: ArrayEngine, bits: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The product as `gm.matmul` makes it on an engine of a device, without its disabling of modes."""

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = matmul(TorchArray(a), TorchArray(b), accuracy=gm.Bits(bits), engine=engine).tensor
        return result

    return product


def hostile(seed: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Wide exponents, subnormal numbers, both zeros, a row and a column of zeros, NaN and infinities."""
    if dtype.is_complex:
        return torch.complex(*(hostile(seed + i, shape, dtype.to_real()) for i in range(2)))
    rng, info = np.random.default_rng(seed), torch.finfo(dtype)
    spread = 4 if dtype == torch.float16 else 40
    x = torch.from_numpy(np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape))).to(dtype)
    for share, value in ((0.2, 0.0), (0.1, -0.0), (0.1, info.smallest_normal / 2)):
        x[torch.from_numpy(rng.random(shape) < share)] = value
    if x.ndim > 1 and x.numel():
        x[..., 2, :], x[..., 1], x[..., 6, :] = -0.0, 0.0, info.max
        x[..., 7, 3], x[..., 8, 2], x[..., 9, :2] = torch.nan, torch.inf, -torch.inf
    return x


def same(got: torch.Tensor, want: np.ndarray) -> bool:
    return tuple(got.shape) == want.shape and got.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize("library", [TorchLibrary, Fp8Library])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_a_device_without_data(library: type, dtype: torch.dtype, left: Any, right: Any) -> None:
    """Reading a meta tensor is an error, and so is an operation that meets one of another device."""
    product = on(ArrayEngine("meta", library("meta")), 54)
    a, b = (torch.empty(shape, dtype=dtype, device="meta") for shape in (left, right))
    with pytest.raises((RuntimeError, NotImplementedError)):
        a.cpu()
    result = product(a, b)
    assert (result.shape, result.dtype, result.device) == (torch.matmul(a, b).shape, dtype, a.device)


def test_grades_that_read_data_fail_there() -> None:
    """The test above would find them."""
    engine = ArrayEngine("meta", TorchLibrary("meta"))
    a = torch.empty((70, 70), dtype=torch.float64, device="meta")
    for accuracy in ("fast", "fp64", "exact"):
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            matmul(TorchArray(a), TorchArray(a), accuracy=accuracy, engine=engine)


@pytest.mark.parametrize(
    ("dtype", "bits"), [*((dtype, 54) for dtype in DTYPES), (torch.float64, 5), (torch.float64, 100)], ids=str
)
@pytest.mark.parametrize(("left", "right"), SHAPES[:3])
def test_a_recorded_product_serves_other_data(dtype: torch.dtype, bits: int, left: Any, right: Any) -> None:
    product = on(ArrayEngine("torch", TorchLibrary("cpu")), bits)
    recorded = make_fx(product)(torch.ones(left, dtype=dtype), torch.ones(right, dtype=dtype))
    nodes = [node for node in recorded.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    assert len(nodes) > 100
    unwanted = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    assert not [node for node in nodes if unwanted & set(node.target.tags)]
    assert {node.target for node in nodes if "device" in node.kwargs} <= {torch.ops.aten.empty.memory_format}
    for seed in (1, 2):
        a, b = hostile(seed, left, dtype), hostile(seed + 10, (*right[:-2], *right[:-3:-1]), dtype)
        b = b.mT if b.ndim > 1 else b
        want = gm.matmul(a.numpy(), b.numpy(), accuracy=gm.Bits(bits))
        assert same(recorded(a, b), want)
        assert same(gm.matmul(a, b, accuracy=gm.Bits(bits), engine="torch"), want)


def test_blocks_change_no_bit() -> None:
    library = TorchLibrary("cpu")
    library.block, library.panel = 100, (16, 16)
    a, b = hostile(5, (40, 33), torch.float64), hostile(6, (50, 33), torch.float64).T
    for bits in (14, 54):
        want = gm.matmul(a.numpy(), b.numpy(), accuracy=gm.Bits(bits))
        assert same(on(ArrayEngine("torch", library), bits)(a, b), want)


def test_integers_as_floats_are_exact() -> None:
    """What docs/frameworks.md says of integers in a graph."""
    rng = np.random.default_rng(8)
    for bits, dtype, shape in ((8, np.int8, (30, 900)), (22, np.int32, (30, 400))):
        a, b = (rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), shape, dtype=dtype) for _ in range(2))
        a[0] = b[0] = -(2 ** (bits - 1))
        a[1] = 1
        product = on(ArrayEngine("torch", TorchLibrary("cpu")), bits)
        got = product(torch.from_numpy(a).double(), torch.from_numpy(b).double().T)
        assert got.long().tolist() == (a.astype(object) @ b.astype(object).T).tolist()


def test_all_products_negative_zero() -> None:
    a = torch.tensor([[0.0, -0.0], [0.0, 1.0], [-0.0, -0.0], [-1e-300, 1.0]], dtype=torch.float64)
    b = torch.tensor([[-1.0, 1.0, 0.0, 1.0], [2.0, 0.0, -1.0, 0.0]], dtype=torch.float64)
    got = gm.matmul(a, b, accuracy=gm.Bits(8), engine="torch")
    zero = [[all(f"{x * y}" == "-0.0" for x, y in zip(row, column, strict=True)) for column in b.T] for row in a]
    assert (got.signbit() & (got == 0)).tolist() == zero
    assert not zero[3][3]
    assert got[3, 3] == 0  # rounded away beside 1, no product of −0


def begin_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_capture(monkeypatch)


@pytest.mark.usefixtures("capturing")
def test_nothing_is_copied_to_the_device_within_a_capture() -> None:
    with pytest.raises(RuntimeError, match=r"cuda:0 yet .* multiply operands of the same shapes"):
        to_device(np.zeros(3), CUDA)
    assert to_device(np.zeros(3), torch.device("cpu")).tolist() == [0, 0, 0]
    trusted_engine.cache_clear()
    with pytest.raises(RuntimeError, match="no engine has been tried on cuda:0 yet"):
        trusted_engine("cuda:0", ("triton", "torch-cuda"))


@pytest.mark.usefixtures("capturing")
def test_no_engine_is_made_within_a_capture() -> None:
    with pytest.raises(RuntimeError, match=r"no product has run on cuda:0 yet .* multiply once before the capture"):
        TorchLibrary("cuda:0")


def test_what_a_graph_reads_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    library, system = TorchLibrary("cpu"), ResidueSystem((256, 255))
    first = array_crt._weights(library, system, 0)
    for shift in range(600):
        array_crt._weights(library, system, shift)
    assert array_crt._weights(library, system, 0) is first
    assert unit_scales(3, 32, library.device) is unit_scales(3, 32, library.device)
    begin_capture(monkeypatch)
    with FakeTensorMode():
        assert unit_scales(3, 32, CUDA) is not unit_scales(3, 32, CUDA)


def test_memory_is_not_asked_within_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    library = TorchLibrary("cpu")
    library.device = CUDA
    answers = {"mem_get_info": (5000, 9000), "memory_reserved": 300, "memory_allocated": 200}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer)
    assert library.memory() == 5100
    for name in answers:
        monkeypatch.delattr(torch.cuda, name)
    begin_capture(monkeypatch)
    assert library.memory() == 5100


@pytest.mark.usefixtures("capturing")
@pytest.mark.parametrize(
    ("dtype", "options", "message"),
    [
        (torch.float64, {"accuracy": "fast"}, "accuracy = 'fast' chooses bits from the data"),
        (torch.float64, {"accuracy": "fp64"}, "accuracy = 'fp64' chooses bits from the data"),
        (torch.complex64, {"accuracy": "exact"}, "accuracy = 'exact' chooses bits from the data"),
        (torch.int8, {"accuracy": gm.Bits(8)}, r"the widths of integers \(a is torch.int8"),
        (torch.float64, {"accuracy": gm.Bits(8), "formats": "fp4_e2m1"}, "runs on the host"),
        (torch.float64, {"accuracy": gm.Bits(8), "engine": "reference"}, "runs on the host"),
    ],
)
def test_what_a_capture_refuses_names_the_way_out(dtype: torch.dtype, options: dict[str, Any], message: str) -> None:
    library = TorchLibrary("cpu")
    library.device = CUDA
    chosen = {"modulus": None, "overflow": "raise", "threads": None, "formats": None} | options
    engine = chosen.pop("engine", ArrayEngine("torch-cuda", library))
    with FakeTensorMode():
        a = torch.empty((70, 70), dtype=dtype, device=CUDA)
    with pytest.raises(RuntimeError, match=message + r".*not while a CUDA graph is captured; .*gm\.Bits\(n\)"):
        tensors.multiply_detached(a, a, None, engine, **chosen)
    tensors.check_capturable(torch.ones(2), torch.ones(2), ArrayEngine("torch-cuda", library), chosen | {
        "accuracy": gm.Bits(54), "formats": None,
    })  # fmt: skip
