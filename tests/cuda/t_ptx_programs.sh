#!/bin/bash
# Description: the GPU tests' own programs, compiled by nvcc, on the test driver. Their findings are
# true of the test driver only, but they start, find what they look for, and end. Device arithmetic
# of all types and operations is bit for bit the CPU's.
# Limit: 600 s
set -u
. "$SRC/tests/cuda/dryrun.sh"
compiled
rm -rf "$dry/tests/gpu" "$dry/tests/kernels"
mkdir -p "$dry/tests/kernels"
ln -s "$B/tests/cuda/gpu" "$dry/tests/gpu"
ln -s "$B/tests/cuda/gpu/reduce_cuda" "$dry/tests/kernels/reduce_cuda"
# Memory functions of the test driver wait for running work. The programs must find that out.
cat >"$T/facts.py" <<'P'
import json, sys, traceback
f = [json.loads(x) for x in open(sys.argv[1])]
want = {"block", "channels", "fresh", "ipc", "queues", "ring", "sync", "words"}
ended = {x["program"]: x["status"] for x in f if x["test"] == "ended"}
def of(test): return [x for x in f if x["test"] == test]
assert ended == dict.fromkeys(want, 0), ended
assert {x["program"] for x in of("machine")} >= want
assert [x["rounds"] for x in of("words")] == [300] * 4
assert not any(x["early"] for x in of("words"))
assert [(x["rounds"], x["stale"]) for x in of("fresh")] == [(400, 0)] * 3
assert [(x["torn_on_device"], x["torn_on_host"]) for x in of("ring")] == [(0, 0)]
assert [x["rounds"] for x in of("ipc")] == [50] * 2
assert {x["connections"] for x in of("channels") if "waits" in x} == {8, 32}
# These facts depend on time: on busy processors a thread may be too late (status 3).
def timed():
    queues = [x for x in of("queues") if x["daemon"] != "green"]
    assert len(queues) == 30 and all(x["started"] == (x["waits"] < x["connections"]) for x in queues), queues
    waits = {x["call"] for x in of("sync") if x["waits"]}
    assert waits == {"cudaMalloc", "cudaFree", "cudaMalloc 1 GiB", "cudaHostAlloc", "cudaFreeHost", "cudaHostRegister",
                     "cudaHostUnregister", "cuMemUnmap", "first launch of a kernel", "first launch of a kernel with a deep stack"}, waits
    # A first launch loads the kernel under the context's lock, which every launch needs: no kernel
    # is launched until the device is idle.
    assert [(x["entries"], x["blocks"], x["relaunch"]) for x in of("fill")] == [(1023, True, True)], of("fill")
    assert [(x["how"], x["waits"], x["relaunch"]) for x in of("load")] == [("module", False, True), ("kernel", True, False)], of("load")
    # So memory that is allocated or pinned is not ready in time for a resident kernel; mapped
    # memory is.
    assert [(x["memory"], x["waits"], x["seen"]) for x in of("late")] == [("device", True, False), ("pinned", True, False), ("mapped", False, True)], of("late")
    assert [(x["daemon"], x["available"], x.get("started", False)) for x in of("split")] == [("priority", True, True), ("green", False, False)], of("split")
    stands = {x["call"] for x in of("sync") if not x["relaunch"]}
    assert stands == {"cudaFree", "cudaFreeHost", "cudaHostUnregister", "cuMemUnmap", "first launch of a kernel", "first launch of a kernel with a deep stack"}, stands
try:
    timed()
except AssertionError:
    traceback.print_exc()
    sys.exit(3)
P
for _ in 1 2 3; do
	passes t_litmus
	python3 "$T/facts.py" "$results/litmus.jsonl" 2>"$T/differs"
	rc=$?
	[ $rc = 3 ] || break
done
[ $rc = 0 ] || fail "the facts: $(cat "$results/litmus.jsonl" "$T/differs")"
RESULTS=$T FAKE_CUDA_LIMITS=lock,queue,hardware,blocking,one timeout "${LIMIT:-100}" "$B/tests/cuda/gpu/litmus_block" >"$T/late" 2>&1 ||
	fail "litmus_block, memory that waits for nothing: status $?: $(tail -5 "$T/late")"
[ "$(grep -c '"test":"late".*"waits":false,"seen":true' "$T/late")" = 3 ] || fail "memory that is newer than the kernel: $(cat "$T/late")"
passes t_reduce
# Submission, completion and context loads are timed. A program's kernels run beside an idle and a
# busy daemon.
P=$B/tests/cuda/gpu
timeout "${LIMIT:-100}" "$P/daemon" 1048576 >"$T/steps" || fail "daemon: status $?: $(tail -5 "$T/steps")"
for k in sqe cqe context cold empty relaunch copy; do
	grep -qE "^daemon: $k [0-9.]*[1-9]" "$T/steps" || fail "daemon: no $k: $(cat "$T/steps")"
done
for with in idle busy; do
	BESIDE_NCCL=$with timeout "${LIMIT:-100}" env "LD_PRELOAD=$B/libdfshim.so" DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 \
		"$P/beside" 1048576 500 1 >"$T/beside" 2>&1 || fail "beside, $with: status $?: $(cat "$T/beside")"
	[ "$(grep -cE '^beside: (arithmetic|memory) [0-9]' "$T/beside")" = 2 ] || fail "beside, $with: $(cat "$T/beside")"
done
no_faults "the programs"
# These programs look for effects of weak memory: they must find one if the device's acquire is
# removed, and none with it.
for p in litmus_fresh litmus_ring; do
	python3 - "$P/$p" "$T/$p.ptx" <<'P' || fail "$p has no PTX with an acquire"
import sys
code = open(sys.argv[1], "rb").read()
at = code.index(b".version")
text = code[at:code.index(b"\0", at)]
assert b"ld.acquire.sys" in text
open(sys.argv[2], "wb").write(text.replace(b"ld.acquire.sys", b"ld.relaxed.sys"))
P
	RESULTS=$T FAKE_CUDA_WEAK=1 timeout "${LIMIT:-100}" "$P/$p" >"$T/sound" 2>&1 || fail "$p, memory weak: status $?: $(tail -5 "$T/sound")"
	RESULTS=$T FAKE_CUDA_WEAK=1 FAKE_CUDA_PTX=$T/$p.ptx timeout "${LIMIT:-100}" "$P/$p" >"$T/unsound" 2>&1
	rc=$?
	[ $rc = 1 ] && grep -qE '"(stale|torn_on_device)":[1-9]' "$T/unsound" ||
		fail "$p without an acquire: status $rc: $(tail -5 "$T/unsound")"
done
[ -n "${WHOLE-}" ] || exit 0

SLOW=100 gpu bench "$results" beside
# The emulator gets smaller sizes. `daemon` times its own steps on the emulator; the daemon of its
# messages runs on CPU threads, because these figures take many rounds.
FAKE_CUDA_PTX='' SLOW=100 gpu bench "$results" daemon
python3 - "$results/bench-gpu.json" <<'P' || fail "the figures: $(tail -9 "$T/gpu.log")"
import json, sys
f = {x["name"]: x for x in json.load(open(sys.argv[1]))["figures"]}
for k in ("beside.arithmetic", "beside.memory", "beside.busy.memory", "daemon.sqe_cqe", "daemon.context", "daemon.relaunch", "allreduce.2.copyshare"):
    assert float(f["gpu." + k]["value"]) > 0, k
P
no_faults "the benchmarks"
exit 0
