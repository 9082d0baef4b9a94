#!/bin/bash
# Description: the transports' suite (transport/t_conform) over verbs with slots in GPU memory,
# which the CPU cannot access and where writes become visible late: without faults, with faults,
# while queue pairs are held back at random, and with a port that is down or a device that has
# failed.
#
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
suite=$B/tests/transport/t_conform
[ -x "$suite" ] || skip "transport/t_conform is not built here"
[ -f "$B/tests/cuda/driver/libcuda.so.1" ] || skip "built without CUDA headers"
export DFSHIM_DEBUG=info SEED DFSHIM_NET=verbs NCCL_NET_PLUGIN=none DFSHIM_NET_GDR=1 FAKE_CUDA_GDR=dmabuf FAKE_VERBS_SEEN=$T/seen
export FAKE_VERBS_RAILS=2 NCCL_IB_HCA=railx
# try WHAT VARIABLE=VALUE...: runs the suite; the library must have seen WHAT.
try() {
	local seen=$1
	rm -f "$T/seen"
	env "${@:2}" timeout -k 5 $((150 * SLOW)) "$suite" 5 >"$T/out" 2>&1 || fail "${*:2}: $(grep -v 'NCCL INFO' "$T/out" | tail -n 20)"
	grep -q "slots for other nodes lie in GPU memory (dma-buf, arriving data are read back)" "$T/out" ||
		fail "no slot lies in GPU memory: $(grep 'slots for' "$T/out")"
	grep -qx "$seen" "$T/seen" || fail "not seen: $seen: $(cat "$T/seen")"
	echo "${*:2}: $(grep -c 'was broken' "$T/out") connections broke"
}
without_faults() {
	try "$@"
	! grep 'was broken\|not open' "$T/out" || fail "$*: faults where there are none"
}
without_faults "a read" FAKE_VERBS_FAULTS=0
without_faults "a queue pair was held back" FAKE_VERBS_HOLD=4
# The suite meets all faults of the list while connectors are closed (t_cut). A port that is
# reported down but works is not among them.
try "a read" FAKE_VERBS_FAULTS=40 FAKE_VERBS_READ=40
# A port that is down, and a device that has failed: data cannot be read back through either. No
# event reports that the port is active again.
try "a port was down" FAKE_VERBS_DOWN=railx0:300:600 FAKE_VERBS_UNTOLD=1
try "a device has failed" FAKE_VERBS_FATAL=railx1:300
exit 0
