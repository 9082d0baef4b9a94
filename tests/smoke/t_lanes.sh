#!/bin/bash
# Description: NCCL's own kernels on lanes: the disordered job completes where it hangs by NCCL's rules; aborts, errors and refusals.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
# lanes CLIENT ARGS...: the client must succeed on lanes.
lanes() {
	local c=$1 rc
	shift
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --executor nccl -- "$C/$c" "$@" --timeout "${QUIET:-60}"
	rc=$?
	[ $rc = 0 ] || fail "on lanes: $c $*: status $rc"
}

# Two communicators in opposite orders, with a device synchronisation after each operation; with
# threads and processes.
lanes disorder --ranks 2 --colls 2 --comms 2 --iters 30 --sync --seed "$SEED"
lanes disorder --ranks 2 --procs 2 --colls 2 --comms 2 --iters 30 --sync --seed "$SEED"
# The control: by NCCL's rules both jobs hang, with and without the synchronisations.
for sync in "" --sync; do
	# shellcheck disable=SC2086 # empty or one word
	control --ranks 2 --colls 2 --comms 2 --iters 30 $sync --seed 5
	[[ " 0 124 " != *" $rc "* ]] || fail "by NCCL's rules: status $rc: $(tail -5 "$T/verdict")"
	# shellcheck disable=SC2086
	lanes disorder --ranks 2 --colls 2 --comms 2 --iters 30 $sync --seed 5
done
lanes disorder --ranks 4 --colls 4 --iters $((40 / SLOW)) --mix --streams 3 --seed "$SEED"
lanes disorder --ranks 4 --procs 2 --colls 4 --iters $((20 / SLOW)) --mix --wait sync --seed "$SEED"
lanes disorder --ranks 3 --colls 4 --iters 20 --single-thread --seed "$SEED"

# NCCL executes the operations, so the daemon has no blocks.
DFSHIM_STATS=$T/stats lanes disorder --ranks 2 --colls 2 --iters 5 --seed "$SEED"
grep -q '"blocks": 0, "operations": 0,' "$T/stats" || fail "not on lanes: $(cat "$T/stats")"

# An operation on an idle stream costs two calls of the driver: a query of the stream, and a write of
# the operation's end on the lane.
${CC:-gcc} -shared -fPIC -O2 -I"$SRC" -I"$B/gen" -o "$T/counted.so" "$SRC/tests/bench/counted.c" -ldl || fail "the library that counts"
COUNTED=$T/counted LATENCY_ROUNDS=1 LATENCY_MAX=8 DFSHIM_EXECUTOR=nccl DFSHIM_BACKEND=host \
	LD_PRELOAD="$SAN_RUNTIME$T/counted.so $B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" \
	timeout -k 5 "${LIMIT:-60}" "$C/latency" --ranks 2 --procs 2 --timeout 60 >"$T/out" 2>&1 || fail "counted: $(cat "$T/out")"
awk '{ launches += $1; calls += $2 + $3 + $4 + $5; writes += $2 } END { exit !(launches && calls <= 2 * launches && writes == launches) }' "$T/counted" ||
	fail "calls of the driver for each launch: $(cat "$T/counted")"

# Operators, messages, child communicators, non-blocking communicators.
lanes collcheck --ranks 2
lanes p2pcheck
lanes splitcheck
lanes nbcheck
lanes apicheck

# If a communicator is aborted or a peer dies, the communicator's operations end.
for case in abort abort-sync leave busy; do
	for how in "--ranks 3" "--procs 3"; do
		: >"$T/err"
		# shellcheck disable=SC2086 # words
		RUDE_UNTIL=$T/err RUDE_CASE=$case lanes rude $how >"$T/out" 2>"$T/err"
	done
done
# Memory runs out in the middle of a launch of a graph.
DFSHIM_HOST_FAULT=graphs RUDE_CASE=lost-graph lanes rude --ranks 3
# An abort while NCCL connects two ranks. NCCL must not free the communicator while a thread is in
# its call.
for how in "--ranks 3" "--procs 3"; do
	# shellcheck disable=SC2086 # words
	NCCL_DEBUG=WARN RUDE_CASE=abort-message lanes rude $how >"$T/out" 2>&1
	grep "freed under a thread" "$T/out" && fail "abort-message $how: $(cat "$T/out")"
