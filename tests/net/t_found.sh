#!/bin/bash
# Description: `dfshim net` without peers: interfaces, RDMA ports with GIDs, plugins, and the
# network that NCCL's rules choose, with the tests' libibverbs and plugins; functions in these that
# hang or abort are bounded and named.
set -u
. "$SRC/tests/lib/netns.sh"
netns 1 2

fail() {
	echo "FAILED: $*"
	exit 1
}
cd "$T" || exit 1
unset DFSHIM_TRACE
CC=${CC:-gcc}
command -v "${CC%% *}" >/dev/null || { echo "no C compiler" && exit 77; }
so() { # FILE SOURCE FLAGS...
	local file=$1 source=$2
	shift 2
	$CC -shared -fPIC -Wall -Werror "$@" -o "$file" "$SRC/tests/net/$source" || fail "$file does not build"
}
so libfake_verbs.so fake/fake_verbs.c "$SRC/tests/net/fake/fake_nic.c" -pthread
so libnccl-net-nine.so fake/fake_plugin.c "$SRC/tests/net/fake/fake_orders.c" -DVERSION=9 -DNAME='"Nine"'
so libnccl-net.so fake/fake_plugin.c "$SRC/tests/net/fake/fake_orders.c" -DVERSION=12 -DNAME='"Twelve"'
so libfive.so fake/fake_plugin.c "$SRC/tests/net/fake/fake_orders.c" -DVERSION=5 -DNAME='"Five"'
so libhangs.so fake/fake_plugin.c "$SRC/tests/net/fake/fake_orders.c" -DTRAP=1
so libdies.so fake/fake_plugin.c "$SRC/tests/net/fake/fake_orders.c" -DTRAP=2
export LD_LIBRARY_PATH=$T${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# net [VARIABLE=VALUE...]: writes the JSON of node 0 to net.json.
net() {
	on 0 env "$@" "$B/dfshim" net --json >net.json 2>err || fail "$*: status $?: $(cat err)"
	python3 "$SRC/tests/lib/json_keys.py" net net.json || fail "$*: not as docs/json.md says"
}
# is WANTED JQ...: checks the output of jq for net.json, on one line.
is() {
	local want=$1 got
	shift
	got=$(jq -rc "$@" net.json) || fail "jq $*"
	[ "$got" = "$want" ] || fail "$*: '$got', not '$want': $(cat net.json)"
}
used='[.interfaces[] | select(.order > 0) | "\(.name) \(.address)"] | join(", ")'
ports='[.verbs.ports[] | select(.order > 0) | "\(.device):\(.port) \(.gid_index) \(.gid)"] | join(", ")'
network='[.networks[] | select(.used) | .name] | join(", ")'
why() { printf '.%s[] | select(.%s == "%s") | .reason' "$1" "$2" "$3"; }

own='.dfshim | "\(.network): \(.reason)"'

net
is "eth0 10.77.0.1, eth1 10.77.1.1" "$used"
is "plugin: Twelve (v12); verbs or tcp if it finds no device" "$own"
is "loopback: used only if nothing else is up" "$(why interfaces address 127.0.0.1)"
is Twelve "$network"
is 12 '.plugins[0].version'
is "$T/libnccl-net.so" '.plugins[0].file'
net NCCL_SOCKET_IFNAME==eth1 NCCL_SOCKET_FAMILY=AF_INET6 NCCL_NET_PLUGIN=none
is "eth1 fd77:1::1" "$used"
is "not named by NCCL_SOCKET_IFNAME==eth1" "$(why interfaces address 10.77.0.1)"
is Socket "$network"
is "tcp: no plugin and no RDMA port is usable" "$own"
net NCCL_NET=twelve
is "plugin: Twelve (v12)" "$own"
net NCCL_SOCKET_IFNAME=nosuch NCCL_NET_PLUGIN=none
is "" "$network"
is "no interface is usable: see above" "$(why networks name Socket)"
is "null: no interface is usable, and nodes meet over one" "$own"
net NCCL_SOCKET_FAMILY=AF_UNIX
grep -q "NCCL_SOCKET_FAMILY=AF_UNIX.*auto|AF_INET|AF_INET6" err || fail "a wrong family: $(cat err)"
is "eth0 10.77.0.1, eth1 10.77.1.1" "$used"

# RDMA ports.
fake="NCCL_IBVERBS_LIB=libfake_verbs.so NCCL_NET_PLUGIN=none"
# shellcheck disable=SC2086 # two settings
{
	net $fake
	is "rocex:1 3 10.1.0.5, ibx:1 1 fec0:0:9::2" "$ports"
	is IB "$network"
	is "verbs: 2 RDMA ports; tcp with a device that has none" "$own"
	is 100000 '.verbs.ports[0].mbps'
	is 1024 '.verbs.ports[0].mtu'
	is '"down" "the port is not active"' '.verbs.ports[1] | "\"\(.state)\" \"\(.reason)\""'
	is "cannot be opened: Permission denied (/dev/infiniband/uverbs*)" "$(why verbs.ports device badx)"
	net $fake NCCL_IB_ADDR_FAMILY=AF_INET6
	is "rocex:1 2 2001:db8::5, ibx:1 1 fec0:0:9::2" "$ports"
	net $fake NCCL_IB_ADDR_RANGE=10.2.0.0/16
	is "rocex:1 4 10.2.0.5, ibx:1 1 fec0:0:9::2" "$ports"
	net $fake NCCL_IB_ADDR_RANGE=10.3.0.0/16 NCCL_IB_HCA=rocex:1
	is "" "$ports"
	is "no valid GID is IPv4 within 10.3.0.0/16: NCCL_IB_ADDR_FAMILY=AF_INET6 takes IPv6 ones" \
		'.verbs.ports[0].reason'
	is Socket "$network"
	net $fake NCCL_IB_GID_INDEX=4 NCCL_IB_HCA=^ibx
	is "rocex:1 4 10.2.0.5" "$ports"
	is "excluded by NCCL_IB_HCA=^ibx" "$(why verbs.ports device ibx)"
	net $fake NCCL_IB_GID_INDEX=9
	is "NCCL_IB_GID_INDEX=9: the port has no such GID" '.verbs.ports[0].reason'
	net $fake NCCL_IB_HCA==rocex:2,ib
	is "" "$ports"
	net $fake NCCL_NET=Socket
	is "tcp: NCCL_NET=Socket" "$own"
	net $fake NCCL_IB_DISABLE=1 DFSHIM_NET=verbs
	is "null: DFSHIM_NET=verbs, and no RDMA port is usable" "$own"
	net $fake NCCL_IB_DISABLE=1
	is "" "$ports"
	is NCCL_IB_DISABLE=1 '.verbs.ports[0].reason'
	net $fake FAKE_VERBS=none
	is "the kernel has no RDMA device" .verbs.error
	net $fake NCCL_NET=socket
	is Socket "$network"
	is "NCCL_NET=socket asks for another network" "$(why networks name IB)"
	net $fake FAKE_VERBS=hang
	is "libibverbs or a driver did not return within 10 s" .verbs.error
}
net NCCL_IBVERBS_LIB=/nosuch.so
is true '.verbs.error | startswith("/nosuch.so: cannot open")'
net NCCL_IBVERBS_LIB=libnccl-net.so
is "libnccl-net.so has no ibv_get_device_list" .verbs.error

net NCCL_NET_PLUGIN=nine,libfive.so,nosuch,,libnccl-net-nine.so
is '["Nine",null,null,"Nine"]' '[.plugins[].name]'
is '[9,0,0,9]' '[.plugins[].version]'
is "has no symbol ncclNetPlugin_v12 to _v6" "$(why plugins asked libfive.so)"
is true '.plugins[2].reason | startswith("not loaded: libnccl-net-nosuch.so: cannot open")'
is Nine "$network"
net NCCL_NET_PLUGIN=nine NCCL_NET=Twelve
is "" "$network"
is "NCCL_NET=Twelve asks for another network" '.plugins[0].reason'
is "null: NCCL_NET=Twelve, and no network plugin is usable" "$own"
net NCCL_NET_PLUGIN=libdies.so
is "loading it died: Aborted" '.plugins[0].reason'
is Socket "$network"
net NCCL_NET_PLUGIN=libhangs.so
is "loading it did not return within 10 s" '.plugins[0].reason'

# The same as text.
on 0 env NCCL_NET_PLUGIN=nine NCCL_IBVERBS_LIB=libfake_verbs.so "$B/dfshim" net >text || fail "as text: status $?"
for line in '^  eth0 .*10\.77\.0\.1/24 .*MTU 1500 .*used (1): up, with an address$' \
	'^  rocex:1 Ethernet active MTU 1024 100 Gb/s GID 3 10\.1\.0\.5  used (1): active$' \
	'^  nine: Nine, interface v9, .*libnccl-net-nine\.so  used (1): ' '^  Nine  *used: ' \
	'^  Socket  *not used: one before it is used$'; do
	grep -q "$line" text || fail "no line '$line': $(cat text)"
done
exit 0
