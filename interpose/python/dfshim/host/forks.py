"""One interpreter for all ranks of a machine: it imports torch once, and forks the ranks.

`dfshim run -n`, or torchrun's agent, starts an interpreter with the ranks' command line and a
socket. Our sitecustomize calls serve(), so the interpreter has processed its options and has not
begun the program. It imports torch and forks a process for each request. The child returns from
sitecustomize, and Python itself goes on to the program: `__main__`, sys.argv, tracebacks and the
exit are those of any interpreter. The launcher is the child's parent: the process between the two
exits, and the launcher is the subreaper.

Requests, one datagram each: fields separated by NUL, first "run" or "torchrun", then NAME=VALUE, or
NAME to unset; the rank's standard output and error may come with it. The answer is the process's
number. At the end of the socket the server exits.
"""

import array
import ast
import atexit
import ctypes
import errno
import gc
import importlib
import os
import re
import socket
import subprocess
import sys
import warnings
from importlib.machinery import PathFinder

# "FD ASK KIND PROGRAM". ASK: ? whether to fork, ! to do so. KIND: f a file, m a module, c text.
VARIABLE = "_DFSHIM_FORK"
# Packages that import torch, beside those with torch in their names.
FRIENDS = re.compile(r"\w*torch\w*|accelerate|deepspeed|diffusers|lightning|megatron|peft"
                     r"|transformers|trl")
# The first optimizer or DistributedDataParallel imports torch._dynamo, which takes as long as torch
# itself.
DYNAMO = re.compile(r"\b(optim|DistributedDataParallel)\b")
# The import of torch reads none of these variables.
LATE = re.compile(r"(MASTER_|NCCL_|DFSHIM_(?!HOST_STUB)|LOCAL_|GROUP_|ROLE_|TORCHELASTIC_"
                  r"|CUDA_VISIBLE_DEVICES|RANK|WORLD_SIZE|TOKENIZERS_|HF_|WANDB_)\w*")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Separate(Exception):
    """Raised with the reason why each rank needs an interpreter of its own."""


# ---- whether -------------------------------------------------------------------------------------


