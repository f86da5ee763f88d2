"""Limb tables: for every value of a domain, limbs whose planes all lie in the alphabet."""

from typing import Any

import numpy as np

from gemmulate.encodings.domain import Domain
from gemmulate.formats import Alphabet

Ints = np.ndarray[Any, np.dtype[np.int64]]
Matrix = tuple[tuple[int, ...], ...]
# Most limb vectors listed at once: 15^6 = 11 M would still fit, 15^7 would not. Forms with more free limbs are refused.
_MOST_VECTORS = 48_000_000


def plane_letters(alphabet: Alphabet, modulus: int | None) -> Ints:
    """The values a plane takes: the alphabet, or for each residue it reaches the member of smallest magnitude."""
    letters = alphabet.array()
    if modulus is None:
        return letters
    order = np.lexsort((-letters, np.abs(letters), letters % modulus))
    letters = letters[order]
    residues = letters % modulus
    return np.sort(letters[np.concatenate([[True], residues[1:] != residues[:-1]])])


def plane_values(vectors: Ints, planes: Matrix, alphabet: Alphabet, modulus: int | None) -> Ints:
    """Plane values (products, n) of limb vectors (n, limbs); modulo m the smallest representatives in the alphabet."""
    sums = np.array(planes, dtype=np.int64) @ vectors.T
    if modulus is None:
        return sums
    letters = plane_letters(alphabet, modulus)
    table = np.zeros(modulus, dtype=np.int64)
    table[letters % modulus] = letters
    return np.asarray(table[sums % modulus])


def limb_vectors(planes: Matrix, alphabet: Alphabet, modulus: int | None = None) -> Ints:
    """All integer limb vectors (n, limbs) whose planes are all in the alphabet (modulo m where given).

    Each limb must itself be a plane (a unit row); ValueError otherwise, and when there are too many to list.
    """
    forms = np.array(planes, dtype=np.int64)
    letters = plane_letters(alphabet, modulus)
    allowed = letters if modulus is None else np.unique(letters % modulus)
    for i in range(forms.shape[1]):
        if not any(row[i] == 1 and np.count_nonzero(row) == 1 for row in forms):
            raise ValueError(f"limb {i} is not a plane by itself; change the basis so that every limb is one")
    vectors = np.zeros((1, 0), dtype=np.int64)
    for i in range(forms.shape[1]):
        if len(vectors) * len(letters) > _MOST_VECTORS:
            raise ValueError(f"more than {_MOST_VECTORS} limb vectors to list; use fewer limbs or a smaller plane_max")
        vectors = np.concatenate(
            [np.repeat(vectors, len(letters), axis=0), np.tile(letters, len(vectors))[:, None]], axis=1
        )
        # A plane is checked as soon as all its limbs are known, which keeps the list short.
        for row in {tuple(row) for row in forms.tolist() if row[i] and not any(row[i + 1 :])}:
            if np.count_nonzero(row) > 1:
                sums = vectors @ np.array(row[: i + 1], dtype=np.int64)
                vectors = vectors[np.isin(sums if modulus is None else sums % modulus, allowed)]
    return vectors


def limb_table(weights: tuple[int, ...], planes: Matrix, alphabet: Alphabet, domain: Domain) -> tuple[Ints, Ints]:
    """Values reached (n,) increasing, and for each the limbs (n, limbs) with the smallest largest plane.

    Ties go to the smallest sum of plane magnitudes, then to the lexicographically first: the table is a function of
    weights, planes, alphabet and domain alone.
    """
    vectors = limb_vectors(planes, alphabet, domain.modulus)
    values = vectors @ np.array(weights, dtype=np.int64)
    if domain.modulus is not None:
        values %= domain.modulus
    else:
        inside = (values >= domain.low) & (values <= domain.high)
        values, vectors = values[inside], vectors[inside]
    magnitudes = np.abs(plane_values(vectors, planes, alphabet, domain.modulus))
    order = np.lexsort((magnitudes.sum(axis=0), magnitudes.max(axis=0, initial=0), values))
    values, vectors = values[order], vectors[order]
    first = np.ones(len(values), dtype=bool)
    first[1:] = values[1:] != values[:-1]
    return values[first], vectors[first]
