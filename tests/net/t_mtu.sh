#!/bin/bash
# Description: the MTU of two nodes is larger than the network between them allows: NET_STALL on
# both sides, with the reason.
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 2 1
. "$SRC/tests/net/hosts.sh"
export DFSHIM_PORTS=5000-5009 DFSHIM_NET_TIMEOUT_MS=3000 DFSHIM_TRACE=$T/traces

# The network passes small packets only: connections can be made, but large packets are lost.
for i in 0 1; do
	ip link set "n$i.0" mtu 9000
	on $i ip link set eth0 mtu 9000
done
ip link set lan0 mtu 9000
net_drop_larger 1 0 1514
start_hosts 2 disorder --iters 100000000 --colls 4 --max 262144 --seed "$SEED"
said '^NET_STALL: '
net_heal 1 0
end_hosts && fail "the job ended well"
for i in 0 1; do
	grep -q "^NET_STALL: nothing has been heard of rank $((1 - i)) " "$T/out$i" || fail "node $i has no verdict: $(cat "$T/out$i")"
	[ "${rcs[i]}" = 3 ] || fail "node $i ended with ${rcs[i]}: $(cat "$T/out$i")"
done
grep -q 'small packets arrive, large ones do not: set the MTU of both' "$T/out0" || fail "the MTU is not named: $(cat "$T/out0")"
exit 0
