#!/bin/bash
# Description: a function of a network plugin that does not return: NET_STALL names it, live and in
# the traces, and the job ends; for one that takes long the job waits.
# Limit: 200 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/plugin.sh"
plugin 12
export DFSHIM_NET=plugin DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_TRACE=$T/traces DFSHIM_TIMEOUT_MS=$((3000 * SLOW))

# held CALL PROCS: the job ends within its bound, with the verdict.
held() {
	local from rc=0 s
	rm -rf "$T/traces"
	from=$(date +%s)
	FAKE_PLUGIN_HOLD=$1 DFSHIM_TIMEOUT_ACTION=abort timeout -k 5 $((60 * SLOW)) "$B/dfshim" run --host -- "$C/disorder" \
		--ranks 2 --procs "$2" --iters 100000 --colls 4 --seed "$SEED" --timeout $((60 * SLOW)) >"$T/out" 2>&1 || rc=$?
	s=$(($(date +%s) - from))
	[ $rc != 0 ] && [ $s -lt $((25 * SLOW)) ] || fail "$1: status $rc after $s s: $(tail -n 20 "$T/out")"
	grep -Eq "^NET_STALL: the network plugin Fake has not returned from ${1%%:*}\(\) for [0-9.]+ s on r[01](-r1)?, which called it for its link to r[01]" "$T/out" ||
		fail "$1: no verdict: $(grep -v '^[a-z0-9-]*:[0-9]*:' "$T/out" | tail -n 20)"
	"$B/dfshim" check "$T/traces" >"$T/checked"
	[ $? = 32 ] && grep -Eq "^NET_STALL: the network plugin Fake has not returned from ${1%%:*}\(\) for [0-9.]+ s on r[01]" "$T/checked" ||
		fail "$1: the traces say $(cat "$T/checked")"
	echo "$1: $s s: $(head -n 1 "$T/checked")"
}
for try in connect:1 isend:100 irecv:100 test:300; do
	held $try 2
done
held isend:100 1

# This call returns late. The watchdog reports it after half of the time-out at the latest. Only one
# process is held: two holds in a row would exceed the time-out.
rm -rf "$T/traces"
FAKE_PLUGIN_HELD=$T/held FAKE_PLUGIN_HOLD=isend:100:$((4000 * SLOW)) DFSHIM_TIMEOUT_MS=$((7000 * SLOW)) job 1 disorder --ranks 2 --procs 2 --iters 30 --colls 4 --seed "$SEED"
says "the network plugin Fake has not returned from isend() for "
silent "NET_STALL"
"$B/dfshim" check "$T/traces" >"$T/checked" || fail "the traces say $(cat "$T/checked")"
exit 0
