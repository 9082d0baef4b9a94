#!/bin/bash
# Description: emulated nodes over verbs, on the tests' libibverbs: collectives, sends, disorder.
#
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
export DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info

# job NODE_DEVICES CLIENT ARGS...: runs the job, which must succeed. Its output is in $T/out.
job() {
	rm -f "$T/stats"
	(DFSHIM_HOST_NODE_DEVICES=$1 host "${@:2}") >"$T/out" 2>&1 || {
		tail -n 30 "$T/out"
		fail "$*"
	}
}
over_verbs() {
	grep -q 'over verbs$' "$T/out" || fail "no word of verbs: $(grep -i 'verbs\|RDMA' "$T/out")"
	! grep -q 'over tcp$' "$T/out" || fail "sockets were used: $(grep 'over tcp' "$T/out")"
	[ "$(counted net_bytes_sent)" -gt 0 ] || fail "nothing went over the network: $(cat "$T/stats")"
}

for net in verbs auto; do
	export DFSHIM_NET=$net
	job 1 collcheck --ranks 3 --sample $((60 / SLOW)) --seed "$SEED"
	over_verbs
	job 2 collcheck --ranks 4 --procs 4 --sample $((60 / SLOW)) --seed "$SEED"
	over_verbs
	[ "$(counted net_faults)$(counted net_resent)" = 00 ] || fail "faults where there are none: $(cat "$T/stats")"
	job 2 p2pcheck --ranks 4 --seed "$SEED"
	over_verbs
	job 1 disorder --ranks 2 --iters $((20 / SLOW)) --seed "$SEED"
	over_verbs
done

# Only connectors have slots: any number of collectives share the queue pairs.
job 1 disorder --ranks 2 --procs 2 --iters 3 --colls $((256 / SLOW)) --seed "$SEED"
over_verbs
exit 0
