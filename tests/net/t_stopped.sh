#!/bin/bash
# Description: a process that is stopped (SIGSTOP) for longer than the time-out is not dead, over
# verbs and over a plugin; a plugin that is being started meanwhile has not failed: right results,
# no process is given up.
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
. "$SRC/tests/net/plugin.sh"
export DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_NET_TIMEOUT_MS=2000 DFSHIM_TIMEOUT_MS=60000

# stopped WHAT: runs a job over WHAT, and stops one of its processes for 4 s.
stopped() {
	local p job
	rm -f "$T/stats"
	(host disorder --ranks 2 --procs 2 --iters $((600 / SLOW)) --colls 4 --seed "$SEED") >"$T/out" 2>&1 &
	job=$!
	until grep -q "over $1\$" "$T/out"; do
		kill -0 $job 2>/dev/null || fail "$1: the job ended: $(tail -n 20 "$T/out")"
		sleep 0.05
	done
	p=$(rank_process)
	kill -STOP "$p" || fail "$1: no process to stop"
	sleep 4
	kill -0 $job 2>/dev/null || fail "$1: the job did not wait: $(tail -n 20 "$T/out")"
	kill -CONT "$p"
	wait $job || fail "$1: after SIGSTOP for 4 s: $(tail -n 20 "$T/out")"
	[ "$(counted net_lost)" = 0 ] || fail "$1: somebody was given up: $(cat "$T/stats")"
	! grep -qE 'NET_STALL|over tcp$' "$T/out" || fail "$1: $(grep -E 'NET_STALL|over tcp$' "$T/out")"
	echo "$1: faults $(counted net_faults), healed $(counted net_healed), slices sent again $(counted net_resent)"
}
NCCL_IB_HCA=railx FAKE_VERBS_RAILS=2 DFSHIM_NET=verbs NCCL_NET_PLUGIN=none stopped verbs
plugin 11
export DFSHIM_NET=plugin
stopped plugin

# A plugin has 10 s to start. Time in which the process is stopped does not count.
(FAKE_PLUGIN=stops host collcheck --ranks 2 --sample 5 --seed "$SEED") >"$T/out" 2>&1 &
job=$!
until [ -f "$FAKE_PLUGIN_DIR/stopped" ]; do
	kill -0 $job 2>/dev/null || fail "the job ended: $(tail -n 20 "$T/out")"
	sleep 0.05
done
sleep 11
kill -CONT "$(cat "$FAKE_PLUGIN_DIR/stopped")"
wait $job || fail "stopped while a plugin started: $(tail -n 20 "$T/out")"
says "over plugin"
silent "did not return"
exit 0
