"""The time model: TME with its fourth term, the deconstruction cost.

>>> from gemmulate import model
>>> b300 = model.load_device("b300")
>>> how = model.method("residues-fp8", r=12, c_q=6)
>>> round(model.predict(b300, model.gemv(16384, 16384, rhs=2), how).speedup, 2)
0.89
"""

from gemmulate.model.checks import ModelError
from gemmulate.model.device import Device, Figure, Rates, device_names, load_device
from gemmulate.model.kernels import Kernel, gemm, gemv, spmv, stencil7
from gemmulate.model.predict import Method, Prediction, method, predict
from gemmulate.model.schemes import SCHEMES
from gemmulate.model.terms import COMPOSITIONS
from gemmulate.model.thresholds import Swing, Thresholds, crossover, sensitivity, thresholds

__all__ = [
    "COMPOSITIONS",
    "SCHEMES",
    "Device",
    "Figure",
    "Kernel",
    "Method",
    "ModelError",
    "Prediction",
    "Rates",
    "Swing",
    "Thresholds",
    "crossover",
    "device_names",
    "gemm",
    "gemv",
    "load_device",
    "method",
    "predict",
    "sensitivity",
    "spmv",
    "stencil7",
    "thresholds",
]
