"""The published entries come out of the search again, bit for bit as catalogued, whatever the number of processes.

Oracle: `verify` for each result; the counts of arXiv 2609.24519; the shipped files for determinism.
"""

import json
from pathlib import Path

import pytest

from gemmulate import encodings, formats
from gemmulate.encodings import verify
from gemmulate.encodings.search import modular
from gemmulate.encodings.search.journal import Journal, silent
from gemmulate.encodings.search.modular import Rejected
from gemmulate.encodings.search.ranges import one_pair
from gemmulate.encodings.search.regenerate import regenerate, search_key
from gemmulate.encodings.search.residues import bounded, cheapest_modulus, one_partial

FP4 = formats.get("fp4_e2m1")


@pytest.mark.parametrize(
    ("pair", "products"),
    [("int8.int8", 6), ("int4.int8", 4), ("pm8.pm16", 3), ("pm8.pm32", 4), ("pm8.pm64", 4), ("pm16.pm64", 4),
     ("pm32.pm32", 4), ("pm64.pm128", 6), ("pm8.pm128", 4), ("sig11.sig11", 12)],
)  # fmt: skip
def test_ranges_are_found_again(pair: str, products: int) -> None:
    found, _ = one_pair((pair, "fp4_e2m1"))
    assert found is not None
    assert found.products == products
    assert verify(found)
    stored = encodings.get(found.key)
    assert (found.weights_left, found.planes_left, found.coefficients) == (
        stored.weights_left, stored.planes_left, stored.coefficients,
    )  # fmt: skip


def test_all_residue_encodings_of_the_paper_are_found_again() -> None:
    published = dict.fromkeys((*range(2, 10), 11, 13), 1)
    three = (17, 19, 23, 41, 43, 47, 51, 53, 59, 61, 67, 71, 73, 64, 83, 79, 85, 89, 81, 87, 91, 121, 169)
    published |= dict.fromkeys(three, 3)
    published |= dict.fromkeys((139, 149, 151, 157), 4)
    for m, products in published.items():
        found = cheapest_modulus((m, "fp4_e2m1"))
        assert found is not None
        assert found.products == products, m
        assert verify(found)


def test_no_prime_above_91_has_three_products() -> None:
    primes = [m for m in range(92, 170) if all(m % d for d in range(2, 13))]
    for m in primes:
        assert isinstance(modular.pair(m, FP4, FP4.alphabet), Rejected), m
    assert isinstance(modular.one_product(17, FP4, FP4.alphabet), Rejected)


COVERS = [(97, 95), (99, 95), (101, 99), (103, 99), (107, 103), (109, 103), (113, 107), (127, 115), (137, 117)]


@pytest.mark.parametrize(("m", "covered"), COVERS)
def test_partial_covers(m: int, covered: int) -> None:
    found = one_partial((m, "fp4_e2m1", "pair"))
    assert found is not None
    assert found.products == 3
    assert found.left.size >= covered
    assert verify(found)


def test_every_catalogued_modulus_below_60_is_found_again_with_its_bound() -> None:
    for m in range(2, 60):
        found, stored = cheapest_modulus((m, "fp4_e2m1")), encodings.get(f"mod{m}.fp4_e2m1")
        if "split" in stored.provenance["search"]:
            continue
        assert found is not None
        again = bounded(found)
        assert again == stored


def test_a_format_is_regenerated_whole_resumes_and_is_independent_of_processes(tmp_path: Path) -> None:
    found = regenerate("int8", tmp_path / "two", processes=2)
    shipped = encodings.Catalogue()
    assert {e.key for e in found} == set(shipped.keys("int8"))
    assert all(e == shipped.get(e.key) for e in found)
    assert not list((tmp_path / "two").glob("*.jsonl"))


def test_the_journal_skips_finished_tasks_and_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    first = Journal(path)
    calls: list[int] = []

    def work(task: tuple[int, str]) -> encodings.Encoding | None:
        calls.append(task[0])
        return cheapest_modulus(task)

    class Pool:
        map = staticmethod(lambda work, tasks, chunksize: map(work, tasks))

    tasks = [(m, "fp4_e2m1") for m in (13, 17, 171)]
    once = list(first.map(Pool(), work, tasks, silent))
    with path.open("a") as stream:
        stream.write('["work", 5')
    again = list(Journal(path).map(Pool(), work, tasks, silent))
    assert once == again
    assert again[2] is None
    assert calls == [13, 17, 171]
    assert all(json.loads(line) for line in path.read_text().splitlines()[:3])


def test_failures_have_named_reasons() -> None:
    found, rejected = search_key("mod97.fp4_e2m1")
    assert found is not None
    assert [r.search for r in rejected] == ["one", "square", "pair"]
    assert all(r.reason for r in rejected)
    with pytest.raises(ValueError, match="partial covers"):
        search_key("mod97c95.fp4_e2m1")
    with pytest.raises(ValueError, match="no residue search"):
        search_key("mod97.bf16")
    with pytest.raises(ValueError, match="no search over"):
        regenerate("fp64", Path("unused"))
