#!/bin/bash
# Description: lanes on the GPU backend, on the test driver with an NCCL that executes there: the
# disordered job ends with right results in threads and processes, where that NCCL alone hangs; more
# lanes than hardware queues; ends and deaths.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
D=$B/tests/cuda
[ -f "$D/nccl/libnccl.so.2" ] && [ -f "$D/runtime/libcudart.so.13" ] || skip "built without NCCL's header or without nvcc"
export LD_LIBRARY_PATH=$D/nccl:$D/runtime:$D/driver FAKE_CUDA_DEVICES=4
# on SMS VARIABLE... CLIENT ARGS...: runs CLIENT on devices with SMS multiprocessors; sets rc,
# output in $T/out.
on() {
	local sms=$1 set=(DFSHIM_BACKEND=cuda DFSHIM_EXECUTOR=nccl DFSHIM_STRICT=1)
	shift
	while [[ $1 == *=* ]]; do
		set+=("$1")
		shift
	done
	rc=0
	timeout -k 5 "${LIMIT:-100}" env FAKE_CUDA_SMS="$sms" DFSHIM_HOST_SMS="$sms" "${set[@]}" "LD_PRELOAD=$B/libdfshim.so${PRE:+ $PRE}" "$C/$1" \
		--timeout "${QUIET:-60}" "${@:2}" >"$T/out" 2>"$T/err" || rc=$?
}
lanes() {
	on "$@"
	tail -1 "$T/out"
	[ $rc = 0 ] || fail "$*: status $rc: $(cat "$T/out" "$T/err")"
}

job=(disorder --colls 2 --comms 2 --iters $((30 / SLOW + 1)) --seed 5)
for procs in "" "--procs 2"; do
	for sync in "" --sync; do
		# shellcheck disable=SC2086 # empty or words
		lanes 64 DFSHIM_STATS="$T/stats" "${job[@]}" --ranks 2 $procs $sync
		grep -q '"blocks": 0, "operations": 0,' "$T/stats" || fail "not on lanes: $(cat "$T/stats")"
		# The control: the same job on that NCCL alone hangs.
		QUIET=2 on 64 DFSHIM_MODE=off "${job[@]}" --ranks 2 $procs $sync
		[ $rc != 0 ] || fail "by NCCL's rules, $procs $sync: it ended"
	done
done
lanes 64 disorder --ranks 4 --colls 4 --iters $((20 / SLOW)) --mix --streams 3 --seed "$SEED"
lanes 64 disorder --ranks 4 --procs 2 --colls 4 --iters $((20 / SLOW)) --mix --wait sync --seed "$SEED"
lanes 64 disorder --ranks 4 --procs 4 --colls 8 --comms 8 --iters $((20 / SLOW)) --sync --seed "$SEED"
# Devices with room for the reserve and nothing else.
lanes 16 disorder --ranks 4 --colls 8 --comms 8 --iters $((10 / SLOW + 1)) --sync --seed "$SEED"
# More communicators than hardware queues for lanes: dfshim warns. There are enough SMs.
lanes 1024 DFSHIM_DEBUG=info disorder --ranks 2 --colls 40 --comms 40 --iters 5 --streams 4 --seed "$SEED"
[ "$(grep -c 'device 0 has 32 hardware queues, and more than 11 communicators: operations may wait for room' "$T/err")" = 1 ] ||
	fail "not said: $(cat "$T/err")"
# Programs of the deadlock interpreter. The first hangs if a lane fills its queue in the driver, the
# second if the lanes of one rank are not counted.
S=../tests/deadlock/interpreter/script
ars() { for ((i = 0; i < $1; i++)); do echo -n "AR ${2/N/$i} s1; "; done; }
printf '%s\n' "ranks 2" "comm A 0 1" "comm B 0 1" "0: $(ars 600 A) AR B s2; ssync s2; ssync s1" "1: AR B s2; ssync s2; $(ars 600 A) ssync s1" >"$T/deep.txt"
{
	printf '%s\n' "ranks 2" "comm P 0 1" "comm Q 0 1"
	for ((i = 0; i < 40; i++)); do echo "comm O$i 0"; done
	printf '%s\n' "0: AR P s1; K s1; $(ars 40 ON) AR Q s2; ssync s2; ssync s1" "1: sleep 300; AR Q s2; ssync s2; AR P s1; ssync s1"
} >"$T/single.txt"
# The third hangs if a replay of a group waits for another operation of its group.
twice="cap c g; K c; { ; AR A c n=64; AR A c n=64; }; K c; endcap c g; launch g s; launch g s; AR A s n=64; ssync s; launch g s; ssync s"
printf '%s\n' "ranks 2" "comm A 0 1" "0: $twice" "1: $twice" >"$T/twice.txt"
# A captured group whose messages are on two streams is one group for NCCL too. NCCL connects two
# ranks inside the call.
{
	printf '%s\n' "ranks 2" cold "comm A 0 1"
	for r in 0 1; do
		echo "$r: cap c g; K c; rec e1 c; wait e1 d; { ; send A $((1 - r)) c n=1000; recv A $((1 - r)) d n=1000; };" \
			"rec e2 d; wait e2 c; K c; endcap c g; launch g c; launch g c; ssync c"
	done
} >"$T/across.txt"
for f in deep single twice across; do
	on 1024 $S "$T/$f.txt"
	[ $rc = 0 ] || fail "$f: status $rc: $(cat "$T/out" "$T/err")"
