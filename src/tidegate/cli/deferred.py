"""Libraries that a command may never use, loaded when it does.

To show a plan its kernels are made, and they import what they compute with. Nothing is computed, and
what is not loaded takes no time: a third of what `tidegate explain` would take.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """Stands for a module until something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system looks for these, and takes no for an answer
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        vars(self).update(vars(import_module(self.__name__)))
        return vars(self)[name]


def defer(*names: str) -> None:
    """Let imports of these modules be cheap, and their first use pay."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # it would look through all installed packages
    gc.disable()  # importing makes no garbage, but many objects to look through for it
    for name in names:
        sys.modules.setdefault(name, _Deferred(name))
