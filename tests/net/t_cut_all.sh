#!/bin/bash
# Description: all nodes lose each other at the same time, during large operations: each process
# reports it once, and ends.
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 3 1
. "$SRC/tests/net/hosts.sh"
# With small slots most slices go by reference, so a communicator that ends has slices to withdraw.
export DFSHIM_PORTS=5000-5009 DFSHIM_NET_TIMEOUT_MS=2000 DFSHIM_SLOT_KB=16 DFSHIM_SLOTS=2 NCCL_PROTO=Simple
start_hosts 3 disorder --iters 100000000 --colls 4 --mix --max 4194304 --seed "$SEED"
# Wait until all nodes have received data of operations, for as long as that takes.
for i in 0 1 2; do
	until [ "$(on $i ip -s -j link show eth0 | jq '.[0].stats64.rx.bytes')" -gt 20000000 ]; do sleep 0.05; done
done
for i in 0 1 2; do net_cut $i; done
for ((n = 0; n < 1200; n++)); do
	[ "$(grep -l '^NET_STALL: nothing has been heard of rank' "$T"/out? | wc -l)" = 3 ] && break
	sleep 0.05
done
for i in 0 1 2; do net_heal $i; done
end_hosts && fail "a job without a network ended well"
for i in 0 1 2; do
	[ "${rcs[i]}" = 3 ] || fail "node $i ended with ${rcs[i]}: $(cat "$T/out$i")"
	grep -q '^NET_STALL: nothing has been heard of rank' "$T/out$i" || fail "node $i has no verdict: $(cat "$T/out$i")"
done
exit 0
