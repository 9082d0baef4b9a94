"""Python runs this at its start under `dfshim run --host` (the folder is in front of PYTHONPATH):
when the program imports torch, its CUDA operators compute on the CPU (dfshim.host). A sitecustomize
that this one hides runs as well."""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _load(name, file, **where):
    spec = importlib.util.spec_from_file_location(name, file, **where)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _start():
    """Without the package's folder on the path: it may be the site-packages of another Python."""
    package = os.path.dirname(os.path.dirname(_here))
    if "dfshim" not in sys.modules:
        _load("dfshim", os.path.join(package, "__init__.py"), submodule_search_locations=[package])
    from dfshim.host import start

    start.start()
    if "_DFSHIM_FORK" in os.environ:
        from dfshim.host import forks

        forks.serve()


def _next():
    path = [p for p in sys.path if os.path.abspath(p or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec and spec.loader:
        _load("sitecustomize", spec.origin)


_start()
_next()
