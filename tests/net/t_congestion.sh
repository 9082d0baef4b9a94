#!/bin/bash
# Description: DFSHIM_NET_CONGESTION sets the congestion control of the connections between nodes.
# One that the kernel refuses is reported, and the job continues. Where the system uses BBR, near
# nodes are connected with Reno, and distant ones with BBR.
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 2 1
. "$SRC/tests/net/hosts.sh"

# has NAME WHAT: the data connections of a job use this congestion control.
has() {
	start_hosts 2 disorder --iters 100000000 --colls 2 --max 65536 --seed "$SEED"
	until on 0 ss -Htin >"$T/ss" && grep -q 'bytes_acked:[0-9]\{6,\}' "$T/ss"; do sleep 0.05; done
	kill "$(process_of 0)" "$(process_of 1)"
	end_hosts
	grep 'bytes_acked:[0-9]\{6,\}' "$T/ss" | grep -vw "$1" && fail "$2: a connection for data has not $1: $(cat "$T/ss")"
}

system=$(on 0 cat /proc/sys/net/ipv4/tcp_congestion_control)
read -ra allowed < <(on 0 cat /proc/sys/net/ipv4/tcp_allowed_congestion_control)
for other in "${allowed[@]}"; do
	[ "$other" = "$system" ] || break
done
[ "$other" != "$system" ] || echo "only $system is allowed here: that another one is used is not shown"
DFSHIM_NET_CONGESTION=$other has "$other" "asked for"
DFSHIM_NET_CONGESTION=nosuch hosts 2 disorder --iters 50 --colls 2 --max 65536 --seed "$SEED"
grep -q "DFSHIM_NET_CONGESTION=nosuch: this process may not use it here (allowed are: .*$system" "$T/out0" || fail "not reported: $(cat "$T/out0")"

for n in 0 1; do
	if ! on "$n" tee /proc/sys/net/ipv4/tcp_congestion_control <<<bbr >/dev/null 2>&1; then
		echo "no BBR here: that near nodes do not have it is not shown"
		exit 0
	fi
done
has reno near
hosts 2 disorder --iters 50 --colls 2 --max 65536 --seed "$SEED"
grep -q "uses Reno, not bbr, for congestion control" "$T"/out* || fail "not reported: $(cat "$T"/out*)"
DFSHIM_NET_CONGESTION=bbr has bbr "asked for"

# A second path between the nodes, with a delay of 3 ms.
python3 - >"$T/tun" 2>&1 <<'PY' &
import collections, ctypes, fcntl, os, select, struct, time

def end(node):
    with open("/run/netns/node%d" % node) as ns:
        if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), 0x40000000):
            raise OSError(ctypes.get_errno(), "setns")
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"far0", 0x1001))
    return fd

ends = [end(0), end(1)]
late = collections.deque()
while True:
    wait = max(0, late[0][0] - time.monotonic()) if late else None
    for fd in select.select(ends, [], [], wait)[0]:
        late.append((time.monotonic() + 0.003, ends[fd == ends[0]], os.read(fd, 65536)))
    while late and late[0][0] <= time.monotonic():
        _, to, packet = late.popleft()
        try:
            os.write(to, packet)
        except OSError:
            pass # the other end is not up yet
PY
for n in 0 1; do
	until on $n ip addr add "10.78.0.$((n + 1))/24" dev far0 2>/dev/null; do
		if ! kill -0 $! 2>/dev/null; then
			echo "no way that is long can be made here, so it is not shown: $(tail -n 1 "$T/tun")"
			exit 0
		fi
		sleep 0.05
	done
	on $n ip link set far0 up
done
NCCL_SOCKET_IFNAME=far0 has bbr far
exit 0
