#!/bin/bash
# Description: the transports' suite (transport/t_conform) over each medium of the network: verbs over one port and over several, with faults and without, a plugin.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
. "$SRC/tests/net/plugin.sh"
suite=$B/tests/transport/t_conform
[ -x "$suite" ] || skip "transport/t_conform is not built here"
export DFSHIM_DEBUG=info SEED

# conforms WHAT VARIANT...: those of the suite, 4 in one process, 5 in two, whose ends are joined over it.
conforms() {
	local v
	for v in "${@:2}"; do
		timeout -k 5 $((100 * SLOW)) "$suite" $v >"$T/out" 2>&1 ||
			fail "$1, variant $v: $(grep -v 'NCCL INFO' "$T/out" | tail -n 20)"
		grep -q "over $1\$" "$T/out" || fail "not over $1: $(grep 'is joined' "$T/out" | head -n 3)"
		! grep 'is joined' "$T/out" | grep -v "over $1\$" || fail "not all over $1"
	done
	echo "$1: $(grep -c 'is joined' "$T/out") times joined"
}
export DFSHIM_NET=verbs NCCL_NET_PLUGIN=none
conforms verbs 5
export FAKE_VERBS_RAILS=2 NCCL_IB_HCA=railx
conforms verbs 4
FAKE_VERBS_FAULTS=150 conforms verbs 5
plugin 12
DFSHIM_NET=plugin conforms plugin 5
exit 0
