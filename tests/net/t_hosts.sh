#!/bin/bash
# Description: ranks on two and three machines (network namespaces), over sockets: collectives,
# sends, disorder, and connections that are refused.
#
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 3 1
. "$SRC/tests/net/hosts.sh"

export DFSHIM_STATS=$T/stats
hosts 2 collcheck --ranks 4 --sample $((100 / SLOW)) --seed "$SEED"
grep -q '"net_bytes_sent": [1-9]' "$T/stats" || fail "nothing went over the network: $(cat "$T/stats")"
hosts 3 collcheck --sample $((60 / SLOW)) --seed "$SEED"
hosts 2 p2pcheck --ranks 4 --seed "$SEED"
DFSHIM_NET=tcp hosts 2 disorder --iters $((20 / SLOW)) --seed "$SEED"
NCCL_SOCKET_FAMILY=AF_INET6 NCCL_SOCKET_NTHREADS=2 NCCL_NSOCKS_PERTHREAD=2 hosts 2 collcheck --sample $((30 / SLOW)) --seed "$SEED"
! grep -q '"net_\(faults\|resent\|lost\)": [1-9]' "$T/stats" || fail "faults where there are none: $(cat "$T/stats")"

# Nodes that must not be connected: every rank reports the reason, none hangs.
DFSHIM_NET=off start_hosts 2 collcheck --sample 5
end_hosts && fail "nodes were joined in spite of DFSHIM_NET=off"
grep -q 'DFSHIM_NET=off keeps nodes apart' "$T/out0" "$T/out1" || fail "no reason: $(cat "$T/out0" "$T/out1")"

# Two sockets carry any number of collectives. They are counted while the job has some.
DFSHIM_PORTS=5000-5009 start_hosts 2 disorder --iters $((100 / SLOW)) --colls 1000 --max 4096 --seed "$SEED"
data_port
most=0
while [ "$nr_data" != 0 ]; do
	[ "$nr_data" -le "$most" ] || most=$nr_data
	nr_data=$(on "$at" ss -Htn state established "sport = :$port" | wc -l)
done
end_hosts || fail "1000 collectives: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
[ "$most" = 2 ] || fail "$most connections for 1000 collectives"

# Outsiders with another protocol, another version, or without a process's number. The job is
# stopped meanwhile.
defined() { sed -nE "s/^#define $1[[:space:]]+([0-9a-fx]+)(ull)?\b.*/\1/p" "$SRC/$2"; }
magic=$(defined MAGIC runtime/transport/net/socket/socket.h)
version=$(($(defined DF_CTL_VERSION runtime/ctl/ctl.h) << 16 | $(defined DF_ABI_VERSION kernels/abi.h)))
DFSHIM_PORTS=5000-5009 start_hosts 2 disorder --iters $((100 / SLOW)) --colls 1000 --max 4096 --seed "$SEED"
data_port
p=$(process_of $((1 - at)))
kill -STOP "$p" || fail "the job has ended before the strangers came: $(cat "$T/out$at")"
on 2 python3 - "$(ip4 "$at")" "$port" "$magic" "$version" <<'END'
import socket, struct, sys
at = (sys.argv[1], int(sys.argv[2]))
def hello(version):
    return struct.pack("<QIHHQQiiQIIQ16s", int(sys.argv[3], 0), version, 0, 1, 1, 2, 0, 0, 1, 1, 0, 3, b"challenge")
for text in (b"GET / HTTP/1.0\r\n\r\n".ljust(80), hello(0), hello(int(sys.argv[4]))):
    s = socket.create_connection(at)
    s.sendall(text)
    s.settimeout(20)
    try:
        assert s.recv(1) == b""
    except ConnectionResetError:
        pass
END
[ $? = 0 ] || fail "a stranger was taken in"
kill -CONT "$p"
end_hosts || fail "strangers disturbed the job: $(cat "$T/out0" "$T/out1")"
grep -q "a connection from $(ip4 2):.*is refused: it does not speak" "$T/out$at" || fail "no word of strangers: $(cat "$T/out$at")"
[ "$(grep -c 'refused' "$T/out$at")" = 1 ] || fail "more than one line about strangers: $(grep refused "$T/out$at")"
exit 0
