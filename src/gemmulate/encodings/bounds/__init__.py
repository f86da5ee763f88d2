"""Lower bounds on the number of products, each with the argument that a reader can check."""

from gemmulate.encodings.bounds.lower import Bound, lower_bound

__all__ = ["Bound", "lower_bound"]
