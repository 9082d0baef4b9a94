#!/bin/bash
# Description: slices by reference between ranks of one process, and to other nodes: results, and slices that are read directly to their destination. Buffers may be written as soon as an operation has ended or was aborted. Processes of one node use no slices by reference.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
# run CLIENT ARGS...: the client must succeed. Stores the number of slices by reference in `refs`,
# and of slices that were read past their slots in `landed`.
run() {
	rm -f "$T/stats"
	DFSHIM_STATS=$T/stats host "$@"
	refs=$(jq -s 'map(.by_reference) | add' "$T/stats")
	landed=$(jq -s 'map(.net_landed) | add' "$T/stats")
}
for n in 2 3 5; do
	run refcheck --ranks $n --seed "$SEED"
	[ "$refs" -gt 0 ] || fail "refcheck: $refs slices by reference"
	[ "$landed" = 0 ] || fail "refcheck: $landed slices past their slots"
done
for k in 0 1 2; do
	DFSHIM_HOST_NODE_DEVICES=1 run refcheck --ranks 3 --seed $((SEED + k))
	[ "$refs" -gt 0 ] || fail "refcheck, over nodes: $refs slices by reference"
	[ "$landed" -gt 0 ] || fail "refcheck, over nodes: $landed slices past their slots"
done
# Small slots give many slices of small buffers: uneven counts, all types and operations, in place
# and out of place.
export DFSHIM_SLOT_KB=1 DFSHIM_SLOTS=2
NCCL_PROTO=Simple run refcheck --ranks 3 --seed "$SEED"
[ "$refs" -gt 0 ] || fail "refcheck, small slots: $refs slices by reference"
for blocks in 1 3; do
	export DFSHIM_BLOCKS=$blocks
	NCCL_PROTO=Simple run collcheck --ranks 4 --sample $((300 / SLOW)) --seed "$SEED"
	[ "$refs" -gt 0 ] || fail "collcheck, $blocks blocks: $refs slices by reference"
	NCCL_PROTO=Simple run p2pcheck --ranks 3 --seed "$SEED"
	[ "$refs" -gt 0 ] || fail "p2pcheck, $blocks blocks: $refs slices by reference"
done
NCCL_PROTO=Simple run collcheck --ranks 2 --procs 2 --sample $((100 / SLOW)) --seed "$SEED"
[ "$refs" = 0 ] || fail "$refs slices by reference between processes"
for client in "collcheck --sample 100" p2pcheck; do
	# shellcheck disable=SC2086 # words
	DFSHIM_HOST_NODE_DEVICES=1 NCCL_PROTO=Simple run $client --ranks 3 --procs 3 --seed "$SEED"
	[ "$refs" -gt 0 ] || fail "$client, over nodes: $refs slices by reference"
	[ "$landed" -gt 0 ] || fail "$client, over nodes: $landed slices past their slots"
done
# One slice each way, which fits into the slots: the contribution to an AllReduce, and the sum of
# both.
unset DFSHIM_SLOT_KB DFSHIM_SLOTS DFSHIM_BLOCKS
for nodes in 0 1; do
	LATENCY_MIN=262144 LATENCY_MAX=262144 LATENCY_ROUNDS=2 DFSHIM_HOST_NODE_DEVICES=$nodes NCCL_PROTO=Simple NCCL_ALGO=Ring run latency --ranks 2
	ops=$(jq -s 'map(.operations) | add' "$T/stats")
	[ "$ops" -gt 0 ] && [ "$refs" = $((2 * ops)) ] || fail "$ops small AllReduces, $nodes: $refs slices by reference"
done
exit 0
