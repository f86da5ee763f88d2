"""`gemmulate encodings …`: fixed JSON fields, exit statuses, one-line errors, files written whole or not at all."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import pytest

from gemmulate import encodings
from gemmulate.encodings.catalogue import ENTRIES, write


def run(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-c", "from gemmulate.cli import main; main()", "encodings", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def test_design_json() -> None:
    status, out, err = run("design", "--bits", "53", "--k", "16384", "--formats", "fp4_e2m1", "--json")
    answer = json.loads(out)
    assert (status, err) == (0, "")
    assert answer["products"] == 59
    assert answer["optimal"] is True
    assert answer["window_bits"] == 121.0
    assert answer["bits"] > 121
    assert answer["cost"] == 59
    product = 1
    for m in answer["moduli"]:
        product *= m
    assert product > 2**121


def test_design_prices_by_device() -> None:
    _, out, _ = run("design", "--device", "b200", "--formats", "fp4_e2m1,fp8_e4m3", "--json")
    answer = json.loads(out)
    assert answer["cost"] <= 53
    assert answer["device"] == "B200"
    assert answer["ops_per_s"] == pytest.approx(9e15 / answer["cost"])


def test_show_json() -> None:
    status, out, _ = run("show", "int8.int8.fp4_e2m1", "--json")
    e = json.loads(out)
    assert status == 0
    assert e["products"] == 6
    assert e["status"] in ("optimal", "best known")
    assert e["max_depth"] == 116508
    n = e["products"]
    assert len(e["planes_left"]) == len(e["planes_right"]) == len(e["coefficients"]) == n
    for i, w in enumerate(e["weights_left"]):
        for j, v in enumerate(e["weights_right"]):
            total = sum(e["coefficients"][t] * e["planes_left"][t][i] * e["planes_right"][t][j] for t in range(n))
            assert total == w * v


def test_show_prints_the_identity() -> None:
    _, out, _ = run("show", "int8.int8.fp4_e2m1")
    assert "x·y = 33·a0·b0 + 165·a1·b1 + 891·a2·b2 − 5·(a0 − a1)·(b0 − b1)" in out
    assert "x = a0 + 5·a1 + 27·a2" in out


def test_verify_one_key_and_a_small_catalogue(tmp_path: Path) -> None:
    status, out, _ = run("verify", "int4.int8.fp4_e2m1", "--json")
    assert (status, json.loads(out)["checked"], json.loads(out)["failed"]) == (0, 1, 0)
    folder = tmp_path / "fp4_e2m1"
    folder.mkdir()
    for name in ("mod13", "mod17", "int8.int8"):
        shutil.copy(ENTRIES / "fp4_e2m1" / f"{name}.json", folder)
    status, out, _ = run("verify", "--json", "--catalogue", str(tmp_path), "--processes", "1")
    assert (status, json.loads(out)["checked"], json.loads(out)["failed"]) == (0, 3, 0)
    (folder / "mod17.json").write_text("{")
    status, out, err = run("verify", "--json", "--catalogue", str(tmp_path), "--processes", "1")
    assert (status, json.loads(out)["checked"], json.loads(out)["failed"]) == (1, 3, 1)
    assert "mod17.json is damaged" in err


def test_verify_refutes_a_forged_bound_and_refuses_a_folder_without_entries(tmp_path: Path) -> None:
    write(replace(encodings.get("mod97c95.fp4_e2m1"), bound=3, bound_by="somebody"), tmp_path)
    status, out, err = run("verify", "--json", "--catalogue", str(tmp_path))
    assert (status, json.loads(out)["failed"]) == (1, 1)
    assert "only 1 (trivial)" in err
    # One level too deep: nothing would be checked.
    for command in ("verify", "list"):
        status, out, err = run(command, "--catalogue", str(tmp_path / "fp4_e2m1"))
        assert (status, out) == (2, "")
        assert "holds no entries" in err


def test_design_json_carries_its_proof() -> None:
    """The bound evaluated here from the printed multipliers and the catalogue's files, in rational arithmetic."""
    for arguments, products in ((["--k", "16384"], 59), (["--k", "4096", "--freedom", "1"], None)):
        status, out, _ = run("design", "--formats", "fp4_e2m1", *arguments, "--json")
        answer = json.loads(out)
        proof = answer["certificate"]
        assert status == 0
        y, phi = (Fraction(proof["multipliers"][name]) for name in ("window", "freedom"))
        primes = {int(p): Fraction(v) for p, v in proof["multipliers"]["primes"].items()}
        assert min(y, phi, *primes.values()) >= 0
        bound = y * log2_fraction(int(proof["window"]), -1) - phi * Fraction(proof["budget"]) - sum(primes.values())
        for path in (ENTRIES / "fp4_e2m1").glob("mod*.json"):
            record = json.loads(path.read_text())
            m, _, covered = record["key"].split(".")[0][3:].partition("c")
            modulus, count = int(m), int(covered or m)
            freedom = max(log2_fraction(Fraction(modulus, count), -1), Fraction(0))
            if record["max_depth"] < proof["depth"] or freedom > Fraction(proof["budget"]):
                continue
            gain = log2_fraction(Fraction(count**2, modulus), 1)
            spent = sum(v for p, v in primes.items() if modulus % p == 0)
            bound -= max(Fraction(0), y * gain - phi * freedom - record["products"] - spent)
        assert math.ceil(bound) == answer["products"] == answer["cost_bound"]
        assert answer["optimal"]
        assert products in (None, answer["products"])


