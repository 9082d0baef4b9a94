#!/bin/bash
# Description: order inside one communicator on lanes. Different calls are reported before they are launched. With DFSHIM_NCCL_ORDER=agree any order of issue completes on one node. Ranks that die or leave do not delay the others.
# Limit: 600 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
[ -x "$B/clients/differ" ] || skip "the clients are not built here"
host() { timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --executor nccl "$@"; }

# Two ranks make different calls. Both report this before the time-out, do not launch the call, and
# exit with MISMATCH's status.
for what in count type op kind root last; do
	DFSHIM_HOST_DEVICES=2 DFSHIM_TIMEOUT_MS=60000 host -- "$C/differ" $what $what >"$T/$what" 2>&1 && fail "$what: status 0: $(cat "$T/$what")"
	grep -q 'MISMATCH. It is not launched$' "$T/$what" && grep -q '^MISMATCH: ' "$T/$what" && grep -q '^21 21$' "$T/$what" ||
		fail "$what: $(cat "$T/$what")"
	[ "$(grep -c '^MISMATCH: ' "$T/$what")" = 1 ] || fail "$what: told more than once: $(cat "$T/$what")"
done
# Between nodes the call is launched. It is compared when it has not ended for a while, long before
# the time-out too.
for what in count kind last; do
	DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_HOST_DEVICES=2 DFSHIM_TIMEOUT_MS=600000 host -- "$C/differ" $what $what >"$T/$what" 2>&1 &&
		fail "$what, two nodes: status 0: $(cat "$T/$what")"
	grep -q '^MISMATCH: ' "$T/$what" && grep -q '^21 21$' "$T/$what" || fail "$what, two nodes: $(cat "$T/$what")"
done
# Without an agreed order a different order of issue is such a mismatch too.
DFSHIM_TIMEOUT_MS=60000 host -- "$C/disorder" --ranks 3 --procs 3 --colls 4 --comms 1 --iters 40 --seed 5 --timeout 60 >"$T/issue" 2>&1 &&
	fail "another order in one communicator: status 0"
grep -q '^MISMATCH: ' "$T/issue" || fail "another order in one communicator: $(cat "$T/issue")"

# Rank 0 receives a message that rank 1 never sends. Its launch, which also has the messages to rank
# 1, waits for the connection. The device is not accused.
printf '%s\n' "ranks 2" cold "comm A 0 1" "0: { ; send A 1 s; send A 1 s; recv A 1 s; } ; dsync" "1: { ; recv A 0 s; recv A 0 s; } ; dsync" >"$T/script"
DFSHIM_TIMEOUT_MS=$((1500 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort host -- "$B/tests/deadlock/interpreter/script" --timeout $((80 * SLOW)) "$T/script" >"$T/out" 2>&1 &&
	fail "a message that is never sent: status 0"
grep -q '^ORDER: sends and receives wait for one another: cycle ' "$T/out" || fail "a message that is never sent: $(cat "$T/out")"

export DFSHIM_NCCL_ORDER=agree
# agree ARGS...: runs the client `disorder`, which must complete with the right values.
agree() { host -- "$C/disorder" "$@" --seed "$SEED" --timeout 60 >"$T/agree" 2>&1 || fail "agree: disorder $*: $(cat "$T/agree")"; }
for procs in 1 2; do
	agree --ranks 4 --procs $procs --colls 6 --comms 1 --iters $((60 / SLOW)) --min 256 --max 65536
	agree --ranks 4 --procs $procs --colls 6 --comms 2 --iters $((30 / SLOW)) --mix --streams 3 --sync --warmup
	agree --ranks 2 --procs $procs --colls 4 --comms 1 --iters $((60 / SLOW)) --wait sync
done
agree --ranks 3 --colls 4 --comms 1 --iters $((20 / SLOW)) --single-thread
for c in "collcheck --ranks 2" p2pcheck splitcheck nbcheck apicheck; do
	# shellcheck disable=SC2086 # words
	host -- "$C/"$c --timeout 60 >"$T/client" 2>&1 || fail "agree: $c: $(cat "$T/client")"
done
# Operations that never match are reported as by the daemon.
DFSHIM_HOST_DEVICES=2 DFSHIM_TIMEOUT_MS=$((2000 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort host -- "$C/differ" count count >"$T/count" 2>&1 && fail "agree: count: status 0"
grep -q '^MISMATCH: ' "$T/count" || fail "agree: count: $(cat "$T/count")"

# A message waits for the receive of an earlier one that NCCL has buffered. The program hangs if the
# receiver waits between the two receives, and dfshim reports that.
printf '%s\n' "ranks 2" "comm A 0 1" "0: send A 1 s n=256; ssync s; send A 1 s n=300; ssync s" \
	"1: recv A 0 s n=300; ssync s; recv A 0 s n=256; ssync s" >"$T/script"
DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort host -- "$B/tests/deadlock/interpreter/script" --timeout $((80 * SLOW)) "$T/script" >"$T/out" 2>&1 &&
	fail "messages in two orders: status 0"
grep -q '^ORDER: A [a-z 0-9<>#-]* cannot start: an earlier message to the same rank was sent and is not received yet' "$T/out" ||
	fail "messages in two orders: $(cat "$T/out")"

# If a communicator is aborted or a peer dies, the communicator's operations end.
for case in abort abort-sync leave busy; do
	for how in "--ranks 3" "--procs 3"; do
		: >"$T/err"
		# shellcheck disable=SC2086 # words
		RUDE_UNTIL=$T/err RUDE_CASE=$case host -- "$C/rude" $how --timeout 60 >"$T/out" 2>"$T/err" || fail "agree: rude $case $how: $(cat "$T/out" "$T/err")"
	done
done
# Process 0 contains rank 0, which decides the order.
for proc in 0 1; do
	SURVIVOR_HOW=kill SURVIVOR_MADE=1 SURVIVOR_PROC=$proc SURVIVOR_US=200000 SURVIVOR_ROUNDS=100000 host --grace "$(seconds 200)" -n 3 -- "$C/survivor" --ranks 6 \
		--timeout $((40 * SLOW)) >"$T/out" 2>"$T/err"
	[ "$(grep -c 'has died: its communicators end' "$T/err")" -ge 2 ] || fail "agree: the death of process $proc: $(cat "$T/err")"
done

# On several nodes the ranks do not agree on an order, and dfshim reports this.
DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_NET=tcp host -n 2 -- "$C/disorder" --colls 2 --comms 1 --iters 5 --inorder --timeout 60 >"$T/nodes" 2>&1 || fail "two nodes: $(cat "$T/nodes")"
grep -q 'are not all on one node' "$T/nodes" || fail "two nodes: nothing said: $(cat "$T/nodes")"
# Ranks with different values of DFSHIM_NCCL_ORDER cannot form a communicator.
for r in 0 1; do
	DFSHIM_NCCL_ORDER=$([ $r = 0 ] && echo agree || echo issue) DFSHIM_EXECUTOR=nccl RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 \
		MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 12000)) LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" \
		DFSHIM_BACKEND=host timeout -k 5 30 "$C/disorder" --iters 1 --timeout 20 >"$T/out.$r" 2>&1 &
done
wait
grep -q "cannot join the communicator" "$T"/out.? || fail "different orders: $(cat "$T"/out.?)"
exit 0
