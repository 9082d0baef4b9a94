#!/bin/bash
# Description: DFSHIM_NET_CONGESTION is what the connections between nodes have; what the kernel refuses is told, and the job goes on.
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 2 1
. "$SRC/tests/net/hosts.sh"
system=$(on 0 cat /proc/sys/net/ipv4/tcp_congestion_control)
read -ra allowed < <(on 0 cat /proc/sys/net/ipv4/tcp_allowed_congestion_control)
for other in "${allowed[@]}"; do
	[ "$other" = "$system" ] || break
done
[ "$other" != "$system" ] || echo "only $system is allowed here: that another one is used is not shown"
DFSHIM_NET_CONGESTION=$other start_hosts 2 disorder --iters 100000000 --colls 2 --max 65536 --seed "$SEED"
until on 0 ss -Htin >"$T/ss" && grep -q 'bytes_acked:[0-9]\{6,\}' "$T/ss"; do sleep 0.05; done
kill "${pid[@]}"
end_hosts
grep 'bytes_acked:[0-9]\{6,\}' "$T/ss" | grep -vw "$other" && fail "a connection for data has not $other: $(cat "$T/ss")"
DFSHIM_NET_CONGESTION=nosuch hosts 2 disorder --iters 50 --colls 2 --max 65536 --seed "$SEED"
grep -q "DFSHIM_NET_CONGESTION=nosuch: this process may not use it here (allowed are: .*$system" "$T/out0" || fail "not told: $(cat "$T/out0")"
exit 0
