"""dfshim in a Python environment: where the installed tool and libraries are.

The libraries live in front of NCCL (LD_PRELOAD), so nothing of them is loaded by importing this
package; `dfshim.deft`, which needs PyTorch, is loaded when it is asked for.
"""

import importlib
import os

__all__ = ["library", "tool"]

_here = os.path.dirname(os.path.abspath(__file__))


def tool():
    """The path of the `dfshim` program."""
    return os.path.join(_here, "bin", "dfshim")


def library(name="libdfshim.so"):
    """The path of one of dfshim's libraries; without a name, of the one to preload."""
    return os.path.join(_here, "lib", name)


def __getattr__(name):
    if name == "deft":
        return importlib.import_module("dfshim.deft")
    raise AttributeError(f"module 'dfshim' has no attribute '{name}'")
