"""Runs fr_attribution of NVIDIA's Resiliency Extension without the packages around it: its modules are
plain Python. The arguments are those of fr_attribution. `frattribution.py --where` prints whether
it is installed, and its version."""
import importlib.metadata
import importlib.util
import os
import sys
import types

spec = importlib.util.find_spec("nvidia_resiliency_ext")
root = next(iter(spec.submodule_search_locations or []), "") if spec else ""
where = os.path.join(root, "attribution", "trace_analyzer")
if not os.path.exists(os.path.join(where, "fr_attribution.py")):
    print("no fr_attribution here (nvidia-resiliency-ext 0.5 or later)")
    sys.exit(77)
if sys.argv[1:] == ["--where"]:
    print(importlib.metadata.version("nvidia-resiliency-ext"))
    sys.exit(0)
for name, path in (
    ("nvidia_resiliency_ext", root),
    ("nvidia_resiliency_ext.attribution", os.path.dirname(where)),
    ("nvidia_resiliency_ext.attribution.trace_analyzer", where),
):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution import main  # noqa: E402

main()