done
lanes 64 collcheck --ranks 2 --sample $((1500 / SLOW)) --seed "$SEED"
lanes 64 p2pcheck
lanes 64 splitcheck
lanes 64 nbcheck
lanes 64 apicheck
# Graphs, on devices with room for three communicators, for two, and for the reserve only.
for sms in 64 48 16; do
	for client in "graphcheck --ranks 4" "graphcheck --procs 2" "graphforms --ranks 3" "graphforms --procs 2"; do
		# shellcheck disable=SC2086 # words
		lanes $sms $client --seed "$SEED"
	done
done
lanes 64 DFSHIM_NCCL_ORDER=agree graphforms --ranks 3 --seed "$SEED"
for part in opposite elapsed pressure reset; do
	lanes 64 STREAM_ONLY=$part streamcheck
done
for case in abort leave; do
	for how in "--ranks 3" "--procs 3"; do
		: >"$T/err"
		# shellcheck disable=SC2086 # words
		lanes 64 RUDE_UNTIL="$T/err" RUDE_CASE=$case rude $how
	done
done
# A communicator is aborted while several replays wait, on the lane or before it. Launches fail, in
# dfshim or in the driver.
for how in "--ranks 2" "--procs 2"; do
	for sms in 64 64 64 16; do
		# shellcheck disable=SC2086 # words
		RUDE_CASE=abort-graph lanes $sms rude $how
	done
	# shellcheck disable=SC2086
	RUDE_CASE=half-graph lanes 64 rude $how
	# shellcheck disable=SC2086
	FAKE_CUDA_FAULT=graphs RUDE_CASE=lost-graph lanes 64 rude $how
done
# If an allocation in the driver waits for NCCL's kernels, it also waits for their peers. The
# measured driver does not do this (limits.c), so that limit is off here.
export FAKE_CUDA_LIMITS=lock,queue,hardware,blocking,one,context
lanes 64 STREAM_ONLY=pending streamcheck
lanes 64 RUDE_CASE=busy rude --procs 3
# Threads that NCCL starts are NCCL's own: when such a thread unmaps memory, dfshim must not make it
# wait for streams, because one of them waits for the message.
${CC:-gcc} -shared -fPIC -o "$T/proxy.so" "$SRC/tests/cuda/proxy.c" -ldl || fail "the library with a proxy"
PRE=$T/proxy.so lanes 64 CYCLE_COLLS=8 CYCLE_ROUNDS=1 cycle --ranks 2
unset FAKE_CUDA_LIMITS
# A graph that NCCL launches in its call is NCCL's: it waits for no operation, and is not recorded as the job's.
${CC:-gcc} -shared -fPIC -o "$T/own.so" "$SRC/tests/cuda/own_graph.c" -ldl || fail "the library with a graph"
mkdir "$T/own"
PRE=$T/own.so lanes 64 DFSHIM_TRACE="$T/own" disorder --ranks 2 --colls 2 --comms 2 --iters 3 --sync --seed 5
"$B/dfshim" show --tail 100000 "$T/own" >"$T/shown" || fail "the trace of a job whose NCCL launches graphs: $(cat "$T/shown")"
grep -qE ' op +dev ' "$T/shown" || fail "no operation is shown: $(head -50 "$T/shown")"
grep -E ' graph_launch | work .*\[kind +0x([0-9a-f]*000)?4\]' "$T/shown" && fail "the graphs of NCCL are recorded"
# Lanes cannot prevent a deadlock through a cooperative kernel as large as the device: dfshim warns.
# A smaller kernel has room.
cooperative() { # BLOCKS
	DFSHIM_BACKEND=cuda DFSHIM_EXECUTOR=nccl DFSHIM_STRICT=1 FAKE_CUDA_SMS=64 DFSHIM_HOST_SMS=64 LD_PRELOAD="$B/libdfshim.so" \
		timeout -k 5 "${LIMIT:-100}" python3 - "$1" >"$T/out" 2>&1 <<'PROGRAM'
import ctypes, sys
C, context, comm, module, kernel, word = ctypes.CDLL(None), *(ctypes.c_void_p() for _ in range(5))
cuda = ctypes.CDLL("libcuda.so.1")
nccl = ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
ptx = b""".version 7.0
.target sm_80
.address_size 64
.visible .entry nothing()
{
	ret;
}
"""
def must(r):
    if r:
        sys.exit(f"a call returned {r}")
must(cuda.cuInit(0))
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(C.ncclCommInitAll(ctypes.byref(comm), 1, (ctypes.c_int * 1)(0)))
must(cuda.cuModuleLoadData(ctypes.byref(module), ptx))
must(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"nothing"))
must(cuda.cuLaunchCooperativeKernel(kernel, int(sys.argv[1]), 1, 1, 1024, 1, 1, 0, None, None))
must(cuda.cuCtxSynchronize())
must(C.ncclCommDestroy(comm))
PROGRAM
}
cooperative 128 || fail "a large cooperative kernel: $(cat "$T/out")"
grep -q 'a cooperative kernel of 128 blocks does not fit on device 0 beside NCCL.s kernels' "$T/out" || fail "not said: $(cat "$T/out")"
cooperative 96 || fail "a cooperative kernel with room: $(cat "$T/out")"
grep -q 'cooperative kernel' "$T/out" && fail "said of one with room: $(cat "$T/out")"
# An NCCL without maxCTAs is refused, with the reason.
LD_LIBRARY_PATH=$D/runtime:$D/driver on 64 NCCL_DEBUG=WARN FAKE_NCCL_VERSION=21805 disorder --ranks 2 --iters 1
[ $rc = 3 ] && grep -q 'no libnccl.so.2 of version 2.19 or later was found' "$T/out" || fail "an old NCCL: status $rc: $(cat "$T/out")"
exit 0
