"""Packages that are called by their own name: `gm.plan(…)` and `gm.engines()` beside `gm.plan.Plan`.

The import system binds a subpackage to its name in `gemmulate`, whatever function of that name was there before, so
the subpackage itself answers the call.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module that forwards calls to its member `__call_target__`."""

    __call_target__: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__[self.__call_target__](*args, **kwargs)


def make_callable(module: str, function: str) -> None:
    """Let the loaded module `module` answer calls with its member `function`."""
    target = sys.modules[module]
    target.__class__ = CallableModule
    target.__dict__["__call_target__"] = function
