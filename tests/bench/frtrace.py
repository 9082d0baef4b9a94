"""Runs torchfrtrace without torch: its modules are plain Python and are found below torch's folder.
torch itself takes seconds to load, so it is not loaded. The arguments are those of torchfrtrace.
`frtrace.py --where` prints whether it is installed."""
import importlib.util
import os
import sys
import time
import types

spec = importlib.util.find_spec("torch")
where = os.path.join(os.path.dirname(spec.origin), "distributed", "flight_recorder") if spec else ""
if not os.path.isdir(where) or not importlib.util.find_spec("tabulate"):
    print("no torch with torchfrtrace here (pip install --no-deps torch tabulate)")
    sys.exit(77)
if sys.argv[1:] == ["--where"]:
    version = {}
    exec(open(os.path.join(os.path.dirname(spec.origin), "version.py")).read(), version)
    print(version["__version__"])
    sys.exit(0)
for name, path in (("torch", os.path.dirname(spec.origin)), ("torch.distributed", os.path.dirname(where))):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from torch.distributed.flight_recorder.fr_trace import main  # noqa: E402

begin = time.monotonic()
try:
    main(sys.argv[1:])
finally:
    print(f"seconds {time.monotonic() - begin:.4f}")
