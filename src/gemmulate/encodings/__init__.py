"""Encodings: how an integer product becomes products of narrow values."""

from gemmulate.encodings.catalogue import Catalogue, CatalogueError, UnknownEncoding
from gemmulate.encodings.design import Design, design
from gemmulate.encodings.domain import Domain
from gemmulate.encodings.encoding import Encoding
from gemmulate.encodings.selection import WindowTooLarge
from gemmulate.encodings.verify import Certificate, verify


def get(key: str) -> Encoding:
    """The catalogue's encoding of a key such as "int8.int8.fp4_e2m1"; UnknownEncoding names near ones.

    >>> get("mod169.fp4_e2m1").products
    3
    """
    return Catalogue().get(key)


def lookup(left: str, right: str, alphabet: str) -> Encoding:
    """The catalogue's encoding of a pair of ranges over a format.

    >>> lookup("int4", "int8", "fp4_e2m1").products
    4
    """
    return Catalogue().lookup(left, right, alphabet)


def keys(format_name: str | None = None) -> list[str]:
    """All keys of the catalogue, or those of one format."""
    return Catalogue().keys(format_name)


__all__ = [
    "Catalogue",
    "CatalogueError",
    "Certificate",
    "Design",
    "Domain",
    "Encoding",
    "UnknownEncoding",
    "WindowTooLarge",
    "design",
    "get",
    "keys",
    "lookup",
    "verify",
]
