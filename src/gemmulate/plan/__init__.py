"""Plans: which Scheme, over which Encoding and Formats, on which Engine, why, and how exact."""

from gemmulate.callable_module import make_callable
from gemmulate.plan.matmul import matmul
from gemmulate.plan.plan import Plan, plan

__all__ = ["Plan", "matmul", "plan"]

make_callable(__name__, "plan")
