"""The catalogue: complete, verified, readable both ways round, and loud about damage, unknown keys and bad grammar."""

import json
import shutil
from pathlib import Path

import pytest

from gemmulate import encodings
from gemmulate.encodings import Catalogue, CatalogueError, UnknownEncoding, verify
from gemmulate.encodings.catalogue import ENTRIES, write
from gemmulate.encodings.domain import Domain


def test_every_entry_is_valid_exhaustively() -> None:
    failures = {e.key: c.failure for e in Catalogue() if not (c := verify(e))}
    assert not failures
    assert len(Catalogue().keys()) > 1000


def test_each_narrow_format_has_entries() -> None:
    for name in ("fp4_e2m1", "int4", "fp6_e2m3", "fp6_e3m2", "fp8_e4m3", "fp8_e5m2", "int8"):
        kinds = {key.startswith("mod") for key in encodings.keys(name)}
        assert kinds == {True, False}, name


def test_published_counts() -> None:
    """Products of arXiv 2609.24519: INT8 6, INT4×INT8 4, FP16 significand 12, and the width table."""
    published = {
        "int8.int8": 6, "int4.int8": 4, "sig11.sig11": 12, "pm8.pm16": 3, "pm8.pm32": 4, "pm8.pm64": 4,
        "pm16.pm64": 4, "pm32.pm32": 4, "pm64.pm128": 6,
    }  # fmt: skip
    for pair, products in published.items():
        assert encodings.get(f"{pair}.fp4_e2m1").products <= products, pair


def test_published_moduli() -> None:
    one, three = {2, 3, 4, 5, 6, 7, 8, 9, 11, 13}, {17, 19, 23, 41, 43, 47, 51, 53, 59, 61, 67, 71, 73, 64, 83, 79}
    three |= {85, 89, 81, 87, 91, 121, 169}
    by_modulus = {e.modulus: e for e in Catalogue().residues("fp4_e2m1") if not e.left.partial}
    assert {m for m, e in by_modulus.items() if e.products == 1} == one
    assert all(by_modulus[m].products <= 3 for m in three)
    assert all(by_modulus[m].products == 4 for m in (139, 149, 151, 157))
    assert set(range(2, 92)) <= set(by_modulus)


def test_a_pair_is_found_both_ways_round() -> None:
    e, t = encodings.get("int4.int8.fp4_e2m1"), encodings.lookup("int8", "int4", "fp4_e2m1")
    assert (t.left.name, t.right.name, t.products) == ("int8", "int4", 4)
    assert t.weights_left == e.weights_right
    assert verify(t)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("int8.int7.fp4_e2m1", "near it"),
        ("mod1000.fp4_e2m1", "near it"),
        ("int8.int8.fp16", "no encodings over fp16"),
    ],
)
def test_an_unknown_key_names_what_is_possible(key: str, message: str) -> None:
    with pytest.raises(UnknownEncoding, match=message):
        encodings.get(key)


@pytest.mark.parametrize(
    "key",
    ["", "int8", "int8.int8", "int8.fp4_e2m1", "mod0.fp4_e2m1", "mod5c9.fp4_e2m1", "mod5c5.fp4_e2m1", "int0.int8.int8",
     "int99.int8.int8", "mod5.mod5.int8", "int8.int8.fp4_e2m1.json", "../int8.int8.int8", "int8.int8.fp5", None],
)  # fmt: skip
def test_a_malformed_key_explains_the_grammar(key: str) -> None:
    with pytest.raises(ValueError):
        encodings.get(key)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    target = tmp_path / "entries"
    (target / "fp4_e2m1").mkdir(parents=True)
    for name in ("int8.int8", "mod13", "mod17"):
        shutil.copy(ENTRIES / "fp4_e2m1" / f"{name}.json", target / "fp4_e2m1")
    return target