class Program:
    """Collects the imports of the program's files in the order of execution. Its own files are read
    where they are imported."""

    def __init__(self):
        # torch: the modules of torch to import.
        self.seen, self.torch, self.early, self.dynamo = set(), None, None, False

    def read(self, text, file, folder):
        tree = ast.parse(text)
        self.dynamo |= bool(DYNAMO.search(text if isinstance(text, str)
                                          else text.decode(errors="replace")))
        top = set(map(id, tree.body))
        nodes = (n for n in ast.walk(tree) if hasattr(n, "lineno"))
        for node in sorted(nodes, key=lambda n: (n.lineno, n.col_offset)):
            if isinstance(node, ast.Import):
                names = [(a.name, 0) for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = node.module or ""
                names = [(module, node.level)] + [(f"{module}.{a.name}".lstrip("."), node.level)
                                                  for a in node.names]
            else:
                if self.torch is None and self.sets_early(node):
                    self.early = f"{file}:{node.lineno} sets what the import of torch may read"
                continue
            for name, level in names:
                if not level and FRIENDS.fullmatch(name.partition(".")[0]):
                    self.torch = self.torch or ["torch"]
                    if name.startswith("torch.") and id(node) in top:
                        self.torch.append(name)
                    continue
                base = folder
                for _ in range(level):
                    base = os.path.dirname(file if base is folder else base)
                self.follow(name, base, folder)

    def sets_early(self, node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            target, key = node.func.value, node.args[0] if node.args else None
            if node.func.attr == "putenv":
                return not late(key)
            change = node.func.attr in ("setdefault", "update", "pop", "clear", "__setitem__")
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            target, key, change = node.value, node.slice, True
        else:
            return False
        return change and isinstance(target, (ast.Attribute, ast.Name)) and (
            (getattr(target, "attr", None) or getattr(target, "id", None))
            in ("environ", "modules")) and not late(key)

    def follow(self, name, base, folder):
        at = base
        for part in name.split(".") if name else [""]:
            at = os.path.join(at, part) if part else at
            for file in (at + ".py", os.path.join(at, "__init__.py")):
                if len(self.seen) < 300 and file not in self.seen and os.path.isfile(file):
                    self.seen.add(file)
                    with open(file, "rb") as f:
                        self.read(f.read(), file, folder)


def late(key):
    key = getattr(key, "value", None)
    return isinstance(key, str) and bool(LATE.fullmatch(key))


def interpreter_allows():
    options = sorted({"importtime", "tracemalloc", "perf", "perf_jit"} & set(sys._xoptions))
    # 3.8 with -X dev crashes after a fork in an import.
    if sys.implementation.name != "cpython" or sys.version_info < (3, 9):
        raise Separate(f"the interpreter is {sys.implementation.name} "
                       f"{sys.version.partition(' ')[0]}")
    if (sys.flags.verbose or sys.flags.inspect or sys.flags.interactive or options
            or os.environ.get("PYTHONTRACEMALLOC") or os.environ.get("PYTHONPROFILEIMPORTTIME")):
        raise Separate("an option of the interpreter is about its start")
    if os.environ.get("PYTHONHASHSEED") == "random":
        raise Separate("PYTHONHASHSEED=random")
    if sys.gettrace() or sys.getprofile():
        raise Separate("the interpreter is traced from its start")
    if threads() > 1:
        raise Separate("threads exist before the program")


def threads():
    return len(os.listdir("/proc/self/task"))


def main_file(kind, value):
    """Returns the program's text, its file, and the folder that Python puts in front of
    sys.path."""
    if kind == "c":
        return value, "-c", os.getcwd()
    if kind == "m":
        path, name, folder = [os.getcwd(), *sys.path], "", os.getcwd()
        for part in [*value.split("."), "__main__"]:
            name = f"{name}.{part}".lstrip(".")
            spec = PathFinder.find_spec(name, path)
            if not spec:
                raise Separate(f"no module {name} is found")
            if not spec.submodule_search_locations:
                break
            path = spec.submodule_search_locations
        file = spec.origin
    else:
        file = os.path.realpath(value)
        folder = os.path.dirname(file)
    try:
        with open(file, "rb") as f:
            return f.read(), file, folder
    except (OSError, TypeError) as error:
        raise Separate(f"{value} cannot be read ({error})") from None


def find_modules(kind, value):
    """Returns the modules to import, and the folder of the program's modules. Raises Separate."""
    text, file, folder = main_file(kind, value)
    program = Program()
    try:
        here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
        hidden = PathFinder.find_spec(
            "sitecustomize", [p for p in sys.path if os.path.abspath(p or ".") != here])
        if hidden and hidden.origin:
            with open(hidden.origin, "rb") as f:
                program.read(f.read(), hidden.origin, os.path.dirname(hidden.origin))
        program.seen.add(file)
        program.read(text, file, folder)
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise Separate(f"the program's text cannot be read ({error})") from None
    if not program.torch:
        raise Separate("the program's files do not import torch")
    if program.early:
        raise Separate(program.early)
    if not PathFinder.find_spec("torch", [folder, *sys.path]):
        raise Separate("torch is not installed")
    return program.torch + ["torch._dynamo"] * program.dynamo, folder


# ---- the interpreter that forks ------------------------------------------------------------------


class Server:
    def __init__(self, sock):
        self.sock = sock
        self.printed = []  # what the import has printed, for each rank to print

    def import_all(self, names, folder):
        """Imports the modules that the program will import."""
        kept = [os.dup(1), os.dup(2)]
        files = [os.memfd_create("output"), os.memfd_create("error")]
        try:
            for fd in (1, 2):
                os.dup2(files[fd - 1], fd)
            if not getattr(sys.flags, "safe_path", False):
                sys.path.insert(0, folder)
            for name in dict.fromkeys(names):
                try:
                    importlib.import_module(name)
                except ImportError:
                    if name == "torch":
                        raise
        finally:
            if sys.path[:1] == [folder]:
                del sys.path[0]
            for stream in (sys.stdout, sys.stderr):
                if stream:
                    stream.flush()
            for fd in (1, 2):
                os.dup2(kept[fd - 1], fd)
                os.close(kept[fd - 1])
                size = os.lseek(files[fd - 1], 0, os.SEEK_END)
                self.printed.append(os.pread(files[fd - 1], size, 0))
                os.close(files[fd - 1])

    def prepare(self, names, folder):
        """Raises Separate if ranks cannot be forked after the import."""
        try:
            self.import_all(names, folder)
        except BaseException as error:
            raise Separate(f"the import of torch fails ({error!r})") from None
        torch = sys.modules["torch"]
        if not getattr(getattr(torch, "version", None), "cuda", None):
            raise Separate("this PyTorch is built without CUDA")
        # Threads do not survive a fork. Libraries such as OpenBLAS end theirs before it and start
        # them again when they are needed. In the child torch refuses CUDA if an import has asked
        # for devices.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 warns if a process with threads forks
            child = os.fork()
        if not child:
            refused = 1
            try:
                refused = int(getattr(getattr(torch, "cuda", None), "_is_in_bad_fork", bool)())
            finally:
                os._exit(refused)
        if os.waitpid(child, 0)[1]:
            raise Separate("an import asks CUDA for devices")
        if threads() > 1:
            raise Separate("threads exist after the import of torch")
        # A garbage collection in a rank would write to all objects, so the rank would get its own
        # copy of their memory.
        gc.collect()
        gc.freeze()
        if "triton" in sys.modules:
            # At exit its bindings report functions that no collection has freed.
            atexit.register(gc.unfreeze)

    def serve(self):
        """Forks the ranks. Returns only in them."""
        parent = os.getppid()
        while True:
            text, control, _, _ = self.sock.recvmsg(1 << 20, socket.CMSG_SPACE(2 * 4))
            if not text:
                os._exit(0)
            fds = array.array("i")
            for _, _, data in control:
                fds.frombytes(data)
            kind, *fields = os.fsdecode(text).split("\0")
            try:
                pid = self.fork()
            except OSError as error:
                self.sock.send(b"-%d" % error.errno)
                continue
            if not pid:
                return self.become(kind, fields, fds, parent)
            for fd in fds:
                os.close(fd)
            self.sock.send(b"%d" % pid)

    def fork(self):
        """Makes a rank's process, whose parent is the launcher. Returns its id, or 0 in the
        rank."""
        number, wait = os.pipe(), os.pipe()
        between = os.fork()
        if between:
            os.close(number[1])
            os.close(wait[0])
            text = os.read(number[0], 32)
            os.waitpid(between, 0)
            os.close(wait[1])  # the rank has its parent now and can continue
            os.close(number[0])
            if not text.isdigit():
                error = int(text[1:] or errno.ENOMEM)
                raise OSError(error, os.strerror(error))
            return int(text)
        try:
            pid = os.fork()
        except OSError as error:
            os.write(number[1], b"-%d" % error.errno)
            os._exit(1)
        if pid:
            os.write(number[1], b"%d" % pid)
            os._exit(0)
        os.close(wait[1])
        os.read(wait[0], 1)
        for fd in (*number, wait[0]):
            os.close(fd)
        return 0

    def become(self, kind, fields, fds, parent):
        self.sock.close()
        if kind == "torchrun":
            os.setsid()
        else:
            os.setpgid(0, 0)
            prctl(PR_SET_PDEATHSIG, 9)
        if os.getppid() != parent:
            os._exit(1)
        for fd, name in zip(fds, (1, 2)):
            os.dup2(fd, name)
            os.close(fd)
        for field in fields:
            name, equals, value = field.partition("=")
            if equals:
                os.environ[name] = value
            else:
                os.environ.pop(name, None)
        for fd, text in zip((1, 2), self.printed):
            if text:
                os.write(fd, text)
        modules = sys.modules
        if "multiprocessing.process" in modules:
            modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
        if "threading" in modules:
            getattr(modules["threading"].main_thread(), "_set_native_id", int)()
        if "numpy.random" in modules:
            modules["numpy.random"].seed()
        if hasattr(modules["torch"], "default_generator"):
            modules["torch"].default_generator.seed()


def prctl(what, value):
    ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def serve():
    """Called from sitecustomize. Returns in a rank, and in an interpreter that need not fork."""
    value = os.environ.pop(VARIABLE, None)
    if not value:
        return
    fd, ask, kind, program = value.split(" ", 3)
    sock = socket.socket(fileno=int(fd))
    os.set_inheritable(sock.fileno(), False)
    try:
        interpreter_allows()
        names, folder = find_modules(kind, program)
        server = Server(sock)
        if ask == "!":
            server.prepare(names, folder)
        sock.send(b"yes")
    except Separate as why:
        sock.send(f"no {why}".encode(errors="replace"))
        ask = "?"
    except OSError:  # the launcher has ended
        ask = "?"
    if ask == "?":
        os._exit(0)
    server.serve()


# ---- torchrun's agent ----------------------------------------------------------------------------


class Forked(subprocess.Popen):
    """A process that the interpreter has forked. It is a child of this process like any other."""

    def __init__(self, args, pid):
        self.forked = pid
        super().__init__(args)

    def _execute_child(self, *args, **kwargs):
        self.pid, self._child_created = self.forked, True


class Agent:
    """Replaces subprocess.Popen in the agent's start of its workers."""

    def __init__(self, popen):
        self.popen = popen
        # The interpreter that forks the workers of this round.
        self.key = self.sock = self.process = None
        self.left = 0

    def __call__(self, args, env=None, stdout=None, stderr=None, **kwargs):
        worker = None
        if env and kwargs == {"start_new_session": True}:
            try:
                worker = self.fork(tuple(args), env, stdout, stderr)
            except (OSError, ValueError, Separate) as why:
                self.close()
                if os.environ.get("DFSHIM_DEBUG") in ("info", "trace"):
                    print(f"dfshim: separate interpreters: {why}", file=sys.stderr, flush=True)
        return worker or self.popen(args=args, env=env, stdout=stdout, stderr=stderr, **kwargs)

    def fork(self, args, env, stdout, stderr):
        nr, key = int(env.get("LOCAL_WORLD_SIZE", "1")), (args, stdout is None, stderr is None)
        if self.left == 0 and int(env.get("LOCAL_RANK", "0")) == 0 and nr > 1:
            self.open(args, env, stdout, stderr)
            self.key, self.env, self.left = key, env, nr
        if not self.left or key != self.key:
            raise Separate("the workers' commands are not one Python program's")
        changes = ([f"{n}={v}" for n, v in env.items() if self.env.get(n) != v]
                   + [n for n in self.env if n not in env])
        early = [c for c in changes if not LATE.fullmatch(c.partition("=")[0])]
        if early:
            raise Separate(f"the workers' environments differ: {early[0]}")
        fds = [stream.fileno() if stream else fd for fd, stream in ((1, stdout), (2, stderr))]
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        try:
            self.sock.sendmsg([os.fsencode("\0".join(["torchrun", *changes]))],
                              [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            answer = self.sock.recv(1024)
        finally:
            prctl(PR_SET_CHILD_SUBREAPER, 0)
        if not answer.isdigit():
            raise Separate(f"a fork fails ({os.strerror(int(answer[1:] or 0))})")
        self.left -= 1
        if not self.left:
            self.close()
        return Forked(args, int(answer))

    def open(self, args, env, stdout, stderr):
        options = 2 if args[1:2] == ("-u",) else 1
        kind = "m" if args[options:options + 1] == ("-m",) else "f"
        program = args[options + (kind == "m"):][:1]
        if args[0] != sys.executable or not program or program[0].startswith("-"):
            raise Separate(f"{' '.join(args[:3])} is not this interpreter with a program")
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = self.popen(args=args, stdout=stdout, stderr=stderr,
                                      start_new_session=True, pass_fds=[theirs.fileno()],
                                      env={**env, VARIABLE: f"{theirs.fileno()} ! {kind} "
                                                            f"{program[0]}"})
        answer = self.sock.recv(1024).decode(errors="replace")
        if answer != "yes":
            raise Separate(answer[3:] or "the interpreter has exited")

    def close(self):
        self.left = 0
        if self.sock:
            self.sock.close()  # the interpreter exits
        if self.process:
            self.process.wait()
        self.sock = self.process = None


def fork_workers(handler):
    """handler: torch's module in which the agent starts a worker."""
    if os.environ.get("DFSHIM_HOST_FORK") != "0":
        handler.Popen = Agent(handler.Popen)
