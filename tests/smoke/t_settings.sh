#!/bin/bash
# Description: blocks, slots, order, quitting, strict streams: the job is right with each setting. The statistics line.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
with() {
	local set=$1
	shift
	timeout -k 5 "${LIMIT:-60}" env "$set" "$B/dfshim" run --host -- "$C/disorder" --colls 6 --iters 15 --mix --seed "$SEED" --timeout 40 \
		"$@" >"$T/out" 2>&1 || fail "$set $*: status $?: $(cat "$T/out")"
}
for s in DFSHIM_BLOCKS=2 DFSHIM_BLOCKS=3 DFSHIM_BLOCKS=4 DFSHIM_ORDER=priority DFSHIM_SLOTS=1 DFSHIM_SLOTS=3 DFSHIM_SLOTS=64 \
	DFSHIM_SLOT_KB=1 DFSHIM_SLOT_KB=65536 DFSHIM_CONNECTOR_MB=1 DFSHIM_SPIN_FRONT=1 DFSHIM_QUIT_US=1 \
	DFSHIM_HOST_DEVICES=1 DFSHIM_RELEASE=none DFSHIM_PRIORITY=op=AllReduce:5; do
	with $s --ranks 4 --streams 2
	with $s --ranks 4 --procs 4
done
# With strict streams, as with NCCL, the job completes if all ranks have the same order, or each
# collective has its own stream.
with DFSHIM_STREAM_ORDER=strict --ranks 4 --inorder
with DFSHIM_STREAM_ORDER=strict --ranks 4 --procs 4 --inorder
with DFSHIM_STREAM_ORDER=strict --ranks 4 --streams 6

# Statistics: one JSON line for each process, on standard error or appended to a file.
keys='has("ranks") and has("blocks") and has("operations") and has("preemptions") and has("context_loads") and
	has("context_saves") and has("quits") and has("launches") and has("releases") and has("reordered") and
	has("sqe_ns") and has("cqe_ns") and has("max_queue") and has("by_reference")'
DFSHIM_STATS=1 DFSHIM_BLOCKS=2 "$B/dfshim" run --host -- "$C/disorder" --ranks 4 --colls 3 --iters 4 2>"$T/err" >/dev/null ||
	fail "statistics: status $?"
[ "$(grep -c '^{' "$T/err")" = 1 ] || fail "statistics: $(cat "$T/err")"
grep '^{' "$T/err" | jq -e "$keys and .ranks == 4 and .blocks == 2 and .operations == 48" >/dev/null ||
	fail "statistics: $(cat "$T/err")"
DFSHIM_STATS=$T/stats "$B/dfshim" run --host -n 8 -- "$C/disorder" --colls 3 --iters 4 >/dev/null || fail "status $?"
[ "$(wc -l <"$T/stats")" = 8 ] || fail "$(wc -l <"$T/stats") lines of 8"
[ "$(jq -c "select($keys and .ranks == 1 and .operations == 12)" "$T/stats" | wc -l)" = 8 ] || fail "$(cat "$T/stats")"

# Slots: two of 512 KiB between nodes, four of 128 KiB inside a node, or as the variables say.
connectors() {
	env DFSHIM_STATS=1 LATENCY_MIN=16777216 LATENCY_MAX=16777216 LATENCY_ROUNDS=1 "$@" "$B/dfshim" run --host -n 2 -- "$C/latency" 2>"$T/err" >/dev/null ||
		fail "latency with $*: status $?: $(cat "$T/err")"
	grep '^{' "$T/err" | jq -s 'map(.connector_bytes) | min'
}
near=$(connectors DFSHIM_SLOTS=auto) far=$(connectors DFSHIM_HOST_NODE_DEVICES=1)
other=$(connectors DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_SLOTS=4 DFSHIM_SLOT_KB=128)
[ "$far" -ge $((2 * 512 * 1024)) ] && [ "$near" -lt $((2 * 512 * 1024)) ] && [ "$other" -lt $((2 * 512 * 1024)) ] ||
	fail "bytes of connectors: $near on one node, $far over two, $other there with four slots of 128 KiB"
exit 0
