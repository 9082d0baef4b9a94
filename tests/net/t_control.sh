#!/bin/bash
# Description: the control plane between three machines: IPv4, IPv6, link-local, NCCL_COMM_ID, ports
# in a range; deaths, a stopped process, cut links; packets that a firewall drops are reported with
# address and port on every rank; connections of outsiders are dropped.
#
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
netns 3 2

fail() {
	echo "FAILED: $*"
	tail -n 5 "$T"/*/out.* 2>/dev/null
	exit 1
}
cd "$T" || exit 1
unset DFSHIM_TRACE NCCL_SOCKET_IFNAME
N=$B/tests/net/node
export DFSHIM_DEBUG=info

# job NAME [VARIABLE=VALUE ...]: starts two ranks on each node, in the background. Node N prints to
# out.N and runs in mode[N].
declare -A mode=()
job() {
	local name=$1 i
	shift
	rm -rf "$name" && mkdir "$name"
	pids=()
	for i in 0 1 2; do
		start $i env "$@" timeout -k 5 100 "$N" $((2 * i)) 2 6 "$name/id" ${mode[$i]-} >"$name/out.$i" 2>&1
		pids+=($!)
	done
}
# joined NAME: waits until all ranks have joined.
joined() {
	local i
	for i in 0 1 2; do
		until [ "$(grep -c ': joined at' "$1/out.$i")" = 2 ]; do
			grep -q '^failed' "$1/out.$i" && fail "$1: node $i did not join"
			sleep 0.05
		done
	done
}
# ends NAME STATUS...: waits for the nodes; checks their statuses in order. "-" is any status.
ends() {
	local name=$1 i rc
	shift
	for i in 0 1 2; do
		wait "${pids[$i]}"
		rc=$?
		shift_rc=${1-0}
		[ "$shift_rc" = - ] || [ $rc = "$shift_rc" ] || fail "$name: node $i: status $rc, not $shift_rc: $(cat "$name/out.$i")"
		shift
	done
}
says() { # NAME NODE PATTERN
	grep -Eq -- "$3" "$1/out.$2" || fail "$1: node $2 does not say '$3': $(cat "$1/out.$2")"
}
all_say() {
	local i
	for i in 0 1 2; do says "$1" $i "$2"; done
}

job v4
ends v4 0 0 0
says v4 1 'joined at 10\.77\.0\.2:'
says v4 1 'network interfaces: uses eth0 10\.77\.0\.2 .*; not lo 127\.0\.0\.1 \(loopback'
job v6 NCCL_SOCKET_FAMILY=AF_INET6 NCCL_SOCKET_IFNAME=eth1
ends v6 0 0 0
says v6 2 'joined at \[fd77:1::3\]:'
job ports DFSHIM_PORTS=7000-7001
ends ports 0 0 0
for i in 0 1 2; do says ports $i 'joined at 10\.77\.0\.[123]:700[01]$'; done
job address NCCL_COMM_ID=10.77.1.1:6000
ends address 0 0 0
says address 2 'joined at 10\.77\.1\.3:'
job address6 "NCCL_COMM_ID=[fd77:1::1]:6000"
ends address6 0 0 0
says address6 2 'joined at \[fd77:1::3\]:'

# A process dies; a process is stopped and continued; a link is cut for a while.
mode=([1]=die [0]=stay [2]=stay)
job dies
ends dies 1 137 1
says dies 0 'gather: Connection reset by peer'
says dies 2 'gather: Connection reset by peer'
mode=([1]=stop [0]=stay [2]=stay)
job stopped
until [ "$(ps -o stat= --ppid "${pids[1]}" | cut -c1)" = T ]; do sleep 0.05; done
sleep 2
kill -CONT "$(pgrep -P "${pids[1]}")"
ends stopped 0 0 0
mode=([0]=stay [1]=stay [2]=stay)
job flap
joined flap
net_cut 1 0
sleep 3
net_heal 1 0
ends flap 0 0 0

# A connection with another protocol, or without the secret, is dropped. At most one line a minute
# reports their number.
mode=([0]=hold [1]=hold [2]=hold)
job strangers DFSHIM_PORTS=7200-7200
joined strangers
on 2 python3 - <<'PY' || fail "a stranger was heard"
import socket, struct
frame = lambda kind, body: struct.pack("<IHHII", 0x31434644, 8, kind, len(body), 0) + body
for words in (b"GET / HTTP/1.0\r\n\r\n" + b" " * 64, b"\0" * 64, frame(1, b"\1" * 8), frame(2, b"\1" * 104), frame(8, b"\1" * 24)):
    s = socket.create_connection(("10.77.0.1", 7200), timeout=10)
    s.sendall(words)
    try:
        if s.recv(1):
            raise SystemExit("answered")
    except ConnectionResetError:
        pass
PY
touch strangers/id.go
ends strangers 0 0 0
[ "$(grep -c 'dropped a connection from 10\.77\.0\.3:[0-9]*: it does not know what a rank of this job knows (1 so far)' strangers/out.0)" = 1 ] ||
	fail "strangers: $(cat strangers/out.0)"
mode=()

# A firewall blocks the port of the id: the ranks that cannot connect report it, with address and
# port.
net_drop 0 0 7100
job filtered DFSHIM_PORTS=7100-7100
for i in 1 2; do
	wait "${pids[$i]}" && fail "filtered: node $i: status 0"
	says filtered $i "cannot join .*\(pid [0-9]+ at 10\.77\.0\.$((i + 1)):7100\) cannot reach 10\.77\.0\.1:7100: no answer arrives: a firewall may drop it"
done
kill "${pids[0]}"
# The rendezvous can be reached, another port cannot: all ranks report the reason, also those behind
# the firewall.
job half NCCL_COMM_ID=10.77.0.1:6001 DFSHIM_PORTS=7100-7100
ends half 1 1 1
all_say half 'cannot join .*\(pid [0-9]+ at 10\.77\.0\.[23]:7100\) cannot reach 10\.77\.0\.1:7100: no answer arrives: a firewall may drop it'
net_heal 0 0
# The process that served the id has ended.
job gone DFSHIM_PORTS=7100-7100
ends gone 0 0 0
start 1 timeout 60 "$N" 2 2 6 gone/id >gone/out.1 2>&1
wait $! && fail "gone: status 0"
says gone 1 'cannot reach 10\.77\.0\.1:7100: refused: nothing listens there, or a firewall rejects it'

# A node is cut off for good, with and without data in transit: after 40 s of silence it counts as
# dead.
mode=([0]=hold [1]=hold [2]=hold)
job cut DFSHIM_NET_TIMEOUT_MS=20000
joined cut
net_cut 2 0
touch cut/id.go
# The node receives nothing, and its messages are not answered.
ends cut 1 1 1
all_say cut 'gather: Connection reset by peer after [0-9.]+ s'

# The interfaces have link-local addresses only.
mode=()
for i in 0 1 2; do on $i ip addr flush dev eth1 scope global; done
job local NCCL_SOCKET_IFNAME=eth1
ends local 0 0 0
says local 1 'joined at \[fe80::[0-9a-f:]*%[0-9]+\]:'
exit 0
