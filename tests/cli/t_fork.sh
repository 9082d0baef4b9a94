#!/bin/bash
# Description: dfshim run --host -n N. Ranks that are forked from one interpreter see the same as ranks with separate interpreters, end in the same way, and leave nothing behind. If forks would change the program's behaviour, the ranks are separate.
set -u
. "$SRC/tests/lib/clients.sh"
D=$B/dfshim
PY=${TORCH_PYTHON:-$(python3 -c 'import sys; print(sys.executable)')} || skip "no Python here"
"$PY" -c 'import sys; sys.exit(sys.version_info < (3, 9) or sys.implementation.name != "cpython")' || skip "no CPython 3.9 here"
[ -z "${SAN_RUNTIME-}" ] || skip "a sanitizer has a thread of its own in each process"
unset DFSHIM_TRACE DFSHIM_HOST_FORK RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR PYTHONHASHSEED PYTHONPATH PYTHONUNBUFFERED
export MASTER_PORT=29511 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
# A module of this test replaces torch. It has the attributes that dfshim reads. check_torch.sh's
# part "fork" tests PyTorch's.
mkdir -p "$T/lib/torch" "$T/job"
cat >"$T/lib/torch/__init__.py" <<'END'
import os, random, signal, sys, threading, time, types

sys.modules["dfshim.host.operators"] = types.SimpleNamespace(install=lambda: None)
version, compile = types.SimpleNamespace(cuda="13.0"), len
how = os.environ.get("TORCH", "")
if how == "asks" and "dfshim.host.forks" in sys.modules:  # its children must not use CUDA
    me = os.getpid()
    cuda = types.SimpleNamespace(_is_in_bad_fork=lambda: os.getpid() != me)
if how == "prints":
    print("torch says", flush=True)
    os.write(2, b"torch warns\n")
if how == "threads":
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
if how == "dies" and "RANK" in os.environ:
    os.kill(os.getpid(), signal.SIGKILL)
if how == "sleeps":
    open("importing", "w").close()
    time.sleep(1000)
END
export PYTHONPATH=$T/lib
cd "$T/job" || exit 1
cp "$SRC/tests/cli/fork_probe.py" probe.py

# forked COMMAND..., separate COMMAND...: runs 3 ranks and checks that dfshim reports this way of
# starting them.
run_as() {
	local what=$1 rc
	shift
	DFSHIM_DEBUG=info timeout -k 5 "${LIMIT:-100}" "$D" run --host -n "${N:-3}" "${OPTIONS[@]}" -- "$@" >"$T/out" 2>"$T/err"
	rc=$?
	[ -z "$what" ] || grep -q "$what" "$T/err" || fail "$*: not \"$what\": $(cat "$T/out" "$T/err")"
	# Remove dfshim's own lines, so that only the program's errors are compared.
	grep -v ' DFSHIM INFO ' "$T/err" >"$T/err.program"
	return $rc
}
forked() { run_as 'INFO the ranks are forked from one interpreter' "$@"; }
separate() { run_as 'INFO separate interpreters' "$@"; }
OPTIONS=()

# The program sees the same in both ways.
sees() { # NAME COMMAND...
	local name=$1 r
	shift
	OUT=$T/a forked "$@" || fail "$name: status $?: $(cat "$T/err")"
	OPTIONS+=(--no-fork)
	OUT=$T/b DFSHIM_DEBUG=info timeout -k 5 "${LIMIT:-100}" "$D" run --host -n 3 "${OPTIONS[@]}" -- "$@" >"$T/out" 2>"$T/err" ||
		fail "$name: status $? with --no-fork"
	unset 'OPTIONS[-1]'
	for r in 0 1 2; do
		sed -i 's/0x[0-9a-f]*/0x/g' "$T/a.$r" "$T/b.$r"
		diff "$T/a.$r" "$T/b.$r" || fail "$name: rank $r sees a difference"
	done
	[ -z "$(sort "$T/a.own" | uniq -d)" ] || fail "$name: ranks share random numbers: $(cat "$T/a.own")"
	rm -f "$T"/[ab].*
}
sees "a file" "$PY" probe.py one "two words" ""
sees "a file in another folder" "$PY" -B ./../job/probe.py
sees "options" "$PY" -u -X dev -W error::BytesWarning -O probe.py -m x
sees "a module" "$PY" -s -m probe --x
sees "text" "$PY" -c 'import torch, probe; probe.main()' -c
mkdir package && : >package/__init__.py && printf 'from probe import main\nmain()\n' >package/__main__.py
sees "a package" "$PY" -um package
printf 'import torch, probe\nprobe.main()\n' >package/sub.py
sees "a module of a package" "$PY" -mpackage.sub
OPTIONS=(--tag)
sees "tagged" "$PY" probe.py
OPTIONS=()
PYTHONHASHSEED=7 PYTHONUNBUFFERED=1 sees "variables of Python" "$PY" probe.py

