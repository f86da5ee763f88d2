"""Plans: which Scheme, over which Encoding and Formats, on which Engine, why, and how exact."""

from gemmulate.callable_module import make_callable
from gemmulate.plan.candidates import Candidate, PricedPlan
from gemmulate.plan.matmul import matmul
from gemmulate.plan.plan import Plan, plan
from gemmulate.plan.prepared import Prepared, prepare
from gemmulate.plan.problem import Problem

__all__ = ["Candidate", "Plan", "Prepared", "PricedPlan", "Problem", "matmul", "plan", "prepare"]

make_callable(__name__, "plan")
