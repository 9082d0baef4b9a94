#!/bin/bash
# Description: RDMA ports and plugin devices are chosen by their PCI path from the GPU, on the test
# driver, with the tests' libibverbs and plugin: the nearest are used, others if these fail;
# NCCL_NET_GDR_LEVEL; `dfshim net` reports the same in advance.
# Limit: 200 s
set -u
. "$SRC/tests/cuda/dryrun.sh"
if [ -z "${NEAR-}" ]; then
	unshare -m true 2>/dev/null || skip "needs root, for a /sys of its own"
	NEAR=1 exec unshare -m bash "$0"
fi
SLOW=1
. "$SRC/tests/net/verbs.sh"
export DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info DFSHIM_HOST_NODE_DEVICES=1 NCCL_NET_PLUGIN=none
export DFSHIM_NET=verbs FAKE_CUDA_GDR=dmabuf FAKE_CUDA_DEVICES=2 FAKE_VERBS_RAILS=3 FAKE_VERBS_SEEN=$T/seen NCCL_IB_HCA=railx0,railx2

# A machine: two processors, each with a switch that has a GPU and one or two RDMA devices.
mkdir -p "$T/class" && cp -a /sys/class/net "$T/class/" && mount --bind "$T/class" /sys/class && mount -t tmpfs none /sys/bus/pci &&
	mkdir /sys/bus/pci/devices || fail "no /sys of its own"
switch=("pci0000:15/0000:15:01.0/0000:16:00.0" "pci0000:97/0000:97:01.0/0000:98:00.0")
at() { # LINK SWITCH PORT: creates a device there, with LINK to it
	local dir=$T/devices/${switch[$2]}/0000:1$2:0$3.0/0000:2$3:00.0
	mkdir -p "$dir" "$(dirname "$1")" && echo "$2" >"$dir/numa_node" && ln -sfn "$dir" "$1" || fail "$1"
}
gpu() { at "/sys/bus/pci/devices/0000:1$1:00.0" "$2" "$3"; }
nic() { at "/sys/class/infiniband/$1/device" "$2" "$3"; }
job() { # CLIENT ARGS...
	local c=$1
	shift
	rm -f "$T/stats" "$T/seen"
	timeout -k 5 100 env "LD_PRELOAD=$B/libdfshim.so" "$C/$c" "$@" --timeout 40 >"$T/out" 2>&1 ||
		fail "$c $*: status $?: $(grep -v INFO "$T/out" | tail -n 20)"
}
says() { grep -qE -- "$1" "$T/out" || fail "nobody says '$1': $(grep 'can use verbs\|slots for\|WARN' "$T/out" | tail -n 10)"; }
seen() { grep -qxF -- "$1" "$T/seen" || fail "not seen: $1: $(sort -u "$T/seen")"; }
unseen() { ! grep -qxF -- "$1" "$T/seen" || fail "seen: $1"; }
large() { job disorder --ranks 2 --iters "$1" --colls 4 --max 262144 --seed "$SEED"; }

# Each GPU has an RDMA device of its own.
gpu 0 0 0 && nic railx0 0 1 && gpu 1 1 0 && nic railx2 1 1
large 5
for device in 0 1; do
	near=railx$((2 * device)) far=railx$((2 - 2 * device))
	says "device $device can use verbs: $near:1, .*, path from the GPU PIX\$"
	says "device $device can use verbs: $far:1, .*, path from the GPU SYS, used when nearer ones fail\$"
	says "device $device: verbs from $near:1 "
done
seen "railx0:1 writes"
seen "railx2:1 writes"
# The near ports of the two GPUs are connected. With NCCL_CROSS_NIC=0 ports of the same index are.
joined() { says "device 0: verbs from $1:1 \\(GID .*\\) to device 1 of .* \\(GID 10.1.$2.1\\)\$"; }
joined railx0 12
joined railx2 10
NCCL_CROSS_NIC=0 large 5
joined railx0 10
joined railx2 12
# More ports than a device uses, with the two GPUs at different ends: ports of the same index are
# connected.
export FAKE_VERBS_RAILS=6
nic railx2 1 4 && nic railx3 1 5 && nic railx4 1 6 && nic railx5 1 1
NCCL_CROSS_NIC=0 NCCL_IB_HCA=railx0,railx2,railx3,railx4,railx5 large 5
joined railx0 10
joined railx5 15
says "device 0 can use verbs: railx5:1, .*, path from the GPU SYS, used when nearer ones fail\$"
export FAKE_VERBS_RAILS=3
nic railx2 1 1
DFSHIM_NET_GDR=1 job collcheck --ranks 2 --sample 12 --seed "$SEED"
says "slots for other nodes lie in GPU memory"
DFSHIM_NET_GDR=1 NCCL_NET_GDR_LEVEL=LOC job collcheck --ranks 2 --sample 12 --seed "$SEED"
says "lie in host memory: NCCL_NET_GDR_LEVEL does not allow it: the path .* is PIX"