def log2_fraction(x: Fraction | int, side: int) -> Fraction:
    """log2 x within 10^-40, rounded down (side −1) or up (1)."""
    with localcontext() as context:
        context.prec = 60
        value = (Decimal(Fraction(x).numerator).ln() - Decimal(Fraction(x).denominator).ln()) / Decimal(2).ln()
    return Fraction(value) + side * Fraction(1, 10**40)


def test_list() -> None:
    _, out, _ = run("list", "--format", "fp4_e2m1", "--json")
    keys = {row["key"]: row["products"] for row in json.loads(out)}
    assert keys["int8.int8.fp4_e2m1"] == 6
    assert all(key.endswith(".fp4_e2m1") for key in keys)
    _, out, _ = run("list", "--format", "int8")
    assert "mod256.int8" in out


def test_search_one_key(tmp_path: Path) -> None:
    status, out, _ = run("search", "mod97.fp4_e2m1", "--json")
    answer = json.loads(out)
    assert status == 0
    assert answer["found"]["products"] == 4
    assert [r["search"] for r in answer["rejected"]] == ["one", "square", "pair"]
    status, out, _ = run("search", "mod17.fp4_e2m1", "-o", str(tmp_path))
    assert status == 0
    assert str(tmp_path / "fp4_e2m1" / "mod17.json") in out
    assert encodings.Catalogue(tmp_path).get("mod17.fp4_e2m1") == encodings.get("mod17.fp4_e2m1")
    status, out, _ = run("search", "mod1009.fp4_e2m1")
    assert status == 1
    assert "nothing found" in out


def test_export_writes_whole_files(tmp_path: Path) -> None:
    for kind in ("json", "npz", "c-header"):
        target = tmp_path / f"out.{kind}"
        assert run("export", "mod13.fp4_e2m1", "--as", kind, "-o", str(target))[0] == 0
        assert target.stat().st_size > 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.c-header", "out.json", "out.npz"]
    _, out, _ = run("export", "mod13.fp4_e2m1", "--as", "c-header")
    assert "MOD13_FP4_E2M1_PRODUCTS 1" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "int8.int9.fp4_e2m1"], "near it"),
        (["show", "nonsense"], "does not parse"),
        (["design", "--bits", "500"], "at most bits ="),
        (["design", "--bits", "0"], "bits = 0"),
        (["design", "--bits", "53.5"], "53.5"),
        (["design", "--device", "h200", "--formats", "fp8_e4m3"], "the deepest sums"),
        (["design", "--device", "cray"], "unknown device"),
        (["design", "--device", ""], "unknown device"),
        (["list", "--format", ""], "unknown format"),
        (["design", "--formats", "fp9"], "unknown format"),
        (["design", "--freedom", "-1"], "freedom"),
        (["list", "--format", "fp4"], "did you mean 'fp4_e2m1'"),
        (["list", "--catalogue", "/nonexistent"], "does not exist"),
        (["export", "mod13.fp4_e2m1", "--as", "npz"], "-o FILE.npz"),
        (["export", "mod13.fp4_e2m1", "-o", "/nonexistent/x.json"], "nonexistent"),
        (["search"], "give a KEY"),
        (["search", "mod97c95.fp4_e2m1"], "partial covers"),
        (["search", "mod7.fp16"], "no residue search over fp16"),
        (["verify", "--processes", "0"], "at least 1"),
    ],
)
def test_errors_are_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    status, out, err = run(*arguments)
    assert status == 2
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
