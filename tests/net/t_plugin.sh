#!/bin/bash
# Description: emulated nodes over the tests' network plugin, for each version of the interface:
# collectives, sends, disorder; behaviour that a plugin may show (no connection or request at first,
# requests that finish in any order, short messages).
#
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/plugin.sh"

# over VERSION: all data used the plugin of this version, and no connection broke.
over() {
	says "over plugin"
	silent "over tcp"
	says "network plugin Fake (v$1, $T/libfake$1.so)"
	[ "$(figure bytes)" -gt "$(counted net_bytes_sent)" ] && [ "$(counted net_bytes_sent)" -gt 0 ] ||
		fail "v$1: not all went over the plugin: $(cat "$T/plugin" "$T/stats")"
	[ "$(counted net_faults)$(counted net_resent)" = 00 ] || fail "faults where there are none: $(cat "$T/stats")"
}

export DFSHIM_NET=plugin
for v in 12 11 10 9 8 7; do
	plugin $v
	FAKE_PLUGIN='' job 1 collcheck --ranks 3 --sample $((40 / SLOW)) --seed "$SEED"
	over $v
	FAKE_PLUGIN=nulls,late,small job 2 collcheck --ranks 4 --procs 4 --sample $((40 / SLOW)) --seed "$SEED"
	over $v
	FAKE_PLUGIN=nulls,late,null_mr job 2 p2pcheck --ranks 4 --seed "$SEED"
	over $v
done

# As in NCCL, a plugin has precedence over everything else.
unset DFSHIM_NET
plugin 12
export FAKE_PLUGIN=nulls,late
job 1 disorder --ranks 2 --iters $((20 / SLOW)) --seed "$SEED"
over 12
NCCL_NET=fake job 1 collcheck --ranks 2 --sample 5 --seed "$SEED"
over 12
NCCL_NET=Socket job 1 collcheck --ranks 2 --sample 5 --seed "$SEED"
says "over tcp"

# No thread polls for messages while no operation is in progress: a sender rings first.
IDLE_SECONDS=1.5 job 1 idle --ranks 4
over 12
v=$(sed -n 's/^idle: process.*: \([0-9.]*\) %$/\1/p' "$T/out")
echo "$v % of a processor while idle"
awk -v v="$v" 'BEGIN {exit !(v != "" && v < 25)}' || fail "$v % of a processor while idle"

# exit() ends the plugin: dfshim does not call it afterwards, and has sent everything before.
for ((i = 0; i < 3; i++)); do
	FAKE_PLUGIN=lingers job 1 disorder --ranks 3 --procs 3 --iters 3 --seed "$SEED$i"
	over 12
done

# Receives belong to no connector: any number of collectives share the connections of one.
job 1 disorder --ranks 2 --procs 2 --iters 3 --colls $((256 / SLOW)) --seed "$SEED"
over 12
[ "$(figure connections)" = 4 ] || fail "connections: $(cat "$T/plugin")"
exit 0
