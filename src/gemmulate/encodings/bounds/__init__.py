"""Lower bounds on the number of products, each with the argument that a reader can check."""

from gemmulate.encodings.bounds.lower import Bound, check_bound, lower_bound

__all__ = ["Bound", "check_bound", "lower_bound"]
