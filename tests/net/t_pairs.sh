#!/bin/bash
# Description: `dfshim net PEER` between machines with two interfaces each, over IPv4 and IPv6: the
# table; reports of a firewall, a closed port, a cut rail and packets that are too large; outsiders
# and wrong input; all within bounds.
#
# Limit: 240 s
set -u
. "$SRC/tests/lib/netns.sh"
netns 2 2

fail() {
	echo "FAILED: $*"
	exit 1
}
cd "$T" || exit 1
unset DFSHIM_TRACE
D=$B/dfshim
net() { on 0 timeout 120 "$D" net --seconds 0.05 --streams 2 --timeout 1 "$@" 2>err; }
# listen [VARIABLE=VALUE...] -- [PORT]: starts the listener on node 1.
listen() {
	local settings=()
	while [ "$1" != -- ]; do settings+=("$1") && shift; done
	shift
	start 1 env "${settings[@]}" "$D" net --listen "$@" >listening 2>visitors
	listener=$!
	until grep -q listens listening; do
		kill -0 $listener 2>/dev/null || fail "the listener ended: $(cat visitors)"
		sleep 0.05
	done
}
unlisten() {
	kill $listener
	wait $listener 2>/dev/null
}

listen --
grep -qx "listens on eth0 10.77.0.2:28029" listening && grep -qx "listens on eth1 10.77.1.2:28029" listening ||
	fail "the listener's words: $(cat listening)"
net --json 10.77.0.2 >pairs.json || fail "two machines: status $?: $(cat err pairs.json)"
# The rails are separate networks: 10.77.0.1 reaches 10.77.1.2 only through eth1, and replies would
# go to eth1's address. So only pairs of the same rail work.
python3 "$SRC/tests/lib/json_keys.py" net pairs.json || fail "two machines: not as docs/json.md says"
jq -e '.peers[0] | .error == null and (.pairs | length) == 4 and
	([.pairs[] | select(.from.name == .to.name)] | length == 2 and
		all(.error == null and .latency_us > 0 and .latency_p99_us >= .latency_us and
			.out_gbps > 0 and .in_gbps > 0 and .mtu == 1500))' pairs.json >/dev/null ||
	fail "two machines: $(cat pairs.json)"
net 10.77.0.2:28029 >pairs || fail "as text: status $?: $(cat err)"
grep -Eq '^  eth1 10\.77\.1\.1 +eth1 10\.77\.1\.2 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +1500$' pairs ||
	fail "no row of the table: $(cat pairs)"

# Connections of outsiders are dropped, and do not disturb.
on 0 timeout 10 bash -c 'exec 3<>/dev/tcp/10.77.0.2/28029; echo "GET / HTTP/1.0 and more words" >&3; cat <&3' >stranger
[ -s stranger ] && fail "a stranger got an answer: $(cat stranger)"
grep -q '10\.77\.0\.1\]*:[0-9]*: dropped, it is not `dfshim net`$' visitors || fail "the stranger is not named: $(cat visitors)"
# Silent connections do not block others.
start 0 bash -c 'for i in {1..20}; do exec {fd}<>/dev/tcp/10.77.0.2/28029; done; sleep 30'
silent=$!
net --json 10.77.0.2 >pairs.json || fail "beside silent visitors: $(cat pairs.json)"
kill $silent

# Lost packets are reported with address and port.
net_cut 1 1
net --json 10.77.0.2 >pairs.json || fail "one rail is enough: $(cat pairs.json)"
jq -e '.peers[0].pairs[] | select(.from.name == "eth1" and .to.name == "eth1") | .error ==
	"10.77.1.1 to 10.77.1.2:28029: nothing returns: a firewall may drop it, or the address is wrong"' \
	pairs.json >/dev/null || fail "a cut rail: $(cat pairs.json)"
net_heal 1 1
net_drop 1 0 28029
net 10.77.0.2 >pairs && fail "a firewall: status 0"
[ $? = 1 ] && grep -qx '  not reached: 10.77.0.2:28029: nothing returns: a firewall may drop it, or the address is wrong' pairs ||
	fail "a firewall: $(cat pairs err)"
net_heal 1 0
net 10.77.0.2:28030 >pairs && fail "nobody listens: status 0"
grep -q '10\.77\.0\.2:28030: refused: no process listens there; run `dfshim net --listen` on that machine' pairs ||
	fail "nobody listens: $(cat pairs)"
# Both ends have an MTU of 9000; the network between them drops packets above 1500.
for i in 0 1; do
	ip link set n$i.0 mtu 9000
	on $i ip link set eth0 mtu 9000