DAMAGE = {
    "empty": lambda text: "",
    "cut": lambda text: text[: len(text) // 2],
    "not json": lambda text: "hello",
    "binary": lambda text: "\x00\x01",
    "a list": lambda text: "[1, 2]",
    "one digit": lambda text: text.replace("165", "166"),
    "unknown field": lambda text: text.replace('"key"', '"name"', 1),
    "float": lambda text: text.replace("33", "33.5", 1),
    "huge": lambda text: text.replace("891", "9" * 5000),
    "checksum": lambda text: text.replace('"checksum": "', '"checksum": "0'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_with_the_way_out(copy: Path, damage: str) -> None:
    path = copy / "fp4_e2m1" / "int8.int8.json"
    path.write_text(DAMAGE[damage](path.read_text()))
    with pytest.raises(CatalogueError, match=r"int8\.int8\.json .*restore"):
        Catalogue(copy).get("int8.int8.fp4_e2m1")


def test_a_wrong_identity_with_a_right_checksum_is_refused(copy: Path) -> None:
    from dataclasses import replace

    good = encodings.get("int8.int8.fp4_e2m1")
    path = write(replace(good, coefficients=(34, *good.coefficients[1:])), copy)
    with pytest.raises(CatalogueError, match="holds no encoding"):
        Catalogue(copy).get("int8.int8.fp4_e2m1")
    assert json.loads(path.read_text())["coefficients"][0] == 34


def test_a_misplaced_file_is_refused(copy: Path) -> None:
    shutil.copy(copy / "fp4_e2m1" / "mod13.json", copy / "fp4_e2m1" / "mod12.json")
    with pytest.raises(CatalogueError, match="holds the key"):
        Catalogue(copy).get("mod12.fp4_e2m1")


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="does not exist"):
        Catalogue(tmp_path / "none")


def test_writing_and_reading_returns_the_same_encoding(tmp_path: Path) -> None:
    for key in ("int8.int8.fp4_e2m1", "mod97c95.fp4_e2m1", "sig11.sig11.fp4_e2m1"):
        e = encodings.get(key)
        write(e, tmp_path)
        assert Catalogue(tmp_path).get(key) == e


def test_domains() -> None:
    assert (Domain.parse("sig11").low, Domain.parse("sig11").high) == (-2047, 2047)
    assert Domain.parse("mod97c95").partial
    assert Domain.parse("pm16").size == 33


def test_a_file_damaged_while_the_process_runs_is_noticed(copy: Path) -> None:
    catalogue = Catalogue(copy)
    assert catalogue.get("mod13.fp4_e2m1").products == 1
    path = copy / "fp4_e2m1" / "mod13.json"
    path.write_text(path.read_text().replace('"products": 1', '"products": 2'))
    with pytest.raises(CatalogueError):
        catalogue.get("mod13.fp4_e2m1")


@pytest.mark.parametrize("kind", ["folder", "dangling link", "link to itself"])
def test_an_entry_that_cannot_be_read_is_named(copy: Path, kind: str) -> None:
    path = copy / "fp4_e2m1" / "mod13.json"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path if kind == "link to itself" else copy / "nowhere")
    with pytest.raises(CatalogueError, match=r"mod13\.json cannot be read: .*restore"):
        Catalogue(copy).get("mod13.fp4_e2m1")


@pytest.mark.parametrize("name", ["fp4_e2m1/notes.json", "fp4_e2m1/mod013.json", "fp9/mod13.json"])
def test_a_file_that_is_no_entry_is_named(copy: Path, name: str) -> None:
    (copy / name).parent.mkdir(exist_ok=True)
    shutil.copy(copy / "fp4_e2m1" / "mod13.json", copy / name)
    with pytest.raises(CatalogueError, match=rf"{name} is no entry"):
        list(Catalogue(copy))


@pytest.mark.parametrize("bound", [0, -6])
def test_a_bound_below_one_is_refused(copy: Path, bound: int) -> None:
    from dataclasses import replace

    write(replace(encodings.get("int8.int8.fp4_e2m1"), bound=bound), copy)
    with pytest.raises(CatalogueError, match=f"bound = {bound}"):
        Catalogue(copy).get("int8.int8.fp4_e2m1")
