#!/bin/bash
# Description: the namespaces of tests/lib/netns.sh have what its first comment promises: nodes,
# links, loss.
set -u
. "$SRC/tests/lib/netns.sh"
netns 3 2

fail() {
	echo "FAILED: $*"
	exit 1
}
# reach FROM ADDRESS PORT [SECONDS]: connects from a node and prints the result.
reach() {
	local said
	# shellcheck disable=SC2016 # its own arguments
	said=$(on "$1" timeout "${4:-10}" bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$2" "$3" 2>&1)
	case $? in
	0) echo yes ;;
	124) echo lost ;;
	*) echo "${said##*: }" ;;
	esac
}
for i in 0 1 2; do
	start $i python3 -c '
import socket, time
l = [socket.create_server(("::", p), family=socket.AF_INET6, dualstack_ipv6=True) for p in (700, 701)]
open("'"$T/ready$i"'", "w").close()
time.sleep(600)'
done
for i in 0 1 2; do
	until [ -e "$T/ready$i" ]; do sleep 0.05; done
done

for from in 0 1 2; do
	for to in 0 1 2; do
		for rail in 0 1; do
			for addr in "$(ip4 $to $rail)" "$(ip6 $to $rail)"; do
				is=$(reach $from "$addr" 700)
				[ "$is" = yes ] || fail "node $from to $addr: $is"
			done
		done
	done
done
net_drop 1 0 701
[ "$(reach 0 "$(ip4 1 0)" 701 1)" = lost ] || fail "the port that is dropped answers"
[ "$(reach 0 "$(ip4 1 0)" 700)" = yes ] || fail "another port is dropped, too"
[ "$(reach 0 "$(ip4 1 1)" 701)" = yes ] || fail "another rail is cut, too"
net_cut 1 0
[ "$(reach 0 "$(ip4 1 0)" 700 1)" = lost ] || fail "the link that is cut answers"
net_heal 1 0
[ "$(reach 0 "$(ip4 1 0)" 701)" = yes ] || fail "the link is not healed"
link_down 2 1
on 2 ip -br link show eth1 | grep -q NO-CARRIER || fail "carrier without a link: $(on 2 ip -br link show eth1)"
link_up 2 1
for _ in {1..100}; do
	is=$(reach 0 "$(ip4 2 1)" 700 1)
	[ "$is" != yes ] || break
	sleep 0.1
done
[ "$is" = yes ] || fail "the link that is up again: $is"
[ -z "$(ip -br addr show to 0.0.0.0/0 scope global)" ] || fail "there is a way to the world"
[ "$(reach 0 "$(ip4 1 0)" 702)" = "Connection refused" ] || fail "nobody listens, but it was not refused"
exit 0