done
# A call of NCCL does not return although its communicator is aborted. The memory that the call uses
# is not freed.
${CC:-gcc} -shared -fPIC -o "$T/stays.so" "$SRC/tests/smoke/stays.c" -ldl || fail "the library that stays"
GLIBC_TUNABLES=glibc.malloc.perturb=165:glibc.malloc.tcache_count=0 DFSHIM_EXECUTOR=nccl LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $T/stays.so $B/libdfnccl.so" DFSHIM_BACKEND=host \
	RUDE_CASE=abort-message RUDE_REST_MS=6000 timeout -k 5 "${LIMIT:-60}" "$C/rude" --ranks 3 --timeout $((40 * SLOW)) >"$T/out" 2>&1 || fail "a call that stays: $(cat "$T/out")"
grep -q 'does not return: its memory stays' "$T/out" || fail "a call that stays: not said: $(cat "$T/out")"
[ "$(sed -n 's/.*communicator \([0-9a-f]*\), rank [012]: NCCL refuses an operation.*/\1/p' "$T/out" | sort | uniq -c | awk '{ print $1 }')" = 3 ] ||
	fail "a call that stays: its communicator: $(cat "$T/out")"
SURVIVOR_HOW=kill SURVIVOR_MADE=1 SURVIVOR_PROC=1 SURVIVOR_US=200000 SURVIVOR_ROUNDS=100000 timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host \
	--executor nccl --grace "$(seconds 200)" -n 3 -- "$C/survivor" --ranks 6 --timeout $((40 * SLOW)) >"$T/out" 2>"$T/err"
[ "$(grep -c 'rank [23] .* has died: its communicators end' "$T/err")" = 2 ] || fail "a death: $(cat "$T/err")"

# A rank dies while NCCL creates the communicator. The creation fails on the other ranks, and no
# rank waits.
${CC:-gcc} -shared -fPIC -o "$T/dies.so" "$SRC/tests/smoke/dies.c" -ldl || fail "the library that dies"
for r in 0 1 2; do
	DIES=1 DFSHIM_EXECUTOR=nccl RANK=$r LOCAL_RANK=$r WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((25000 + $$ % 5000)) \
		LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $T/dies.so $B/libdfnccl.so" DFSHIM_BACKEND=host \
		timeout -k 5 "${LIMIT:-60}" "$C/disorder" --iters 1 --timeout 100 >"$T/died.$r" 2>&1 &
done
wait
for r in 0 2; do
	grep -q "NCCL's communicator is not made: the process of another rank has ended" "$T/died.$r" && grep -q 'which ends with ncclRemoteError' "$T/died.$r" ||
		fail "a death in the set-up: rank $r: $(cat "$T/died.$r")"
done

# Refusals name the reason.
DFSHIM_EXECUTOR=nccl LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 60 "$C/disorder" --ranks 2 --iters 1 >"$T/out" 2>&1 && fail "without NCCL"
NCCL_DEBUG=WARN DFSHIM_EXECUTOR=nccl LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 60 "$C/disorder" --ranks 2 --iters 1 2>&1 |
	grep -q "libdfnccl.so is not preloaded" || fail "without NCCL: no reason given"
for with in "--rules nccl" "--mode trace"; do
	# shellcheck disable=SC2086 # words
	"$B/dfshim" run --host --executor nccl $with -- true >"$T/out" 2>&1
	[ $? = 2 ] || fail "$with: not refused"
done
# Ranks with different executors cannot form a communicator.
for r in 0 1; do
	DFSHIM_EXECUTOR=$([ $r = 0 ] && echo nccl || echo daemon) RANK=$r LOCAL_RANK=$r WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
		MASTER_PORT=$((20000 + $$ % 10000)) LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" DFSHIM_BACKEND=host \
		timeout -k 5 30 "$C/disorder" --iters 1 --timeout 20 >"$T/out.$r" 2>&1 &
done
wait
grep -q "cannot join the communicator" "$T"/out.? || fail "different executors: $(cat "$T"/out.?)"
exit 0