"$B/dfshim" net >"$T/text" || fail "dfshim net: status $?"
grep -A2 '^  GPU 0 ' "$T/text" | tail -n 2 >"$T/paths"
printf '    railx0:1: path PIX\n    railx2:1: path SYS, used when nearer ones fail\n' | cmp -s - "$T/paths" ||
	fail "dfshim net: $(grep -A2 '^  GPU' "$T/text")"
[ "$("$B/dfshim" net --json | jq -c '.dfshim.gpus[1] | [.pci, .ports[].path]')" = '["0000:11:00.0","SYS","PIX"]' ] ||
	fail "dfshim net --json: $("$B/dfshim" net --json | jq -c .dfshim.gpus)"

# One port is near both GPUs, the other is at the other processor. The latter is used only if the
# near one fails; results are right.
gpu 1 0 2
large 20
seen "railx0:1 writes"
unseen "railx2:1 writes"
FAKE_VERBS_DOWN=railx0:$((100 / SLOW)):$((400 / SLOW)) large $((800 / SLOW))
seen "railx2:1 writes"
seen "a port was down"
says "are back: 2 of 2 queue pairs"

# No port is near: all are equal. The GPU's memory is too far away, unless the variable allows it.
gpu 0 1 3 && gpu 1 1 4 && nic railx2 0 5
large 20
seen "railx0:1 writes"
seen "railx2:1 writes"
! grep -q 'when nearer ones fail' "$T/out" || fail "a port is spare where all are alike"
DFSHIM_NET_GDR=1 job collcheck --ranks 2 --sample 12 --seed "$SEED"
says "lie in host memory: NCCL_NET_GDR_LEVEL does not allow it: the path .* is SYS"
DFSHIM_NET_GDR=1 "$B/dfshim" net >"$T/text" || fail "dfshim net: status $?"
grep -q 'GPU 0 .*host memory: NCCL_NET_GDR_LEVEL does not allow it' "$T/text" || fail "dfshim net: $(grep GPU "$T/text")"
DFSHIM_NET_GDR=1 NCCL_NET_GDR_LEVEL=SYS job collcheck --ranks 2 --sample 12 --seed "$SEED"
says "slots for other nodes lie in GPU memory"

# The path of a software device is unknown. Ports that are known to be near have precedence.
nic railx0 1 1 && rm -r /sys/class/infiniband/railx2
large 20
says "device 0 can use verbs: railx2:1, .*[0-9], used when nearer ones fail\$"
unseen "railx2:1 writes"

# A plugin's devices are numbered in the opposite order of the GPUs.
FAKE_PLUGIN_DIR=$(mktemp -d) # short, because addresses of Unix sockets have at most 108 bytes
trap 'rm -rf "$FAKE_PLUGIN_DIR"' EXIT
export FAKE_PLUGIN_DIR FAKE_PLUGIN_PCI=$T/plugin DFSHIM_NET=plugin NCCL_NET_PLUGIN=$T/libfake.so
$CC -shared -fPIC -Wall -Werror -O1 -DVERSION=10 -DNAME='"Fake"' -o "$NCCL_NET_PLUGIN" "$SRC/tests/net/fake/fake_plugin.c" \
	"$SRC/tests/net/fake/fake_orders.c" || fail "the plugin of ours does not build"
gpu 0 0 0 && gpu 1 1 0 && at "$T/plugin/fake0" 1 6 && at "$T/plugin/fake1" 0 6
large 5
says "device 0 can use the network plugin's fake1, path from the GPU PIX\$"
says "device 1 can use the network plugin's fake0, path from the GPU PIX\$"
rm -r "$T/plugin"
large 5
says "device 0 can use the network plugin's fake0\$"
says "device 1 can use the network plugin's fake1\$"
exit 0
