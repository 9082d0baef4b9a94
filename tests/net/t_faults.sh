#!/bin/bash
# Description: network faults while jobs run on two machines: connections are reset, the link is cut
# for less and for more than the time-out, SIGSTOP, kill -9.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 2 1
. "$SRC/tests/net/hosts.sh"
export DFSHIM_PORTS=5000-5009
counted() { awk -v k="\"$1\":" '{ for (i = 1; i < NF; i++) if ($i == k) sum += $(i + 1) } END { print sum + 0 }' "$T/stats"; }

# Connections are reset again and again: results are right, and only the log shows it. With small
# slots most slices go by reference.
export DFSHIM_STATS=$T/stats DFSHIM_NET_TIMEOUT_MS=20000
resets() { # DISORDER_OPTIONS
	local cuts=0
	rm -f "$T/stats"
	start_hosts 2 disorder --iters $((1500 / SLOW)) --colls 4 --max 262144 --seed "$SEED" "$@"
	data_port
	while kill -0 "${pid[0]}" 2>/dev/null && [ $cuts -lt 20 ]; do
		cut_data
		cuts=$((cuts + 1))
		sleep 0.1
	done
	end_hosts || fail "after $cuts resets: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
	[ "$(counted net_healed)" -ge 2 ] || fail "of $cuts resets none was healed: $(cat "$T/stats")"
	grep -q 'was broken (.*), and is back after' "$T"/out? || fail "no word of it: $(cat "$T"/out?)"
	echo "resets: $cuts, healed $(counted net_healed), slices by reference $(counted by_reference), sent again $(counted net_resent), dropped $(counted net_dropped)"
}
resets
DFSHIM_SLOT_KB=16 DFSHIM_SLOTS=2 NCCL_PROTO=Simple resets --mix
[ "$(counted by_reference)" -gt 0 ] || fail "no slice went by reference: $(cat "$T/stats")"

# The link is cut for less than the time-out. TCP must retry at least once a second. On a busy
# machine this script may look much later than after 4 s: neither the job nor its connections have
# ended then.
DFSHIM_NET_TIMEOUT_MS=240000 start_hosts 2 disorder --iters 100000000 --until "$T/healed" --colls 4 --seed "$SEED"
data_port
net_cut 1
sleep 4
if python3 -c 'import socket; socket.socket().setsockopt(socket.IPPROTO_TCP, 44, 1000)' 2>/dev/null; then
	ms=$(on "$at" ss -tinH state established "sport = :$port" | grep -o ' rto:[0-9]*' | cut -d: -f2 | sort -n | tail -n 1)
	[ "${ms:-99999}" -le 1000 ] || fail "a cut link is tried every $ms ms: $(on "$at" ss -tin "sport = :$port")"
else
	echo "this kernel does not let programs choose how often TCP tries again: not looked at"
fi
net_heal 1
touch "$T/healed"
end_hosts || fail "after a cut of 4 s: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"

# The link is cut for longer than the time-out: both sides print the reason, and end. Then the link
# is restored, because the client collects its ranks' results over it.
export DFSHIM_NET_TIMEOUT_MS=4000
start_hosts 2 disorder --iters 100000000 --colls 4 --seed "$SEED"
data_port
sleep 0.5
net_cut 0
net_cut 1
for ((n = 0; n < 1200; n++)); do
	told=0
	for i in 0 1; do
		grep -q "^NET_STALL: nothing has been heard of rank $((1 - i)) " "$T/out$i" && told=$((told + 1))
	done
	[ $told = 2 ] && break
	sleep 0.05
done
net_heal 0
net_heal 1
end_hosts && fail "a job without a network ended well"
for i in 0 1; do
	grep -q "^NET_STALL: nothing has been heard of rank $((1 - i)) " "$T/out$i" || fail "node $i has no verdict: $(cat "$T/out$i")"
	[ "${rcs[i]}" = 3 ] || fail "node $i ended with ${rcs[i]}: $(cat "$T/out$i")"
done

# A process that is stopped for longer than the time-out is not dead.
start_hosts 2 disorder --iters $((800 / SLOW)) --colls 4 --seed 77001
data_port
p=$(process_of 1)
kill -STOP "$p"
sleep 1
cut_data
sleep 7
kill -CONT "$p"
end_hosts || fail "after SIGSTOP for 8 s: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"

# A process that is killed is reported at once, by the control plane.
start_hosts 2 disorder --iters 100000000 --colls 4 --seed 77002
data_port
p=$(process_of 1)
kill -KILL "$p"
end_hosts && fail "a job without one of its ranks ended well"
grep -q 'CRASH' "$T/out0" || fail "no verdict: $(cat "$T/out0")"
[ "${rcs[0]}" = 3 ] || fail "node 0 ended with ${rcs[0]}: $(cat "$T/out0")"

# A process is killed while a communicator is created: its ranks know each other and measure their
# connection, which takes long on this slow link.
for i in 0 1; do on $i tc qdisc add dev eth0 root tbf rate 1mbit burst 4kb latency 2s; done
start_hosts 2 disorder --iters 100 --comms 1 --seed "$SEED"
for ((n = 0; n < 1000; n++)); do
	grep -q 'device 0 is joined with device 0 of' "$T/out0" && break
	sleep 0.02
done
p=$(process_of 1)
kill -KILL "$p"
end_hosts && fail "a job without one of its ranks ended well"
grep -Eq 'WARN rank 1 \(.*, pid [0-9]+\) has died' "$T/out0" || fail "nobody says who has died: $(cat "$T/out0")"
exit 0
