# For tests/cuda/t_dryrun_*.sh and t_ptx_*.sh. Runs the GPU tests and benchmarks (tests/gpu,
# scripts/gpu.sh) without a GPU: on the test driver, with the daemon on CPU threads or, in
# t_ptx_*.sh, as compiled PTX. They show nothing about a GPU. They show that the scripts start the
# right programs, bound them, and keep the results.
#
# WHOLE=1 runs everything in full, which takes minutes. Sourced; needs B, T, SRC as every test does.
#
# shellcheck shell=bash
. "$SRC/tests/lib/clients.sh"
if [ ! -f "$B/tests/cuda/runtime/libcudart.so.13" ] || [ ! -f "$B/kernels/daemon.fatbin" ]; then
	skip "built without NCCL's header or without nvcc"
fi
[ -z "$SAN_RUNTIME" ] || skip "a sanitizer's build has no fatbin"
unset DFSHIM_TRACE
# A build folder with the same programs, except for litmus programs that pass, fail, hang, or find
# no GPU.
dry=$T/build
mkdir -p "$dry/tests/gpu"
for f in libdfshim.so libdfhost.so dfshim clients; do
	ln -sfn "$B/$f" "$dry/$f"
done
for f in deadlock cuda kernels; do
	ln -sfn "$B/tests/$f" "$dry/tests/$f"
done
script() { # NAME BODY
	printf '#!/bin/bash\n%s\n' "$2" >"$dry/tests/gpu/$1"
	chmod +x "$dry/tests/gpu/$1"
}
script litmus_fine 'echo "{\"test\":\"fine\"}" | tee -a "$RESULTS/litmus.jsonl"'
script litmus_none 'echo "skipped: no GPU"; exit 77'
# Stand for the program that times the daemon's steps, and the one that runs kernels beside it.
script daemon 'printf "daemon: %s %s\n" sqe 900 cqe 800 context 100 relaunch 4000 cold 500 empty 300 copy 3000'
script beside 'echo "beside: arithmetic 100"; echo "beside: memory 200"'
export GPU_NODE=$T/build LD_LIBRARY_PATH=$B/tests/cuda/runtime:$B/tests/cuda/driver
results=$T/results
[ -n "${WHOLE-}" ] || export SLOW=100
gpu() { # WORDS...: scripts/gpu.sh as a person calls it; its status in rc
	rc=0
	B=$dry scripts/gpu.sh "$@" >>"$T/gpu.log" 2>&1 || rc=$?
}
part() { # NAME: "status seconds output" of a test in the results
	python3 -c '
import json, sys
for t in json.load(open(sys.argv[1]))["tests"]:
    if t["test"] == sys.argv[2]:
        print(t["status"], t["seconds"], t["output"])' "$results/check-gpu.json" "gpu/$1"
}
passes() {
	for t; do
		gpu check "$results" "gpu/$t"
		[ $rc = 0 ] || fail "gpu/$t: status $rc: $(part "$t" | tail -25)"
		[[ $(part "$t") == "0 "* ]] || fail "gpu/$t is not in the results as passed: $(part "$t")"
	done
}
# From here on the daemon is the kernel that nvcc compiled. The emulator (tests/cuda/ptx) executes
# it with all threads and writes faults to $T/faults.
compiled() {
	[ -f "$B/kernels/daemon.90.ptx" ] && [ -x "$B/tests/cuda/gpu/reduce_cuda" ] || skip "built without the kernel's PTX"
	export FAKE_CUDA_PTX=$B/kernels/daemon.90.ptx FAKE_CUDA_FAULTS=$T/faults FAKE_CUDA_SEED=$SEED
}
no_faults() { # WHERE
	[ ! -s "$T/faults" ] || fail "$1: $(head -3 "$T/faults")"
}
# [NAME=VALUE...] CLIENT ARGS...: runs the client on the compiled daemon. Fails on a wrong result,
# on a fault, or if dfshim executed nothing.
on_ptx() {
	local set=()
	while [[ $1 == *=* ]]; do
		set+=("$1")
		shift
	done
	local c=$1 rc
	shift
	rm -f "$T/stats"
	timeout -k 5 "${LIMIT:-100}" env "LD_PRELOAD=$B/libdfshim.so" DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 "DFSHIM_STATS=$T/stats" \
		"${set[@]}" "$C/$c" "$@" --timeout "${QUIET:-40}" >"$T/client" 2>&1
	rc=$?
	tail -1 "$T/client"
	no_faults "${set[*]} $c $*"
	[ $rc = 0 ] || fail "${set[*]} $c $*: status $rc: $(tail -20 "$T/client")"
	grep -q '"operations": [1-9]' "$T/stats" || fail "${set[*]} $c $*: none of it was executed by dfshim"
}
