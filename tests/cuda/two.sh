# For tests/cuda/t_unable.sh, t_doctor.sh, t_named.sh and t_fallback.sh: runs a job of two processes
# on the test driver and the test NCCL (use_unable.c), and checks their output. Sourced after
# tests/lib/clients.sh.
# shellcheck shell=bash
fake=$B/tests/cuda/driver
if [ ! -x "$B/tests/cuda/use_unable" ] || [ ! -f "$B/kernels/daemon.fatbin" ]; then
	echo "skipped: built without NCCL's header or without nvcc"
	exit 77
fi
self_test() { # sets `kernel`: the tests' CUDA runtime, which brings the self-test's kernel. Skips without it
	[ -z "$SAN_RUNTIME" ] || skip "a sanitizer's build has no fatbin"
	kernel=$B/tests/cuda/runtime/libcudart.so.13
	[ -f "$kernel" ] || skip "built without the CUDA runtime of the tests"
}
job() { # NAME HOW "VARIABLES OF THE FIRST" "VARIABLES OF THE SECOND" [any]: output, log and status in $T/NAME.0, .1
	local name=$1 how=$2 any=${5-} i pids=() rc
	local vars=("$3" "$4")
	rm -f "$T/id"
	for i in 0 1; do
		# shellcheck disable=SC2086 # words
		env LD_LIBRARY_PATH="$fake" LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so" FAKE_CUDA_DEVICES=2 ID_FILE="$T/id" RANK=$i \
			FAKE_NCCL_LOG="$T/$name.calls" ${vars[i]} timeout $((100 * ${SLOW:-1})) "$B/tests/cuda/use_unable" "$how" \
			>"$T/$name.$i" 2>"$T/$name.$i.err" &
		pids+=($!)
	done
	for i in 0 1; do
		rc=0
		wait "${pids[i]}" || rc=$?
		echo $rc >"$T/$name.$i.rc"
		[ $rc = 0 ] || [ -n "$any" ] || fail "$name: status $rc of process $i: $(cat "$T/$name".[01]*)"
	done
}
want() { # FILE LINE...
	local f=$T/$1 l
	shift
	for l; do
		grep -qF -- "$l" "$f" || fail "$f lacks \"$l\": $(cat "$f" "${f%.[01]*}".[01]*)"
	done
}
times() { # FILE TEXT TIMES
	[ "$(grep -cF -- "$2" "$T/$1")" = "$3" ] || fail "$1: \"$2\" is not there $3 times: $(cat "$T/$1")"
}
