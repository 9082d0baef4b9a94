#!/bin/bash
# Description: NCCL on lanes by evidence: the self-test finds whether kernels of many streams run at
# the same time, and runs the job's NCCL in opposite orders; a job with DFSHIM_BACKEND=auto then
# uses the executor that passed.
# Limit: 600 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
D=$B/tests/cuda
[ -f "$D/nccl/libnccl.so.2" ] && [ -f "$D/runtime/libcudart.so.13" ] && [ -f "$B/kernels/daemon.fatbin" ] ||
	skip "built without NCCL's header or without nvcc"
[ -z "$SAN_RUNTIME" ] || skip "a sanitizer's build has no fatbin"
export LD_LIBRARY_PATH=$D/nccl:$D/runtime:$D/driver FAKE_CUDA_SMS=132 DFSHIM_HOST_SMS=132
# doctor CACHE VARIABLE...: runs `dfshim doctor`; its JSON is in $T/json
doctor() {
	local cache=$1
	shift
	mkdir -p "$T/$cache"
	env XDG_CACHE_HOME="$T/$cache" LD_PRELOAD="$D/runtime/libcudart.so.13" "$@" timeout $((150 * SLOW)) "$B/dfshim" doctor --json \
		--timeout $((40 * SLOW)) >"$T/json" 2>"$T/err"
}
is() { # FILTER WANTED
	local have
	have=$(jq -c "$1" "$T/json")
	[ "$have" = "$2" ] || fail "$1 is $have, not $2: $(cat "$T/json" "$T/err")"
}
check() { # NAME WANTED: the result of this check of GPU 0
	is ".gpus[0].checks[] | select(.check == \"$1\") | .ok" "$2"
}
# job CACHE VARIABLE...: runs the disordered job; sets rc to its status
job() {
	local cache=$1
	shift
	rc=0
	env XDG_CACHE_HOME="$T/$cache" LD_PRELOAD="$B/libdfshim.so:$D/runtime/libcudart.so.13" DFSHIM_BACKEND=auto DFSHIM_SELF_TEST_MS=0 "$@" \
		timeout -k 5 $((60 * SLOW)) "$C/disorder" --ranks 2 --colls 2 --comms 2 --iters 10 --seed 5 --timeout "${QUIET:-40}" \
		>"$T/out" 2>&1 || rc=$?
}
said() { grep -qF -- "$1" "$T/out" || fail "not said: \"$1\": $(cat "$T/out")"; }

# result LINE FILE...: writes LINE as the daemon's result into these files of the self-test's cache.
# Renews their sums.
result() {
	python3 - "$@" <<'PROGRAM'
import re, sys
M = (1 << 64) - 1
def hash_bytes(data):
    h = 0xcbf29ce484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001b3 & M
    h ^= len(data)
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9 & M
    h = (h ^ h >> 27) * 0x94d049bb133111eb & M
    return h ^ h >> 31
for path in sys.argv[2:]:
    text = re.sub(rb"\n(take|leave|fail) [^\n]*\nsum .*\n$", b"\n" + sys.argv[1].encode(), open(path, "rb").read(), flags=re.S)
    open(path, "wb").write(text + b"\nsum %016x\n" % hash_bytes(text))
PROGRAM
}

# With two GPUs every check can run. Whether NCCL is slower than the daemon depends on this machine,
# so the test sets that result itself.
doctor two FAKE_CUDA_DEVICES=2
check together true
check opposite true
is '.gpus[1].checks[] | select(.check == "together") | .seen' '"8 lanes of 16 CTAs, 12 of 11"'
files=("$T"/two/dfshim/gpu-????????????????)
result "leave it works here, but is slower than NCCL" "${files[@]}"
export FAKE_CUDA_DEVICES=2
if [ "$(jq '.gpus[0].checks[] | select(.check == "capture") | .ok' "$T/json")" = false ]; then
	# Captured collectives fail here, so no job uses lanes unless the user asks for them.
	QUIET=3 job two
	said "it works here, but is slower than NCCL; NCCL on lanes: GPU 0: capture (NCCL on lanes, a captured collective): "
	said "NCCL executes the job, which is recorded and watched"
else
	is '.gpus[0].lanes' '"take"'
	job two
	[ $rc = 0 ] || fail "by itself: status $rc: $(cat "$T/out")"
	said "NCCL executes on lanes, which dfshim keeps from deadlocking: their self-test passed here (DFSHIM_MODE=trace leaves it to NCCL)"
fi
# If the self-test ran for the daemon alone, a later job tests lanes and keeps the daemon's result.
rm "$T"/two/dfshim/lanes-???????????????? || fail "no results for lanes"
QUIET=3 job two
said "it works here, but is slower than NCCL; NCCL on lanes: not tested"
# A longer time lets the job wait until the test has ended.
QUIET=$((60 * SLOW)) job two DFSHIM_SELF_TEST_MS=$((40000 * SLOW))
said "testing GPU 0, once for this GPU, driver and build"
for f in "${files[@]}"; do
	[ -f "${f/%gpu-*/lanes-${f##*-}}" ] || fail "lanes are not tested after the daemon: $(cat "$T/out")"
	grep -q '^leave it works here, but is slower than NCCL$' "$f" || fail "the daemon is tested again: $(cat "$f")"
done
QUIET=3 job two DFSHIM_EXECUTOR=daemon
[ $rc != 0 ] || fail "DFSHIM_EXECUTOR=daemon: it ended"
said "GPU 0: it works here, but is slower than NCCL; DFSHIM_BACKEND=cuda uses the GPU anyway"
# A job does not use lanes if a check of the daemon has failed on one of the GPUs.
for i in 0 1; do
	result "leave it works here, but is slower than NCCL" "${files[1 - i]}"
	result "fail memory: wrong" "${files[i]}"
	QUIET=3 job two
	said ": memory: wrong"
	said "NCCL executes the job, which is recorded and watched"
done
# A GPU or a driver that executes kernels of different streams one after the other.
doctor serial FAKE_CUDA_FAULT=serial
check together false
is '.gpus[0].lanes' '"leave"'
QUIET=3 job serial DFSHIM_EXECUTOR=nccl
said "GPU 0: together (kernels of all lanes at the same time): of "
said "NCCL executes the job, which is recorded and watched"
# With a smaller budget of CTAs, the test runs the largest number of lanes that dfshim allows.
doctor narrow DFSHIM_NCCL_CTAS=8
is '.gpus[0].checks[] | select(.check == "together") | .seen' '"12 lanes of 8 CTAs"'
# With one GPU, NCCL's own kernels cannot run in opposite orders. The output says so.
export FAKE_CUDA_DEVICES=1
doctor one X=1
check together true
check opposite null
is '.gpus[0].checks[] | select(.check == "opposite") | .seen' '"one GPU is visible, so no two ranks of NCCL"'
exit 0
