#!/bin/bash
# Description: a network that works partly or badly: packets lost in one direction, half-open
# connections, a closed port, a slow link; and the verdicts of the traces.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 2 1
. "$SRC/tests/net/hosts.sh"
export DFSHIM_PORTS=5000-5009 DFSHIM_STATS=$T/stats

# stalled WHAT: both nodes end with the verdict, and their traces give the same one.
stalled() {
	local i
	end_hosts && fail "$1: a job without a network ended well"
	for i in 0 1; do
		grep -Eq "^NET_STALL: (nothing has been heard of rank $((1 - i)) |the link between r[01] and r[01] has been broken for )" "$T/out$i" || fail "$1: node $i has no verdict: $(cat "$T/out$i")"
		! grep -Eq '^(MISSING|CRASH|UNKNOWN):' "$T/out$i" || fail "$1: node $i says something else, too: $(cat "$T/out$i")"
		[ "${rcs[i]}" = 3 ] || fail "$1: node $i ended with ${rcs[i]}: $(cat "$T/out$i")"
	done
	"$B/dfshim" check "$T/traces" >"$T/checked"
	[ $? = 32 ] && grep -Eq '^NET_STALL: r[01] has received nothing from r[01] for [0-9.]+ s over the network: the link from device 0 \(10\.77\.0\.[12]:50[0-9]+; eth0, up\) to device 0 there' "$T/checked" ||
		fail "$1: the traces say $(cat "$T/checked")"
	grep -q '^Note: r[01] reports about its link to r[01]: the link from' "$T/checked" || fail "$1: one end is missing: $(cat "$T/checked")"
}

# A connection is closed on one end, and the other end is not notified.
start_hosts 2 disorder --iters $((1000 / SLOW)) --colls 4 --seed "$SEED"
data_port
# With the address, because the other node's control plane may use a port of the same number.
data_at=$(ip4 "$at"):$port
for side in 0 1; do
	sleep 0.3
	net_cut 0
	net_cut 1
	on $side ss -K state established "( src $data_at or dst $data_at )" >/dev/null 2>&1
	net_heal 0
	net_heal 1
done
end_hosts || fail "half-open: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"

# A slow link is no fault.
for i in 0 1; do on $i tc qdisc add dev eth0 root tbf rate 20mbit burst 32kb latency 200ms; done
start_hosts 2 disorder --iters $((24 / SLOW)) --colls 4 --seed "$SEED"
end_hosts || fail "slow link: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
for i in 0 1; do on $i tc qdisc del dev eth0 root; done
! grep -q '"net_lost": [1-9]' "$T/stats" || fail "a slow link was given up: $(cat "$T/stats")"

# One direction is lost for longer than the time-out: both sides report it, also the one that still
# receives data.
export DFSHIM_NET_TIMEOUT_MS=3000 DFSHIM_TRACE=$T/traces
for side in 0 1; do
	rm -rf "$T/traces"
	start_hosts 2 disorder --iters 100000000 --colls 4 --seed "$SEED"
	data_port
	sleep 0.3
	net_cut $side
	said '^NET_STALL: '
	net_heal $side
	stalled "lost in one direction, to node $side"
done

# The port is blocked: existing connections are reset, and no new one succeeds.
rm -rf "$T/traces"
start_hosts 2 disorder --iters 100000000 --colls 4 --seed "$SEED"
data_port
net_drop "$at" 0 "$port"
cut_data
said '^NET_STALL: '
net_heal "$at"
stalled "port closed"
grep -q ":$port)" "$T/out$((1 - at))" || fail "the port is not named: $(cat "$T/out$((1 - at))")"
exit 0