# A forked rank ends like a separate one, with the same messages.
cat >ends.py <<'END'
import atexit, os, signal, sys
from torch import version

class Odd(Exception):
    pass

def inner(how):
    if how == "raise":
        raise Odd("é")
    if how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "_exit":
        os._exit(6)
    sys.exit({"text": "a text", "seven": 7}.get(how))

atexit.register(print, "at exit")
print("begin", len(sys.argv))
if os.environ["RANK"] == "1":
    inner(sys.argv[1])
END
for case in raise:1 signal:139 _exit:6 text:1 seven:7 none:0; do
	IFS=: read -r how status <<<"$case"
	forked "$PY" ends.py "$how"; rc=$?
	sort "$T/out" >"$T/out.forked"
	mv "$T/err.program" "$T/err.forked"
	[ $rc = "$status" ] || fail "$how: status $rc, not $status"
	OPTIONS=(--no-fork)
	run_as "" "$PY" ends.py "$how"; rc=$?
	OPTIONS=()
	[ $rc = "$status" ] || fail "$how: status $rc, not $status, with --no-fork"
	sort "$T/out" | diff "$T/out.forked" - && diff "$T/err.forked" "$T/err.program" || fail "$how: other words"
done
printf 'import torch\nx = (\n' >syntax.py
separate "$PY" syntax.py && fail "a syntax error is right"
grep -q 'SyntaxError' "$T/err" && ! grep -q 'dfshim/host' "$T/err" || fail "a syntax error: $(cat "$T/err")"
N=40 forked "$PY" -c 'import os, torch
if os.environ["RANK"] == "0": os._exit(3)'; [ $? = 3 ] || fail "a rank that ends while others are forked"

# Each rank prints the output of the import.
TORCH=prints forked "$PY" -c 'import torch; print("then")' || fail "a torch that prints: $?"
[ "$(grep -c 'torch warns' "$T/err")" = 3 ] && [ "$(cat "$T/out")" = "$(printf 'torch says\nthen\n%.0s' 1 2 3)" ] ||
	[ "$(sort "$T/out" | uniq -c | awk '{print $1}' | tr '\n' ' ')" = "3 3 " ] || fail "what torch prints: $(cat "$T/out" "$T/err")"

# multiprocessing with each start method, and instances of classes of __main__ passed through it.
cat >pool.py <<'END'
import multiprocessing, os, pickle, sys
import torch

class Point:
    def __init__(self, x):
        self.x = x

def twice(p):
    return Point(p.x * 2 + int(os.environ["RANK"])), multiprocessing.parent_process().pid, os.getppid()

if __name__ == "__main__":
    for how in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(how).Pool(2) as pool:
            got = pool.map(twice, map(Point, range(5)))
            assert [p.x for p, _, _ in got] == [2 * i + int(os.environ["RANK"]) for i in range(5)], how
            assert all(parent == os.getpid() for _, parent, _ in got), how
            assert how == "forkserver" or all(real == os.getpid() for _, _, real in got), how
    pid = os.fork()
    if not pid:
        sys.exit(4)
    assert os.waitpid(pid, 0)[1] == 4 << 8
END
forked "$PY" pool.py || fail "multiprocessing: $(cat "$T/err")"

# The user's sitecustomize runs in each rank and may start threads there.
mkdir "$T/site" && cat >"$T/site/sitecustomize.py" <<'END'
import os, threading, time
if "RANK" in os.environ:
    open(f"site.{os.getpid()}", "w").close()
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
END
PYTHONPATH=$T/site:$T/lib forked "$PY" -c 'import os, threading, torch
assert threading.active_count() == 2 and os.path.exists(f"site.{os.getpid()}")' || fail "sitecustomize: $(cat "$T/err")"
[ "$(find . -name 'site.*' | wc -l)" = 3 ] || fail "sitecustomize runs in other processes: $(ls)"
mkdir local && printf 'from local import deep\n' >local/__init__.py && printf 'import torch\n' >local/deep.py
printf 'def f():\n    import local\nf()\n' >follows.py
forked "$PY" follows.py || fail "torch is imported by a file of the program's"

