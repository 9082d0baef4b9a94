#!/bin/bash
# Description: a rank on which dfshim cannot start: all ranks run on NCCL, with one warning, or all get the error.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
fake=$B/tests/cuda/fake
if [ ! -x "$B/tests/cuda/use_unable" ] || [ ! -f "$B/kernels/daemon.fatbin" ]; then
	echo "skipped: built without NCCL's header or without nvcc"
	exit 77
fi
# Without DFSHIM_BACKEND=cuda the second process has no backend, and so can't start.
run() { # NAME HOW "VARIABLES OF THE FIRST" "VARIABLES OF THE SECOND": output and log of each in $T/NAME.0, .1
	local name=$1 how=$2 i pids=() status=0
	local vars=("DFSHIM_BACKEND=cuda $3" "$4")
	rm -f "$T/id"
	for i in 0 1; do
		# shellcheck disable=SC2086 # words
		env LD_LIBRARY_PATH="$fake" LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so" FAKE_CUDA_DEVICES=2 ID_FILE="$T/id" RANK=$i \
			FAKE_NCCL_LOG="$T/$name.calls" ${vars[i]} timeout $((60 * ${SLOW:-1})) "$B/tests/cuda/use_unable" "$how" \
			>"$T/$name.$i" 2>"$T/$name.$i.err" &
		pids+=($!)
	done
	for i in 0 1; do
		wait "${pids[i]}" || status=$?
	done
	[ $status = 0 ] || fail "$name: status $status: $(cat "$T/$name".*)"
}
want() { # FILE LINE...
	local f=$T/$1 l
	shift
	for l; do
		grep -qF -- "$l" "$f" || fail "$f lacks \"$l\": $(cat "$f" "${f%.err}"*)"
	done
}
times() { # FILE TEXT TIMES
	[ "$(grep -cF -- "$2" "$T/$1")" = "$3" ] || fail "$1: \"$2\" is not there $3 times: $(cat "$T/$1")"
}

for how in single group; do
	run $how $how "" ""
	want $how.0 "init 0" "allreduce 0 0" "rank 0 of $([ $how = group ] && echo 3 || echo 2), destroy 0"
	want $how.1 "init 0" "allreduce 0 0" "rank 1 of"
	[ $how = single ] || want group.1 "rank 2 of 3, destroy 0"
	n=$([ $how = group ] && echo 3 || echo 2)
	times $how.calls ncclCommInitRankConfig "$n"
	times $how.calls ncclGetUniqueId 1
	times $how.calls ncclCommDestroy "$n"
	times $how.calls ncclAllReduce "$n"
	times $how.0.err "is handed to NCCL on all its $n ranks: dfshim cannot start on rank 1" 1
	want $how.0.err "no usable GPU"
	times $how.1.err "the job runs on plain NCCL" 1
	times $how.1.err "DFSHIM WARN" 1
done
# Wherever the strictness is, it is an error everywhere, and NCCL is not asked.
run strict0 single DFSHIM_STRICT=1 ""
run strict1 single "" DFSHIM_STRICT=1
run off single DFSHIM_HANDOVER=off ""
for name in strict0 strict1 off; do
	want $name.0 "init 5"
	want $name.0.err "dfshim cannot start on rank 1" "no usable GPU" "cannot be handed to NCCL: DFSHIM_"
	[ ! -e "$T/$name.calls" ] || ! grep -q "ncclCommInit" "$T/$name.calls" || fail "$name: NCCL was asked"
done
want strict0.1 "init 5"
want strict1.1 "init 2" "dfshim cannot start: no usable GPU"
want off.1 "init 5"

# The driver of one has no use for our code: that is known before anything is promised.
for i in 0 1; do
	vars=(DFSHIM_BACKEND=cuda DFSHIM_BACKEND=cuda)
	vars[i]+=" FAKE_CUDA_NO_CODE=0"
	run code$i single "${vars[@]}"
	want code$i.0 "init 0" "allreduce 0 0" "rank 0 of 2, destroy 0"
	want code$i.1 "init 0" "allreduce 0 0" "rank 1 of 2, destroy 0"
	times code$i.calls ncclAllReduce 2
	times code$i.0.err "is handed to NCCL on all its 2 ranks: dfshim cannot start on rank $i: GPU 0: the daemon's kernel cannot be loaded" 1
done

# A rank in another mode does not come, and says so.
for mode in off trace; do
	run mode-$mode single "" DFSHIM_MODE=$mode
	want mode-$mode.0 "init 5"
	want mode-$mode.1 "init 5" "this rank runs on plain NCCL (it runs with DFSHIM_MODE=$mode)"
	want mode-$mode.0.err "dfshim cannot start on rank 1" "it runs with DFSHIM_MODE=$mode"
done

# NCCL_COMM_ID: all meet at an address that rank 0 serves for us first and for NCCL then, communicator after
# communicator; whichever rank can't start.
for i in 0 1 2; do
	export NCCL_COMM_ID="127.0.0.1:$((20000 + (RANDOM << 1 | i & 1) % 20000))" TURNS=3
	how=single n=2
	[ $i != 2 ] || how=group n=3
	vars=("" "")
	[ $i != 0 ] || vars=(DFSHIM_BACKEND=auto DFSHIM_BACKEND=cuda)
	run address$i $how "${vars[@]}"
	times address$i.0 "init 0" 3
	times address$i.1 "init 0" 3
	times address$i.0 "rank 0 of $n, destroy 0" 3
	times address$i.calls ncclCommInitRankConfig $((3 * n))
	times address$i.calls ncclAllReduce $((3 * n))
	times address$i.0.err "is handed to NCCL on all its $n ranks: dfshim cannot start on rank $((i > 0))" 3
done
run address-strict single DFSHIM_STRICT=1 ""
want address-strict.0 "init 5"
want address-strict.1 "init 5"
want address-strict.0.err "dfshim cannot start on rank 1" "no usable GPU" "cannot be handed to NCCL: DFSHIM_"
unset NCCL_COMM_ID TURNS

# On CPU threads there is no NCCL to go over to.
# shellcheck disable=SC2016 # expanded inside
timeout $((60 * ${SLOW:-1})) "$B/dfshim" run --host -n 2 -- bash -c \
	'[ "$RANK" = 0 ] || export DFSHIM_STRICT=1 DFSHIM_ORDER=junk; exec "$0" --timeout 40' "$B/clients/latency" \
	>"$T/host" 2>&1
rc=$?
[ $rc != 0 ] && [ $rc != 124 ] || fail "on the CPU: status $rc: $(cat "$T/host")"
want host "dfshim cannot start on rank 1" "that cannot be used" \
	"cannot be handed to NCCL: NCCL cannot use memory of the CPU"
exit 0
