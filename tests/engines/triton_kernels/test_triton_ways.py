"""Every way to residue products gives the digits that Python's ints have; which one runs is chosen by time alone.

Times, devices and captures are stand-ins here: nothing was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from triton_inputs import bits

import gemmulate as gm
from gemmulate.engines.residue_system import INT8_MODULI, ResidueSystem
from gemmulate.engines.torch import TorchLibrary
from gemmulate.engines.triton import engine as engine_module
from gemmulate.engines.triton import gemm_choice, gemm_ways, library_gemm
from gemmulate.engines.triton import resident as resident_module
from gemmulate.engines.triton.chosen import MOST_MODULI, choice_of_moduli
from gemmulate.engines.triton.deconstruct import empty_planes
from gemmulate.engines.triton.described_gemm import (
    Tile,
    described_gemm,
    described_gemm_chosen,
    described_tile,
    plane_rows,
)
from gemmulate.engines.triton.engine import TritonEngine
from gemmulate.engines.triton.gemm_ways import WAYS, applies, digits_by, digits_chosen_by, ways_of

CPU = torch.device("cpu")
OTHER = "native" if next(r for r in gm.engines() if r.name == "native").available else "reference"
SMALL = Tile(16, 32, 32, 4, 1, 1)
exact_library = pytest.mark.skipif(not TorchLibrary("cpu")._integer, reason="torch._int_mm saturates on this processor")


def planes(moduli: int, vectors: int, depth: int, row: int, seed: int = 0) -> torch.Tensor:
    """Planes of the largest magnitudes, `row` bytes from one vector to the next, the rest of it no zeros."""
    rng = np.random.default_rng([moduli, vectors, depth, seed])
    whole = rng.integers(-128, 128, (moduli, vectors, row), dtype=np.int8)
    whole[:, 0], whole[:, -1, 1::2] = -128, 127
    return torch.from_numpy(whole)[..., :depth]


def digits_of(a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> Any:
    sums = a.numpy().astype(object) @ b.numpy().astype(object).transpose(0, 2, 1)
    return sums % np.array(system.moduli, dtype=object)[:, None, None]


@pytest.mark.parametrize(
    ("m", "n", "depth", "row", "count"),
    [(1, 1, 1, 16, 3), (17, 33, 37, 48, 2), (40, 5, 64, 64, 4), (3, 70, 801, 816, 3), (33, 65, 33, 48, 1)],
)
def test_digits_through_descriptors(m: int, n: int, depth: int, row: int, count: int) -> None:
    """Programs go on to further tiles and moduli; vectors past a plane's end are the next plane's."""
    system = ResidueSystem(INT8_MODULI[:count])
    a, b = planes(count, m, depth, row), planes(count, n, depth, row, 1)
    assert applies("descriptors", a, b)
    expected = digits_of(a, b, system)
    assert (described_gemm(a, b, system, SMALL).numpy() == expected).all()
    assert (digits_by("descriptors", a, b, system).numpy() == expected).all()


def test_parts_of_planes_through_descriptors() -> None:
    """Rows of a panel: other planes lie a whole operand apart."""
    system = ResidueSystem(INT8_MODULI[:3])
    a, b = planes(3, 50, 48, 48), planes(3, 20, 48, 48, 1)
    for part in (slice(0, 18), slice(18, 50), slice(49, 50)):
        assert (described_gemm(a[:, part], b, system, SMALL).numpy() == digits_of(a[:, part], b, system)).all()


def test_the_deepest_sums_through_descriptors() -> None:
    system = ResidueSystem((256, 255, 29))
    a = torch.full((3, 2, 65_280), -128, dtype=torch.int8)
    a[:, 1] = 127
    assert (described_gemm(a, a, system, Tile(16, 16, 4096, 4, 1, 1)).numpy() == digits_of(a, a, system)).all()


@pytest.mark.parametrize("count", [0, 1, 15, MOST_MODULI])
def test_as_many_moduli_as_the_device_says(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all planes, whole and a panel of rows; nothing is written beyond them."""
    a, b = planes(MOST_MODULI, 21, 33, 48), planes(MOST_MODULI, 35, 33, 48, 1)
    system, choice = ResidueSystem(INT8_MODULI), choice_of_moduli(count, CPU)
    choice[1:] = -1  # fields that are not read
    real = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, **options: real(shape, **options).fill_(251))
    for part in (slice(None), slice(3, 20)):
        expected = digits_of(a[:, part], b, system)[:count]
        for got in (
            described_gemm_chosen(a[:, part], b, choice, SMALL),
            *(digits_chosen_by(way, a[:, part], b, choice) for way in ("pointers", "descriptors", "library")),
        ):
            assert got.shape == (MOST_MODULI, len(a[0, part]), 35)
            assert (got[:count].numpy() == expected).all()
            assert (got[count:] == 251).all()