done
ip link set lan0 mtu 9000
net_drop_larger 1 0 1514
net --json 10.77.0.2 >pairs.json
jq -e '.peers[0].pairs[] | select(.from.name == "eth0" and .to.name == "eth0") | .error ==
	"10.77.0.1 to 10.77.0.2:28029: small packets arrive, large ones do not: set the MTU (9000 here, 9000 there) to what every switch between them passes"' \
	pairs.json >/dev/null || fail "an MTU that is too large: $(cat pairs.json)"
net_heal 1 0
unlisten

# IPv6, another port, interfaces by name.
listen NCCL_SOCKET_FAMILY=AF_INET6 NCCL_SOCKET_IFNAME=eth1 -- 5000
grep -qx "listens on eth1 \[fd77:1::2\]:5000" listening || fail "IPv6: $(cat listening)"
NCCL_SOCKET_FAMILY=AF_INET6 NCCL_SOCKET_IFNAME=eth1 net --json '[fd77:1::2]:5000' >pairs.json ||
	fail "IPv6: $(cat pairs.json err)"
jq -e '.peers[0].pairs | length == 1 and .[0].to.address == "fd77:1::2" and .[0].error == null' pairs.json >/dev/null ||
	fail "IPv6: $(cat pairs.json)"
NCCL_SOCKET_IFNAME=eth1 net '[fd77:1::2]:5000' >pairs && fail "two families: status 0"
grep -q "one is IPv4, one IPv6: set NCCL_SOCKET_FAMILY on both sides" pairs || fail "two families: $(cat pairs)"
NCCL_SOCKET_IFNAME=nosuch net '[fd77:1::2]:5000' >pairs && fail "no interface: status 0"
grep -q "this machine has no network interface that is used" pairs || fail "no interface: $(cat pairs)"
# A port that is in use; a listener that ends by itself.
on 1 "$D" net --listen 5000 2>err && fail "a port twice: status 0"
[ $? = 1 ] && grep -q "cannot listen on port 5000: Address already in use; another port" err || fail "a port twice: $(cat err)"
unlisten
on 1 timeout 60 "$D" net --listen --timeout 0.2 >listening || fail "a listener that nobody visits: status $?"

# Another program listens there: it closes the connection, is silent, or sends wrong interfaces.
start 1 python3 -c '
import socket, time
def serve(port, reply):
    s = socket.create_server(("", port))
    while True:
        c = s.accept()[0]
        c.recv(16)
        if reply is not None:
            c.sendall(reply)
            c.close()
        else:
            keep.append(c)
import threading
keep = []
row = b"e\x1b[2J".ljust(16, b"\0") + b"not an address\n\x1b[2J".ljust(72, b"x") + b"\0\0\0\0\0\0\0\0"
for port, reply in (7001, b""), (7002, None), (7003, b"\xff" * 4), (7004, b"\0\0\0\1" + row):
    threading.Thread(target=serve, args=(port, reply), daemon=True).start()
time.sleep(0.5)
open("lying", "w").close()
time.sleep(600)'
until [ -e lying ]; do sleep 0.05; done
for row in "7001 it closed the connection: no .dfshim net --listen. listens there" "7002 nothing returns" \
	"7003 it closed the connection" "7004 the peer says that it has the address not an address??.2J"; do
	net "10.77.0.2:${row%% *}" >pairs && fail "$row: status 0"
	grep -q "${row#* }" pairs || fail "$row: $(cat pairs)"
	! grep -q $'\x1b' pairs || fail "$row: a peer's escapes reach the terminal: $(cat -v pairs)"
done

for peer in : :5 10.77.0.2: 10.77.0.2:0 10.77.0.2:x 10.77.0.2:65536 '[fd77::1' '[]:5' '[fd77::1]5' ''; do
	net "$peer" >pairs && fail "peer '$peer': status 0"
	grep -q "not of the form HOST, HOST:PORT or \[IPV6\]:PORT" pairs || fail "peer '$peer': $(cat pairs)"
done
net nosuch.invalid >pairs && fail "no such host: status 0"
grep -q "  not reached: no address: " pairs || fail "no such host: $(cat pairs)"
for wrong in "--listen 0" "--listen x" "--listen 1 2" "--streams 0" "--streams 17" "--seconds 0" "--seconds 6"; do
	# shellcheck disable=SC2086 # words
	"$D" net $wrong >out 2>err
	[ $? = 2 ] || fail "$wrong: status"
done
exit 0
