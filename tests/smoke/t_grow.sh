#!/bin/bash
# Description: ncclCommGrow under dfshim, on both executors, with threads, processes and nodes: a grown communicator ends in opposite orders, bad arguments and a missing id are refused, and a rank that does not call is named.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
# on EXECUTOR ARGS...
on() {
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --executor "$1" "${@:2}" >"$T/out" 2>&1
}
for e in daemon nccl; do
	for how in "--ranks 3" "--ranks 5" "--procs 4"; do
		# shellcheck disable=SC2086 # words
		CALLS=grow on $e --timeout $((60 * SLOW)) -- "$C/hostcalls" $how && grep -q '^did grow' "$T/out" || fail "$e $how: $(cat "$T/out")"
	done
	CALLS=grow DFSHIM_HOST_NODE_DEVICES=2 DFSHIM_NET=tcp on $e --timeout $((60 * SLOW)) -- "$C/hostcalls" --procs 4 && grep -q '^did grow' "$T/out" ||
		fail "$e, two nodes: $(cat "$T/out")"
	for GROW in 1 alone; do
		export GROW
		HANGS=none on $e --timeout $((60 * SLOW)) -n 4 -- "$C/hangs" || fail "$e, GROW=$GROW: $(cat "$T/out")"
		HANGS=mismatch on $e --timeout $((3 * SLOW)) -n 4 -- "$C/hangs"
		rc=$?
		[ $rc = 21 ] && grep -q '^MISMATCH: ' "$T/out" || fail "$e, GROW=$GROW, mismatch: status $rc: $(cat "$T/out")"
	done
	unset GROW
	GROW=1 HANGS=missing on $e --timeout $((3 * SLOW)) -n 4 -- "$C/hangs"
	rc=$?
	[ $rc = 22 ] && grep -q '^INIT: rank 3 of 4 has not called ncclCommGrow; ' "$T/out" || fail "$e, missing: status $rc: $(cat "$T/out")"
	GROW=no-id HANGS=none on $e --timeout $((60 * SLOW)) -n 4 -- "$C/hangs"
	rc=$?
	[ $rc != 0 ] && grep -q 'ncclCommGrow : no rank has made an id (ncclCommGetUniqueId)' "$T/out" || fail "$e, no id: status $rc: $(cat "$T/out")"
	echo "$e"
done
exit 0
