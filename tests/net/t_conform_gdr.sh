#!/bin/bash
# Description: the transports' suite (transport/t_conform) over verbs with slots in GPU memory, which the host can't touch and where what is written is seen late: without faults, with, and while queue pairs are held back at random.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
suite=$B/tests/transport/t_conform
[ -x "$suite" ] || skip "transport/t_conform is not built here"
[ -f "$B/tests/cuda/driver/libcuda.so.1" ] || skip "built without CUDA headers"
export DFSHIM_DEBUG=info SEED DFSHIM_NET=verbs NCCL_NET_PLUGIN=none DFSHIM_NET_GDR=1 FAKE_CUDA_GDR=dmabuf FAKE_VERBS_SEEN=$T/seen
export FAKE_VERBS_RAILS=2 NCCL_IB_HCA=railx
# A fault every so many sends, and ms for which queue pairs are held back at random.
for try in "0 0" "150 0" "0 4"; do
	read -r faults hold <<<"$try"
	rm -f "$T/seen"
	FAKE_VERBS_FAULTS=$faults FAKE_VERBS_READ=$faults FAKE_VERBS_HOLD=$hold timeout -k 5 $((100 * SLOW)) "$suite" 5 >"$T/out" 2>&1 ||
		fail "a fault every $faults sends: $(grep -v 'NCCL INFO' "$T/out" | tail -n 20)"
	grep -q "slots for other nodes lie in GPU memory (dma-buf, what comes is read back)" "$T/out" ||
		fail "no slot lies in GPU memory: $(grep 'slots for' "$T/out")"
	grep -qx "a read" "$T/seen" || fail "nothing was read back: $(cat "$T/seen")"
	[ "$hold" = 0 ] || grep -qx "a queue pair was held back" "$T/seen" || fail "nothing was held back: $(cat "$T/seen")"
	[ "$faults" != 0 ] || ! grep 'was broken\|not open' "$T/out" || fail "faults where there are none"
	echo "a fault every $faults sends, held back for $hold ms: $(grep -c 'was broken' "$T/out") connections broke"
done
exit 0
