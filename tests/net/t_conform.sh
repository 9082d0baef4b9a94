#!/bin/bash
# Description: the transports' suite (transport/t_conform) over each medium of the network: verbs
# over one port and over several, with and without faults; a plugin; and each medium with several
# paths, queue pairs or connections, some of which are held back at random.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
. "$SRC/tests/net/plugin.sh"
suite=$B/tests/transport/t_conform
[ -x "$suite" ] || skip "transport/t_conform is not built here"
export DFSHIM_DEBUG=info SEED

# conforms WHAT VARIANT...: runs variants of the suite: 4 is in one process, 5 in two. All ends must
# be connected over WHAT.
conforms() {
	local v
	for v in "${@:2}"; do
		timeout -k 5 $((100 * SLOW)) "${before[@]}" "$suite" "$v" >"$T/out" 2>&1 ||
			fail "$1, variant $v: $(grep -v 'NCCL INFO' "$T/out" | tail -n 20)"
		grep -q "over $1\$" "$T/out" || fail "not over $1: $(grep 'is joined' "$T/out" | head -n 3)"
		! grep 'is joined' "$T/out" | grep -v "over $1\$" || fail "not all over $1"
	done
	echo "$1: $(grep -c 'is joined' "$T/out") times joined"
}
before=() # a prefix of the suite's command
# held FILE WHAT VARIANT...: as conforms, but without a fault, and FILE must say that a path was
# held back.
held() {
	rm -f "$1"
	conforms "${@:2}"
	grep -q 'was held back$' "$1" || fail "$2: nothing was held back"
	! grep 'was broken\|not open' "$T/out" || fail "$2: faults where there are none"
}
export DFSHIM_NET=verbs NCCL_NET_PLUGIN=none
conforms verbs 5
export FAKE_VERBS_RAILS=2 NCCL_IB_HCA=railx
conforms verbs 4
FAKE_VERBS_FAULTS=150 conforms verbs 5
export FAKE_VERBS_HOLD=4 FAKE_VERBS_SEEN=$T/pairs
held "$T/pairs" verbs 4 5
NCCL_IB_HCA=railx0 NCCL_IB_QPS_PER_CONNECTION=4 held "$T/pairs" verbs 5
export FAKE_STREAMS_HOLD=4 FAKE_STREAMS_SEEN=$T/streams
$CC -shared -fPIC -Wall -Werror -O1 -o "$T/libfake_streams.so" "$SRC/tests/net/fake/fake_streams.c" -ldl || fail "what holds connections back does not build"
before=(env "LD_PRELOAD=${SAN_RUNTIME-}$T/libfake_streams.so")
DFSHIM_NET=tcp NCCL_NSOCKS_PERTHREAD=4 held "$T/streams" tcp 5
before=()
plugin 12
DFSHIM_NET=plugin conforms plugin 5
exit 0
