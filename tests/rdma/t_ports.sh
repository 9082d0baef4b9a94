#!/bin/bash
# Description: `dfshim net` on a kernel with RDMA devices: ports, GIDs, the effects of settings and
# of a link that is down, and the path between the devices' interfaces. scripts/rdma.sh makes two
# Soft-RoCE devices on a veth pair.
set -u
fail() {
	echo "FAILED: $*"
	exit 1
}
[ -n "${RDMA-}" ] || { echo "no RDMA device of our own here: make check-rdma has a machine with two" && exit 77; }
cd "$T" || exit 1
unset DFSHIM_TRACE
D=$B/dfshim
net() { env NCCL_NET_PLUGIN=none "$@" "$D" net --json >net.json 2>err || fail "$*: status $?: $(cat err)"; }
is() {
	local want=$1 got
	shift
	got=$(jq -rc "$@" net.json) || fail "jq $*"
	[ "$got" = "$want" ] || fail "$*: '$got', not '$want': $(cat net.json)"
}
used='[.verbs.ports[] | select(.order > 0) | "\(.device):\(.port) \(.gid) v\(.roce_version) \(.interface)"] | join(", ")'

net
is "rxe0:1 10.78.0.1 v2 r0, rxe1:1 10.78.0.2 v2 r1" "$used"
is verbs .dfshim.network
is IB '[.networks[] | select(.used) | .name] | join(", ")'
is '["Ethernet","active",1024]' '.verbs.ports[0] | [.link, .state, .mtu]'
is "r0 10.78.0.1, r1 10.78.0.2" '[.interfaces[] | select(.order > 0) | "\(.name) \(.address)"] | sort | join(", ")'
net NCCL_IB_HCA==rxe1:1
is "rxe1:1 10.78.0.2 v2 r1" "$used"
net NCCL_IB_HCA=rxe1:2
is "" "$used"
is Socket '[.networks[] | select(.used) | .name] | join(", ")'
net NCCL_IB_ADDR_FAMILY=AF_INET6
is "" "$used" # the port has link-local addresses only
ip addr add 2001:db8::78/64 dev r0 nodad
net NCCL_IB_ADDR_FAMILY=AF_INET6
is "rxe0:1 2001:db8::78 v2 r0" "$used"
ip link set r1 down
net
is "the port is not active" '.verbs.ports[1].reason'
ip link set r1 up
for _ in {1..50}; do
	net
	[ "$(jq '[.verbs.ports[] | select(.order > 0)] | length' net.json)" != 2 ] || break
	sleep 0.2
done
is "rxe0:1 10.78.0.1 v2 r0, rxe1:1 10.78.0.2 v2 r1" "$used"

# The path over the devices' interfaces.
"$D" net --listen >listening &
listener=$!
trap 'kill $listener' EXIT
until [ -s listening ]; do sleep 0.1; done
"$D" net --json --seconds 0.1 --streams 1 10.78.0.2 >net.json 2>err || fail "the way between them: $(cat err net.json)"
is true '[.peers[0].pairs[] | select(.from.name == "r0" and .to.name == "r1") | .error == null and .out_gbps > 0] | all'
exit 0
