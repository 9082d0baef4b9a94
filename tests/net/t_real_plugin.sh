#!/bin/bash
# Description: emulated nodes over a real network plugin (NCCL_NET_PLUGIN=FILE make check-plugins):
# collectives, sends, disorder, many collectives, processes that are stopped and killed.
# Limit: 600 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/real.sh"
"$B/dfshim" net 2>/dev/null | sed -n '/^Network plugins/,/^Networks/p' | sed '$d'

# job NODE_DEVICES CLIENT ARGS...: runs the job, which must succeed over the plugin.
job() {
	echo "$* (nodes of $1)"
	rm -f "$T/stats"
	(export DFSHIM_HOST_NODE_DEVICES="$1" && host "${@:2}") >"$T/out" 2>&1 || fail "$*: $(tail -n 30 "$T/out")"
	over "$T/out"
}
job 2 collcheck --ranks 4 --procs 4 --sample 100 --seed "$SEED"
job 1 collcheck --ranks 3 --sample 40 --seed "$SEED"
job 2 p2pcheck --ranks 4 --procs 4 --seed "$SEED"
job 1 disorder --ranks 2 --procs 2 --iters 100 --seed "$SEED"
job 2 disorder --ranks 4 --iters 20 --seed "$SEED"
job 1 disorder --ranks 2 --procs 2 --iters 3 --colls 512 --seed "$SEED"
job 2 disorder --ranks 4 --procs 4 --iters 3 --colls 256 --seed "$SEED"
for ((i = 0; i < 5; i++)); do
	job 1 disorder --ranks 3 --procs 3 --iters 2 --colls 4 --seed "$SEED$i" >"$T/ends" || { cat "$T/ends" && exit 1; }
done
echo "5 jobs ended well"

# In the middle of a job one of two processes is stopped for longer than the time-out, or killed.
begin() {
	rm -f "$T/stats"
	: >"$T/out" # removes the last job's output
	(export DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_NET_TIMEOUT_MS=3000 && host disorder --ranks 2 --procs 2 --iters 3000 --colls 4 --seed "$SEED") \
		>"$T/out" 2>&1 &
	job=$!
	until grep -q 'over plugin$' "$T/out"; do
		kill -0 $job 2>/dev/null || fail "the job ended: $(tail -n 20 "$T/out")"
		sleep 0.05
	done
	p=$(rank_process)
}
begin
kill -STOP "$p" || fail "no process to stop"
sleep 6
kill -CONT "$p"
wait $job || fail "after SIGSTOP for 6 s: $(tail -n 20 "$T/out")"
echo "a process stopped for 6 s, with a time-out of 3 s"
over "$T/out"
begin
kill -KILL "$p" || fail "no process to kill"
start=$SECONDS
wait $job && fail "a job with a process that was killed ended well"
echo "a process killed: the others ended after $((SECONDS - start)) s"
[ $((SECONDS - start)) -le 20 ] || fail "that is too late: $(tail -n 20 "$T/out")"
exit 0
