"""Contract: on this machine engines and schemes are priced by the host's record, and no choice changes a bit."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmulate as gm
from gemmulate import model
from gemmulate.engines import engines, get_engine
from gemmulate.errors import FileError
from gemmulate.model.device import WAYS, EngineRates, default_host, host_file
from gemmulate.plan import host
from gemmulate.plan.calibration import engines_section, measure_engine


@pytest.fixture(autouse=True)
def _no_record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The shipped record, whatever this machine's user calibrated."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    caches = (host.host_record,)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


RATES = EngineRates(
    call=dict.fromkeys(WAYS, 1e-5), range=1e-9, survey=1e-8, dec=1e-9, mma=1e-12, rec=1e-9, assess=1e-9, dot=1e-8
)


def test_the_shipped_record() -> None:
    record = model.load_device("host")
    assert record.kind == "cpu"
    assert record.calibration is not None
    assert {"native-avx512vnni", "reference"} <= set(record.engines)


def test_a_users_record_counts_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    source = Path(str(model.__file__)).parent / "host" / "default.toml"
    host_file().parent.mkdir(parents=True)
    host_file().write_text(source.read_text().replace('name = "host:', 'name = "calibrated:'))
    assert model.load_device("host").name.startswith("calibrated:")
    host_file().write_text("name = 1\n")
    with pytest.raises(FileError, match=r"host\.toml: name"):
        gm.plan(gm.Problem(4, 4, 4))
    host.host_record.cache_clear()
    assert host.host_record() == default_host(), "products go on: only their speed hangs on the record"


def test_bad_rates(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    text = (Path(str(model.__file__)).parent / "host" / "default.toml").read_text().split("\n[engines")[0]
    section = engines_section({"reference": RATES})
    for old, new, match in (
        ("mma = 1.0000e-12", "mma = -1.0", r"engines\.reference: mma"),
        ("mma = 1.0000e-12", "nma = 1.0", "nma"),
        ("direct = 1.0000e-05", "direct = nan", "direct"),
        ("long = 1.0000e-05", "log = 1.0", "lacks long"),
    ):
        assert old in section
        path.write_text(text + section.replace(old, new))
        with pytest.raises(FileError, match=match):
            model.load_device(path)
    path.write_text(text + section)
    assert model.load_device(path).engines["reference"] == RATES


def test_terms_add_up() -> None:
    """Against the definition: tiles of 6×32, r moduli and one assessed product, one thread and four."""
    work = host.Work(m=7, k=10, n=33, batch=2, way="fp64", moduli=15)
    terms = host.residue_terms(RATES, work, bytes_per_s=1e9, tile=(6, 32))
    assert terms["mma"] == pytest.approx(1e-12 * 2 * 12 * 64 * 10 * 16)
    assert terms["dec"] == pytest.approx(2 * 10 * (1e-8 * 40 + 16e-9 * (12 + 64)))
    assert terms["rec"] == pytest.approx((15e-9 + 1e-9) * 2 * 7 * 33)
    assert terms["mem"] == pytest.approx(8 * 2 * (10 * 40 + 7 * 33) / 1e9)
    assert terms["call"] == pytest.approx(2e-5)
    four = host.residue_terms(RATES, work, 1e9, threads=4, tile=(6, 32))
    assert four["mma"] == pytest.approx(terms["mma"] / 4)
    assert four["call"] == terms["call"]
    integers = host.residue_terms(RATES, replace(work, way="integers"), 1e9, tile=(6, 32))
    assert integers["mma"] == pytest.approx(terms["mma"] * 15 / 16), "no assessment"


def test_candidates_are_the_engines() -> None:
    plan = gm.plan(gm.Problem(300, 300, 300))
    names = {record.name: record.available for record in engines() if record.name != "native"}
    found = {c.engine: c for c in plan.candidates if c.scheme == "residues"}
    assert set(found) == set(names)
    for name, available in names.items():
        assert (found[name].reason == "unavailable") == (not available)
    assert next(c for c in plan.candidates if c.scheme == "native").reason == "not-reproducible"
    assert next(c for c in plan.candidates if c.scheme == "long accumulator").reason == "other-bits"
    assert plan.here
    asked = gm.plan(gm.Problem(300, 300, 300), engine="reference")
    assert asked.chosen.engine == "reference"
    with pytest.raises(ValueError, match="engine = 'abacus'"):
        gm.plan(gm.Problem(3, 3, 3), engine="abacus")


def test_run_gives_matmuls_bits() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((20, 30)), rng.standard_normal((30, 10))
    plan = gm.plan(a, b, device="host", accuracy="exact")
    assert plan.run(a, b).tobytes() == gm.matmul(a, b, accuracy="exact").tobytes()
    whole = rng.integers(-(10**9), 10**9, (8, 9))
    assert (gm.plan(whole, whole.T, device="host").run(whole, whole.T) == whole.astype(object) @ whole.T).all()


def test_plans_of_data_carry_their_prices() -> None:
    rng = np.random.default_rng(6)
    a = rng.standard_normal((40, 40))
    plan = gm.plan(a, a)
    assert plan.priced.chosen.moduli == len(plan.moduli)
    assert plan.priced.chosen.name in plan.explain()
    assert json.loads(plan.to_json())["priced"]["candidates"]
    assert gm.plan(gm.DoubleDouble(a), a).priced is None
    for accuracy in ("fast", "fp64", "exact"):
        large = gm.plan(*rng.standard_normal((2, 130, 130)), accuracy=accuracy)  # type: ignore[call-overload]
        assert large.priced.chosen.scheme == large.scheme


def test_a_kernel_without_engine() -> None:
    plan = gm.plan(model.spmv(10**6))
    assert plan.chosen.scheme == "native"
    assert plan.candidates[-1].reason == "not-run-here"
    with pytest.raises(gm.EngineUnavailable):
        plan.run(np.ones((2, 2)), np.ones((2, 2)))


def replace_rates(**changes: float) -> EngineRates:
    return EngineRates(**({name: getattr(RATES, name) for name in RATES.__struct_fields__} | changes))


def test_ties_go_to_the_default_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = [r.name for r in engines() if r.available and r.name.startswith("native-")]
    if len(ours) < 2:
        pytest.skip("this machine has one native instruction set")
    slightly = {name: replace_rates(mma=1e-12 * (1.02 if name == ours[-1] else 1.0)) for name in ours}
    monkeypatch.setattr("gemmulate.plan.dispatch.load_device", lambda _: replace(default_host(), engines=slightly))
    assert gm.plan(gm.Problem(500, 500, 500)).chosen.engine == ours[-1]
    clearly = {name: replace_rates(mma=1e-12 * (2.0 if name == ours[-1] else 1.0)) for name in ours}
    monkeypatch.setattr("gemmulate.plan.dispatch.load_device", lambda _: replace(default_host(), engines=clearly))
    assert gm.plan(gm.Problem(500, 500, 500)).chosen.engine != ours[-1]


def test_measured_rates_are_rates() -> None:
    rates = measure_engine(get_engine("reference"))
    assert set(rates.call) == set(WAYS)
    for name in ("range", "survey", "dec", "mma", "rec", "assess", "dot"):
        assert 0 < getattr(rates, name) < 1


@pytest.mark.parametrize("overflow", ["raise", "wrap"])
@pytest.mark.parametrize(("dtype", "high"), [("int16", 2**15 - 1), ("int64", 2**20), ("int64", 2**50)])
def test_integers_are_priced_the_way_matmul_runs_them(dtype: str, high: int, overflow: str) -> None:
    """Residues or wide multiplications, engine by engine: what the plan made on that engine says."""
    a = np.array([[high, -high, 1]], dtype=dtype)
    for record in engines():
        if not record.available or record.name == "native":
            continue
        if record.name not in host.host_record().engines:
            continue  # not calibrated: no price
        here = gm.plan(a, a.T, overflow=overflow, engine=record.name)  # type: ignore[call-overload]
        assert here.priced.chosen.scheme == here.scheme, record.name
        assert here.priced.chosen.engine == record.name
