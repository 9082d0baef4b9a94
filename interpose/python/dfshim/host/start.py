"""What happens when a program under `dfshim run --host` imports torch, or what brings kernels of
its own.

Called from sitecustomize, in each Python of the job. Nothing is imported here that the program did
not ask for.
"""

import importlib.abc
import os
import sys

STUB = os.environ.get("DFSHIM_HOST_STUB") == "1"


def say(text):
    """One line, from one process of a job."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"dfshim: {text}", file=sys.stderr, flush=True)


def after_torch(torch):
    if torch.version.cuda is None:
        say(f"this PyTorch ({torch.__version__}) is built without CUDA, so it has no CUDA devices, "
            "also not on the CPU backend: install a CUDA build (on Linux x86-64 "
            "`pip install torch` is one; a version ending in +cpu is not)")
        return
    from dfshim.host import operators

    operators.install()
    without_compiler(torch)


def without_torch():
    """Says what is missing, as the last line, if the program ends because it cannot import
    torch."""
    report = sys.excepthook

    def excepthook(kind, error, trace):
        report(kind, error, trace)
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            say(f"{sys.executable} has no PyTorch: install it there (`pip install torch`), or "
                "start the job with the Python that has it")

    sys.excepthook = excepthook


def without_compiler(torch):
    """Makes torch.compile() return its argument unchanged, because it would generate kernels."""
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    compile_ = torch.compile
    said = []

    def compile(*args, **kwargs):
        if not said:
            said.append(say("torch.compile() generates kernels, which cannot run on the CPU "
                            "backend: what it is given runs uncompiled"))
        return compile_(*args, **kwargs)

    compile.__doc__ = compile_.__doc__
    compile.__wrapped__ = compile_
    torch.compile = compile


def after_triton(jit):
    """Refuses the launch of a Triton kernel, naming it, or skips the launch."""

    def run(self, *args, **kwargs):
        name = (getattr(self, "__name__", None)
                or getattr(getattr(self, "fn", None), "__name__", "?"))
        if not STUB:
            raise RuntimeError(f"dfshim: the Triton kernel {name} cannot run on the CPU backend; "
                               "DFSHIM_HOST_STUB=1 skips kernels (communication can be checked, "
                               "values mean nothing)")

    jit.JITFunction.run = run


def after_elastic(handler):
    from dfshim.host import forks

    forks.fork_workers(handler)


AFTER = {
    "torch": after_torch,
    "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler":
        after_elastic,
    "triton.runtime.jit": after_triton,
}


class Loader(importlib.abc.Loader):
    """Runs the module's own loader, and then what dfshim adds to the module."""

    def __init__(self, loader, then):
        self.loader, self.then = loader, then

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        self.then(module)


class Finder(importlib.abc.MetaPathFinder):
    missing = False  # whether torch was looked for, and not found

    def find_spec(self, name, path, target=None):
        then = AFTER.get(name)
        if not then:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec:
                if spec.loader and hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, then)
                return spec
        if name == "torch" and not self.missing:
            self.missing = True
            without_torch()
        return None


def start():
    if not any(isinstance(f, Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, Finder())
