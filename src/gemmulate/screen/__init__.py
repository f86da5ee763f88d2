"""Screening: kernel candidates rejected on paper."""

from gemmulate.screen.residency import Occupancy, occupancy, register_ceiling
from gemmulate.screen.screening import CandidateResult, ScreenResult, screen
from gemmulate.screen.spec import Spec, load_spec
from gemmulate.screen.toml_source import SpecError

__all__ = [
    "CandidateResult",
    "Occupancy",
    "ScreenResult",
    "Spec",
    "SpecError",
    "load_spec",
    "occupancy",
    "register_ceiling",
    "screen",
]