# Ranks are separate if forked ones would import torch under other conditions, or not at all.
printf 'import os\nos.environ["OMP_NUM_THREADS"] = "2"\nimport torch\n' >early.py
printf 'import os\nos.environ["MASTER_ADDR"] = "localhost"\nimport torch\nos.environ["X"] = "y"\n' >late.py
printf '#!/bin/sh\n# as of pyenv\nexec %s -I "$@"\n' "$PY" >python3 && chmod +x python3
printf '#!/bin/sh\necho $RANK\n' >python && chmod +x python
forked "$PY" late.py || fail "a variable that torch does not read: $?"
no_forks() { # REASON COMMAND...
	local reason=$1
	shift
	separate "$@" || fail "$*: status $?: $(cat "$T/err")"
	grep -q "separate interpreters: .*$reason" "$T/err" || fail "$*: not for \"$reason\": $(cat "$T/err")"
}
no_forks "early.py:2 sets" "$PY" early.py
no_forks "do not import torch" "$PY" -c 'print(1)'
TORCH=threads no_forks "threads exist after" "$PY" -c 'import torch'
TORCH=asks no_forks "an import asks CUDA" "$PY" -c 'import torch'
PYTHONHASHSEED=random no_forks "PYTHONHASHSEED" "$PY" -c 'import torch'
no_forks "about its start" "$PY" -X importtime -c 'import torch'
no_forks "does not answer" ./python3 -c 'print("torch")'
PATH=$PWD:$PATH run_as "" python -c 'import torch' && [ "$(sort "$T/out" | tr '\n' ' ')" = "0 1 2 " ] ||
	fail "a script that is named python runs as $(cat "$T/out")"
for options in -S -I -uE; do
	run_as "" "$PY" $options -c 'import sys; print("torch" in sys.modules)' || fail "$options: $?"
	! grep -q "forked from" "$T/err" && [ "$(sort -u "$T/out")" = False ] || fail "$options: $(cat "$T/out" "$T/err")"
done
TORCH=dies separate "$PY" -c 'import torch'; [ $? = 137 ] || fail "a torch that dies: $?"
DFSHIM_HOST_FORK=0 run_as "" "$PY" -c 'import torch' || fail "DFSHIM_HOST_FORK=0"
! grep -q "forked from" "$T/err" || fail "DFSHIM_HOST_FORK=0 forks"

# A job that is ended before its program begins, or killed, leaves no process.
echo "text of $T" >"$T/mark" # this text is in the command line of every process of the job
seen() { grep -qasFf "$T/mark" /proc/[0-9]*/cmdline; }
ended() { while seen; do sleep 0.05; done; } # if a process remains, this test does not end either
begin() { # starts the job ($pid), and waits until it imports torch or runs the program
	rm -f importing
	TORCH=$1 env --default-signal=INT "$D" run --host -n 3 --grace 0.2 -- "$PY" -c "import torch, time # $(cat "$T/mark")
open('importing', 'w').close()
time.sleep(1000)" 2>"$T/err" &
	pid=$!
	while ! [ -f importing ]; do sleep 0.05; done
}
begin runs
seen || fail "the job's processes cannot be seen"
kill -KILL $pid
wait $pid
for phase in sleeps runs; do
	for sig in INT TERM KILL; do
		begin $phase
		kill -$sig $pid
		wait $pid
		rc=$?
		case $phase:$sig in
		sleeps:INT) want=130 ;;
		*:TERM) want=143 ;;
		*:KILL) want=137 ;;
		*) want=1 ;;
		esac
		[ $rc = $want ] || [ $phase:$sig:$rc = runs:INT:130 ] || fail "$phase, $sig: status $rc, not $want: $(cat "$T/err")"
		ended
	done
done
TORCH=sleeps timeout -k 5 "${LIMIT:-100}" "$D" run --host -n 3 --limit 0.5 -- "$PY" -c "import torch # $(cat "$T/mark")" 2>"$T/err"
[ $? = 124 ] || fail "--limit while torch is imported: $(cat "$T/err")"
ended

# If little memory is free, dfshim prints the number of processes, their memory and the free memory.
printf 'MemTotal: 24000000 kB\nMemAvailable: 700000 kB\n' >"$T/meminfo"
if unshare -m mount --bind "$T/meminfo" /proc/meminfo 2>/dev/null; then
	N=2 unshare -m sh -c 'mount --bind "$0" /proc/meminfo && exec "$@"' "$T/meminfo" "$D" run --host -n 2 -- \
		"$PY" -c 'import time, torch; x = bytearray(50 << 20); time.sleep(2.5)' 2>"$T/err"
	grep -Eq 'memory runs out: 2 processes have [0-9]+ MB each of their own, and 717 MB are free' "$T/err" ||
		fail "no line about memory: $(cat "$T/err")"
else
	echo "no rights for a mount namespace: the line about memory was not looked at"
fi
exit 0