def test_a_choice_where_descriptors_do_not_apply() -> None:
    a, b = planes(3, 5, 41, 41), planes(3, 7, 41, 41, 1)
    choice, expected = choice_of_moduli(2, CPU), digits_of(a, b, ResidueSystem(INT8_MODULI[:3]))
    for way in WAYS:
        assert (digits_chosen_by(way, a, b, choice)[:2].numpy() == expected[:2]).all(), way
    with pytest.raises(ValueError, match="use residue_gemm"):
        described_gemm_chosen(a, b, choice)


@exact_library
@pytest.mark.parametrize(("m", "n", "depth", "count"), [(33, 16, 16, 3), (50, 48, 48, 2), (35, 144, 4112, 1)])
def test_digits_by_the_library(m: int, n: int, depth: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In panels of rows, whose last overlaps the one before."""
    system = ResidueSystem(INT8_MODULI[:count])
    a, b = planes(count, m, depth, depth), planes(count, n, depth, depth, 1)
    expected = digits_of(a, b, system)
    assert applies("library", a, b)
    assert (digits_by("library", a, b, system).numpy() == expected).all()
    monkeypatch.setattr(library_gemm, "SUMS", 32 * n)
    assert library_gemm.panel_rows(m, n) == 32
    assert (digits_by("library", a, b, system).numpy() == expected).all()


@exact_library
def test_the_deepest_sums_by_the_library() -> None:
    system = ResidueSystem((256, 255, 29))
    a = torch.full((3, 32, 65_280), -128, dtype=torch.int8)
    a[:, 1] = 127
    assert applies("library", a, a)
    rows, expected = [0, 1] + [0] * 30, digits_of(a[:, :2], a[:, :2], system)
    assert (digits_by("library", a, a, system).numpy() == expected[:, rows][:, :, rows]).all()


def test_panels_of_sums_are_bounded() -> None:
    assert library_gemm.panel_rows(8192, 8192) == 1024
    for n in (16, 8192, 100_000, library_gemm.SUMS // 32):
        assert library_gemm.panel_rows(1 << 20, n) * n <= library_gemm.SUMS
        assert library_gemm.panel_rows(1 << 20, n) >= 32
    assert library_gemm.panel_rows(20, 8192) == 20


def test_where_ways_apply() -> None:
    def which(a: torch.Tensor, b: torch.Tensor) -> set[str]:
        return {way for way in WAYS if applies(way, a, b)}

    even, odd = planes(2, 48, 64, 64), planes(2, 48, 40, 40)
    assert which(even, even) == {"pointers", "descriptors", "library"}
    assert which(odd, odd) == {"pointers"}  # rows of 40 bytes: neither's alignment
    assert which(even[:, :16], even) == {"pointers", "descriptors"}  # the library wants 32 rows
    assert which(even[:, 1:], even) == {"pointers", "descriptors", "library"}
    assert which(even, even[:, :31]) == {"pointers", "descriptors"}  # and columns in sixteens
    assert which(even[..., 1:33], even[..., :32]) == {"pointers"}  # an address that is no multiple of 16
    assert which(even[..., 16:48], even[..., :32]) == {"pointers", "descriptors"}
    deep = torch.zeros((1, 32, 65_280 + 16), dtype=torch.int8)
    assert which(deep, deep) == {"pointers"}
    assert which(even.to(torch.bfloat16), even.to(torch.bfloat16)) == {"pointers"}
    assert which(even[:, :0], even) == {"pointers"}
    same = even[:1].expand(2, 48, 64)
    assert which(same, even) == {"pointers", "library"}  # planes at one address are no matrix
    assert plane_rows(same) is None
    with pytest.raises(ValueError, match="way = 'fast' is unknown; use one of pointers, descriptors"):
        applies("fast", even, even)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use residue_gemm"):
        described_gemm(odd, odd, ResidueSystem(INT8_MODULI[:2]))
    with pytest.raises(ValueError, match="use residue_gemm"):
        library_gemm.library_gemm(odd, odd, ResidueSystem(INT8_MODULI[:2]))


def test_a_way_that_does_not_apply_gives_the_same_digits() -> None:
    system = ResidueSystem(INT8_MODULI[:2])
    for a, b in ((planes(2, 5, 41, 41), planes(2, 7, 41, 41, 1)), (planes(2, 3, 0, 0), planes(2, 4, 0, 0))):
        expected = digits_of(a, b, system) if a.shape[2] else np.zeros((2, 3, 4))
        for way in WAYS:
            assert (digits_by(way, a, b, system).numpy() == expected).all(), way


def test_which_devices_have_which_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, ways in (
        (80, {"pointers", "library"}),
        (90, {"pointers", "descriptors", "library"}),  # Gluon is not interpreted
        (100, {"pointers", "descriptors", "library"}),
        (120, {"pointers", "descriptors", "library"}),
    ):
        monkeypatch.setattr(gemm_ways, "capability_of", lambda device, capability=capability: capability)
        assert set(ways_of(CPU)) == ways
    monkeypatch.setattr(
        gemm_ways, "triton", SimpleNamespace(knobs=SimpleNamespace(runtime=SimpleNamespace(interpret=False)))
    )
    for capability in (80, 90, 100, 120):
        monkeypatch.setattr(gemm_ways, "capability_of", lambda device, capability=capability: capability)
        for way in ("warpgroups", "clusters"):
            assert (way in ways_of(CPU)) == (capability == 90)
    assert described_tile(89) is None


@pytest.mark.parametrize("way", ["pointers", "descriptors", "library"])
def test_products_by_a_way_that_is_set(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through gm.matmul, the bits of another engine; each way is taken where it applies."""
    rng, taken = np.random.default_rng(3), []

    def watched(which: str, *rest: Any) -> Any:
        taken.append(which)
        return digits_by(which, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(engine_module, "digits_by", watched)
    engine = TritonEngine("triton", "cpu", fused=False, way=way)
    a, b = rng.standard_normal((70, 64)), rng.standard_normal((40, 64)).T
    if way == "library" and not TorchLibrary("cpu")._integer:
        pytest.skip("torch._int_mm saturates on this processor")
    want = gm.matmul(a, b, accuracy="fast", engine=OTHER)  # other grades take the interpreter long
    assert bits(gm.matmul(a, b, accuracy="fast", engine=engine)) == bits(want)
    x, y = rng.integers(-(2**31), 2**31, (70, 64)), rng.integers(-(2**20), 2**20, (64, 40))
    assert (gm.matmul(x, y, engine=engine) == x.astype(object) @ y.astype(object)).all()
    assert set(taken) == ({way} if way != "pointers" else set())


class Watch:
    """Seconds of a way as given, however long it takes; what was timed, in order."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.timed, self.way = seconds, [], ""

    def time(self, function: Callable[[], Any]) -> tuple[float, Any]:
        self.timed.append(self.way)
        return self.seconds[self.way], function()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A device with all ways, each the interpreter's "pointers" unless `act` has something else for it."""
    watch = Watch({"pointers": 4.0, "descriptors": 3.0, "warpgroups": 1.0, "clusters": 1.5, "library": 2.0})
    act: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    act_by_choice: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    by_choice: list[tuple[str, int]] = []
    known: dict[Any, torch.Tensor] = {}  # the same planes are multiplied over and over

    def run(way: str, a: torch.Tensor, b: torch.Tensor, system: ResidueSystem) -> torch.Tensor:
        watch.way = way
        key = (a.shape, b.shape)
        if key not in known:
            known[key] = digits_by("pointers", a, b, system)
        return act.get(way, lambda digits: digits)(known[key].clone())

    def run_by_choice(way: str, a: torch.Tensor, b: torch.Tensor, choice: torch.Tensor) -> torch.Tensor:
        by_choice.append((way, int(choice[0])))
        return act_by_choice.get(way, lambda digits: digits)(known[a.shape, b.shape].clone())

    monkeypatch.setattr(gemm_choice, "digits_by", run)
    monkeypatch.setattr(gemm_choice, "digits_chosen_by", run_by_choice)
    monkeypatch.setattr(gemm_choice, "usable_ways", lambda device: WAYS)
    monkeypatch.setattr(gemm_choice, "applies", lambda way, a, b: way == "pointers" or a.shape[2] % 16 == 0)
    gemm_choice.forget()
    yield SimpleNamespace(
        watch=watch,
        act=act,
        act_by_choice=act_by_choice,
        by_choice=by_choice,
        measure=lambda: gemm_choice.measure(CPU, 96, watch),
    )
    gemm_choice.forget()


def test_the_fastest_comes_first(ways: SimpleNamespace) -> None:
    found = ways.measure()
    assert found.ways == ("warpgroups", "clusters", "library", "descriptors", "pointers")
    assert str(found).startswith("warpgroups 1e+03 ms, clusters 1.5e+03 ms, library 2e+03 ms")
    assert str(found).endswith("for 3 × 96³")
    assert ways.watch.timed == [way for way in WAYS for _ in range(gemm_choice.RUNS)]
    assert ways.by_choice == [(way, 2) for way in WAYS if way != "library" for _shape in range(3)]
    ways.watch.seconds["pointers"] = 0.5
    assert ways.measure().ways[0] == "pointers"


def test_the_median_counts() -> None:
    times = iter([9.0, 1.0, 2.0, 8.0, 3.0])
    ran: list[int] = []
    watch: Any = SimpleNamespace(time=lambda run: (next(times), run()))
    assert gemm_choice.median_seconds(watch, lambda: ran.append(1)) == 3.0
    assert len(ran) == gemm_choice.RUNS + 1


@pytest.mark.parametrize("wrong", ["one digit", "one digit of the awkward shape", "raises", "raises when timed"])
def test_wrong_ways_are_left_out(wrong: str, ways: SimpleNamespace) -> None:
    calls = 0

    def act(digits: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if wrong == "raises" or (wrong == "raises when timed" and calls > 3):
            raise RuntimeError("no kernel image is available\nfor this device")
        if wrong == "one digit" or digits.shape[1] != 96:
            digits[1, -1, -1] ^= wrong.startswith("one digit")
        return digits

    ways.act["warpgroups"] = act
    with pytest.warns(RuntimeWarning, match="'warpgroups' to residue products is left out") as warned:
        assert ways.measure().ways == ("clusters", "library", "descriptors", "pointers")
    (message,) = (str(warning.message) for warning in warned)
    expected = "RuntimeError: no kernel image is available)" if "raises" in wrong else "ArithmeticError: its digits are"
    assert expected in message


def test_a_way_that_is_wrong_by_choice_is_left_out(ways: SimpleNamespace) -> None:
    def act(digits: torch.Tensor) -> torch.Tensor:
        digits[1, 5, 7] ^= 1
        return digits

    ways.act_by_choice["warpgroups"] = act
    ways.act_by_choice["clusters"] = lambda digits: digits ^ (torch.arange(3, dtype=torch.uint8) == 2)[:, None, None]
    with pytest.warns(RuntimeWarning, match="'warpgroups' to residue products is left out"):
        assert ways.measure().ways == ("clusters", "library", "descriptors", "pointers")  # beyond r is nobody's


def test_without_the_present_kernel_nothing_is_chosen(ways: SimpleNamespace) -> None:
    def act(digits: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("out of memory")

    ways.act["pointers"] = act
    with pytest.raises(RuntimeError, match="out of memory"):
        ways.measure()


class OnCuda:
    """Planes that say they are on a CUDA device; only their shape, type and device are asked for."""

    def __init__(self, moduli: int, vectors: int, depth: int, index: int = 0, dtype: torch.dtype = torch.int8) -> None:
        self.shape, self.dtype = (moduli, vectors, depth), dtype
        self.device = torch.device("cuda", index)

    def numel(self) -> int:
        return int(np.prod(self.shape))


@pytest.fixture
def cuda(ways: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """CUDA devices on which measuring takes the stand-in's times; `measured` says which were measured."""
    state = SimpleNamespace(measured=[], capturing=False, waits=0, memory=80 << 30, ways=ways)

    def measure(device: torch.device, size: int, watch: Any) -> gemm_choice.Measured:
        assert not state.capturing
        assert not state.waits
        state.measured.append((device.index, size))
        return gemm_choice.Measured(size, (("library", 1.0), ("descriptors", 2.0), ("pointers", 3.0)))

    monkeypatch.setattr(gemm_choice, "measure", measure)
    monkeypatch.setattr(gemm_choice, "capturing", lambda: state.capturing)
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: state.waits)
    monkeypatch.setattr(gemm_choice, "TorchStopwatch", lambda: ways.watch)
    monkeypatch.setattr(gemm_choice, "TorchLibrary", lambda name: SimpleNamespace(memory=lambda: state.memory))
    return state


def choose(m: int = 8192, n: int = 8192, depth: int = 8192, **options: Any) -> str:
    a: Any = OnCuda(15, m, depth, **options)
    b: Any = OnCuda(15, n, depth, **options)
    return gemm_choice.chosen_way(a, b)


def test_once_for_each_device(cuda: SimpleNamespace) -> None:
    assert [choose(), choose(4096), choose(index=1), choose(index=1)] == ["library"] * 4
    assert cuda.measured == [(0, 4096), (1, 4096)]
    assert choose(depth=8191) == "pointers"  # the only way that applies
    assert len(cuda.measured) == 2


def test_small_products_and_other_formats_measure_nothing(cuda: SimpleNamespace) -> None:
    assert choose(1024, 1024, 1024) == "pointers"
    assert choose(dtype=torch.bfloat16) == "pointers"
    assert not cuda.measured
    choose()
    assert choose(1024, 1024, 1024) == "pointers"


def test_nothing_is_measured_while_a_graph_is_captured(cuda: SimpleNamespace) -> None:
    cuda.capturing = True
    assert choose() == "pointers"
    assert not cuda.measured
    cuda.capturing = False
    assert choose() == "library"
    cuda.capturing = True
    assert choose() == "library"
    assert len(cuda.measured) == 1


def test_nothing_is_measured_where_waits_are_reported(cuda: SimpleNamespace) -> None:
    cuda.waits = 2
    assert choose() == by_choice() == "pointers"
    cuda.waits = 0
    assert choose() == "library"
    cuda.waits = 1
    assert choose() == "library"


def by_choice(m: int = 8192, n: int = 8192, depth: int = 8192, moduli: int = MOST_MODULI) -> str:
    a: Any = OnCuda(moduli, m, depth)
    b: Any = OnCuda(moduli, n, depth)
    return gemm_choice.way_for_a_choice(a, b)


def test_the_fastest_that_reads_a_choice(cuda: SimpleNamespace) -> None:
    """Not the library; work is counted for the moduli that are usual, whatever planes there are."""
    assert by_choice() == "descriptors"
    assert cuda.measured == [(0, 4096)]
    assert by_choice(depth=8191) == "pointers"
    side = gemm_choice.LEAST_WORK // (15 * 8192 * 8192)
    assert by_choice(depth=(side + 16) // 16 * 16) == "descriptors"
    assert by_choice(depth=side // 16 * 16, moduli=49) == "pointers"
    assert by_choice(64, 64, 64) == "pointers"


def test_a_capture_takes_what_was_measured_before(cuda: SimpleNamespace) -> None:
    cuda.capturing = True
    assert by_choice() == "pointers"
    assert not cuda.measured
    cuda.capturing = False
    assert choose() == "library"
    cuda.capturing = True
    assert by_choice() == "descriptors"
    assert len(cuda.measured) == 1


def test_sizes_that_fit(cuda: SimpleNamespace) -> None:
    assert gemm_choice.fitting_size(80 << 30) == 4096
    assert gemm_choice.fitting_size(400 << 20) == 2048
    cuda.memory = 1 << 20
    assert choose() == "pointers"
    assert not cuda.measured
    cuda.memory = 80 << 30  # and is asked anew
    assert choose() == "library"


def test_the_interpreter_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_choice, "LEAST_WORK", 0)
    monkeypatch.setattr(gemm_choice, "measure", None)
    a = planes(2, 32, 64, 64)
    assert gemm_choice.chosen_way(a, a) == "pointers"


def test_the_benchmark_compares_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """One way in this process, as each has one of its own there."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    benchmark = import_module("benchmarks.gpu.ways")
    found = benchmark.one("descriptors", "cpu", 48, 2)
    assert found["status"] == "the same digits"
    assert benchmark.shown(found | {"seconds": 2e-3}, 1000, 15) == "descriptors  the same digits, 2 ms, 15 TOP/s"
    assert benchmark.one("clusters", "cpu", 48, 2)["status"] == "not on this device"

    def others(way: str, a: Any, b: Any, system: ResidueSystem) -> torch.Tensor:
        return digits_by("pointers", a, b, system) + (way != "pointers")

    monkeypatch.setattr(gemm_ways, "digits_by", others)
    assert benchmark.one("descriptors", "cpu", 48, 2)["status"] == "DIGITS DIFFER"


def test_the_engine_takes_what_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    def chosen(a: torch.Tensor, b: torch.Tensor) -> str:
        asked.append(tuple(a.shape))
        return "descriptors"

    monkeypatch.setattr(engine_module, "chosen_way", chosen)
    monkeypatch.setattr(engine_module, "residue_gemm", None)
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((20, 64)), rng.standard_normal((64, 9))
    engine = TritonEngine("triton", "cpu", fused=False)
    assert bits(gm.matmul(a, b, accuracy="fast", engine=engine)) == bits(gm.matmul(a, b, accuracy="fast", engine=OTHER))
    assert asked


@pytest.mark.parametrize("device", [True, False])
def test_depths_that_are_no_multiple_of_16(device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deep planes have rows that descriptors read; bits are another engine's, whatever lies between the rows."""
    applied: list[bool] = []

    def watched(way: Any, a: torch.Tensor, b: torch.Tensor) -> bool:
        applied.append(applies(way, a, b))
        assert a.stride(1) == b.stride(1) == 528
        return applied[-1]

    real = torch.empty
    monkeypatch.setattr(torch, "empty", lambda shape, **options: real(shape, **options).fill_(99))
    monkeypatch.setattr(gemm_ways, "applies", watched)
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((7, 515)), rng.standard_normal((515, 9))
    engine = TritonEngine("triton", "cpu", fused=False, way="descriptors")
    x, y = (torch.from_numpy(v) for v in (a, b)) if device else (a, b)
    assert bits(gm.matmul(x, y, accuracy="fast", engine=engine)) == bits(gm.matmul(a, b, accuracy="fast", engine=OTHER))
    assert applied
    assert all(applied)


def test_rows_of_planes() -> None:
    for depth, row in ((1, 1), (511, 511), (512, 512), (513, 528), (4096, 4096), (4097, 4112)):
        found = empty_planes(3, 5, depth, CPU)
        assert (found.shape, found.stride()) == ((3, 5, depth), (5 * row, row, 1))
        assert plane_rows(found) == (None if row % 16 else 5)


@pytest.mark.parametrize("way", ["descriptors", "library", None])
def test_named_grades_by_a_choice(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resident part of the engine goes by the way that is set, or asks; bits are another engine's."""
    taken: list[str] = []

    def watched(which: str, *rest: Any) -> Any:
        taken.append(which)
        return digits_chosen_by(which, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(resident_module, "digits_chosen_by", watched)
    if way is None:
        monkeypatch.setattr(resident_module, "way_for_a_choice", lambda a, b: "descriptors")
    else:
        monkeypatch.setattr(resident_module, "way_for_a_choice", None)
    engine = TritonEngine("triton", "cpu", fused=False, way=way)
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((20, 64)), rng.standard_normal((64, 9))
    out = gm.matmul(torch.from_numpy(a), torch.from_numpy(b), accuracy="fast", engine=engine)
    assert bits(out) == bits(gm.matmul(a, b, accuracy="fast", engine=OTHER))
    assert set(taken) == {way or "descriptors"}
