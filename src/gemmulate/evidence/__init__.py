"""Evidence: paired measurements and verdicts."""

from gemmulate.evidence.comparison import Comparison, Settings
from gemmulate.evidence.paired import compare, compare_code, compare_commands
from gemmulate.evidence.store import StoreError
from gemmulate.evidence.subjects import SubjectError
from gemmulate.evidence.verdict import Analysis, analyse

__all__ = [
    "Analysis",
    "Comparison",
    "Settings",
    "StoreError",
    "SubjectError",
    "analyse",
    "compare",
    "compare_code",
    "compare_commands",
]
