# Several machines on one: network namespaces joined by veth pairs. Sourced by a test; tests/run.sh
# sets SRC and T.
# shellcheck shell=bash
#
#   . "$SRC/tests/lib/netns.sh"
#   netns 3 2                    three nodes, each with two interfaces (default: 2 nodes, 1 interface)
#   on 0 CMD ...                 runs CMD on node 0
#   start 1 CMD ...              the same in the background; $! is CMD's own process
#   ip4 1 0, ip6 1 0             the address of node 1's eth0: 10.77.0.2, fd77:0::2 (eth1: 10.77.1.2, fd77:1::2)
#   link_down 1 0, link_up 1 0   node 1's eth0 loses carrier, and has it again
#   net_cut 1 0, net_heal 1 0    everything that arrives at node 1's eth0 is lost, silently; heal ends it
#   net_drop 1 0 PORT            only what arrives for this TCP port over IPv4, as a firewall drops it; net_heal ends it
#   net_drop_larger 1 0 BYTES    only larger frames (1514 is an MTU of 1500), as a switch drops them; net_heal ends it
#
# netns begins the script anew in namespaces of its own (network, mounts, processes, and users where it is not root), so
# nothing is left behind however it ends, no process either: there is nothing to clean up. Call it before anything that must not run twice. All
# eth0 are one LAN, all eth1 another; between nodes there is no other way, nor to the world. Each node's loopback is its
# own. The MTU is 1500; tc works inside (tbf, bpf; not netem). Where namespaces may not be made, the test ends with
# status 77 and the reason.
netns() {
	local nodes=${1:-2} rails=${2:-1} i r
	if [ -z "${DF_NETNS-}" ]; then
		local why unshare=(unshare -mnpf --kill-child --mount-proc) user
		command -v ip >/dev/null || { echo "no ip(8) (package iproute2): no network namespaces" && exit 77; }
		for user in "" -Ur; do
			# shellcheck disable=SC2086 # one option or none
			if why=$("${unshare[@]}" $user bash -c 'mount -t tmpfs none /run && ip netns add probe &&
				ip link add v0 type veth peer name v1 netns probe && ip link add br0 type bridge' 2>&1); then
				# shellcheck disable=SC2086
				DF_NETNS=1 exec "${unshare[@]}" $user bash -c 'mount -t tmpfs none /run && exec "$@"' - "$0" "$@"
			fi
		done
		echo "no rights for network namespaces: ${why##*$'\n'}"
		exit 77
	fi
	ip link set lo up
	for ((r = 0; r < rails; r++)); do
		ip link add "lan$r" type bridge
		ip link set "lan$r" up
	done
	for ((i = 0; i < nodes; i++)); do
		ip netns add "node$i"
		on "$i" ip link set lo up
		for ((r = 0; r < rails; r++)); do
			ip link add "n$i.$r" type veth peer name "eth$r" netns "node$i"
			ip link set "n$i.$r" master "lan$r" up
			on "$i" ip addr add "$(ip4 "$i" "$r")/24" dev "eth$r"
			on "$i" ip addr add "$(ip6 "$i" "$r")/64" dev "eth$r" nodad
			on "$i" ip link set "eth$r" up
		done
	done
	# The kernel brings the interfaces up with a delay. Until then a job would find only lo.
	for ((i = 0; i < nodes; i++)); do
		for ((r = 0; r < rails; r++)); do
			until [ "$(on "$i" cat "/sys/class/net/eth$r/operstate")" = up ]; do sleep 0.01; done
		done
	done
}

on() {
	local node=$1
	shift
	ip netns exec "node$node" "$@"
}

start() {
	ip netns exec "node$1" "${@:2}" &
}

ip4() { echo "10.77.${2:-0}.$(($1 + 1))"; }
ip6() { echo "fd77:${2:-0}::$(($1 + 1))"; }

link_down() { ip link set "n$1.${2:-0}" down; }
link_up() { ip link set "n$1.${2:-0}" up; }

# drop NODE RAIL BYTECODE: drops the arriving frames that the filter selects.
drop() {
	on "$1" tc qdisc replace dev "eth$2" clsact
	on "$1" tc filter replace dev "eth$2" ingress pref 1 handle 1 bpf da bytecode "$3"
}
net_cut() { drop "$1" "${2:-0}" '1,6 0 0 2'; }
# The filter selects IPv4 TCP frames for the destination port.
net_drop() {
	drop "$1" "$2" "9,40 0 0 12,21 0 6 2048,48 0 0 23,21 0 4 6,177 0 0 14,72 0 0 16,21 0 1 $3,6 0 0 2,6 0 0 0"
}
net_drop_larger() { drop "$1" "$2" "4,128 0 0 0,37 0 1 $3,6 0 0 2,6 0 0 0"; }
net_heal() { on "$1" tc qdisc del dev "eth${2:-0}" clsact; }
