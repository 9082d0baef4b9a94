#!/bin/bash
# Description: dfshim cannot start on one rank: all ranks run on NCCL, with one warning, or all get
# the error.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
. "$SRC/tests/cuda/two.sh"
# The second process is not on the GPU, so dfshim cannot start there.
run() { # NAME HOW "VARIABLES OF THE FIRST" "VARIABLES OF THE SECOND"
	job "$1" "$2" "DFSHIM_BACKEND=cuda $3" "DFSHIM_BACKEND=host $4"
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
	want $how.0.err "libdfhost.so is not preloaded"
	times $how.1.err "NCCL executes the job, which is recorded and watched" 1
	times $how.1.err "DFSHIM WARN dfshim cannot start: " 1
done
# If one rank is strict, it is an error on all ranks, and NCCL is not called.
run strict0 single DFSHIM_STRICT=1 ""
run strict1 single "" DFSHIM_STRICT=1
run off single DFSHIM_HANDOVER=off ""
for name in strict0 strict1 off; do
	want $name.0 "init 5"
	want $name.0.err "dfshim cannot start on rank 1" "libdfhost.so is not preloaded" "cannot be handed to NCCL: DFSHIM_"
	[ ! -e "$T/$name.calls" ] || ! grep -q "ncclCommInit" "$T/$name.calls" || fail "$name: NCCL was asked"
done
want strict0.1 "init 5"
want strict1.1 "init 2" "dfshim cannot start: DFSHIM_BACKEND=host"
want off.1 "init 5"

# The GPU of one rank cannot execute the daemon's code. dfshim finds that out before it accepts the
# communicator.
for i in 0 1; do
	vars=(DFSHIM_BACKEND=cuda DFSHIM_BACKEND=cuda)
	vars[i]+=" FAKE_CUDA_NO_CODE=0"
	run code$i single "${vars[@]}"
	want code$i.0 "init 0" "allreduce 0 0" "rank 0 of 2, destroy 0"
	want code$i.1 "init 0" "allreduce 0 0" "rank 1 of 2, destroy 0"
	times code$i.calls ncclAllReduce 2
	times code$i.0.err "is handed to NCCL on all its 2 ranks: dfshim cannot start on rank $i: GPU 0: the daemon's kernel cannot be loaded" 1
done

# A rank in another mode does not take part, and says so.
for mode in off trace; do
	run mode-$mode single "" DFSHIM_MODE=$mode
	want mode-$mode.0 "init 5"
	want mode-$mode.1 "init 5" "this rank runs on plain NCCL (it runs with DFSHIM_MODE=$mode)"
	want mode-$mode.0.err "dfshim cannot start on rank 1" "it runs with DFSHIM_MODE=$mode"
done

# NCCL_COMM_ID: all ranks meet at an address that rank 0 serves first for dfshim and then for NCCL,
# for three communicators in a row, with one of the ranks unable to start.
for i in 0 1 2; do
	export NCCL_COMM_ID="127.0.0.1:$((20000 + (RANDOM << 1 | i & 1) % 12000))" TURNS=3
	how=single n=2
	[ $i != 2 ] || how=group n=3
	vars=("" "")
	[ $i != 0 ] || vars=(DFSHIM_BACKEND=host DFSHIM_BACKEND=cuda)
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
want address-strict.0.err "dfshim cannot start on rank 1" "libdfhost.so is not preloaded" "cannot be handed to NCCL: DFSHIM_"
unset NCCL_COMM_ID TURNS

# Each GPU belongs to one process alone: no rank creates a context on another's GPU.
alone="DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 FAKE_CUDA_EXCLUSIVE=$T/exclusive"
job exclusive single "$alone DEVICE=0" "$alone DEVICE=1"
for i in 0 1; do
	want exclusive.$i "init 0" "allreduce 0 0"
done
# A GPU that cannot run the daemon matters only if a communicator uses it.
old="DFSHIM_BACKEND=cuda FAKE_CUDA_OLD=1"
job beside single "$old DFSHIM_STRICT=1" "$old DFSHIM_STRICT=1"
for i in 0 1; do
	want beside.$i "init 0" "allreduce 0 0"
done
job old single "$old" "$old DEVICE=1"
times old.calls ncclAllReduce 2
times old.0.err "is handed to NCCL on all its 2 ranks: dfshim cannot start on rank 1: GPU 1 has no compute capability 8.0" 1
job alone single "$old DFSHIM_BACKEND=cuda FAKE_CUDA_OLD=0 FAKE_CUDA_DEVICES=1" "$old FAKE_CUDA_OLD=0 FAKE_CUDA_DEVICES=1"
want alone.0.err "GPU 0 has no compute capability 8.0"
# With blocking launches the daemon cannot run: its launch would not return.
run blocking single CUDA_LAUNCH_BLOCKING=1 ""
want blocking.0.err "CUDA_LAUNCH_BLOCKING is set"

# On the CPU backend there is no NCCL that could take over.
timeout $((60 * ${SLOW:-1})) "$B/dfshim" run --host -n 2 -- bash -c \
	'[ "$RANK" = 0 ] || export DFSHIM_STRICT=1 DFSHIM_ORDER=junk; exec "$0" --timeout 40' "$B/clients/latency" \
	>"$T/host" 2>&1
rc=$?
[ $rc != 0 ] && [ $rc != 124 ] || fail "on the CPU: status $rc: $(cat "$T/host")"
want host "dfshim cannot start on rank 1" "that cannot be used" \
	"cannot be handed to NCCL: NCCL cannot use memory of the CPU"
exit 0
