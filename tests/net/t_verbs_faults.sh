#!/bin/bash
# Description: verbs that fail while jobs run: each completion status, before and after the other
# side has received the frame, each asynchronous event, pauses; the reason is named if something is
# missing or wrong.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
export DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info DFSHIM_HOST_NODE_DEVICES=1

# says TEXT: the last job printed a line with TEXT.
says() { grep -qF -- "$1" "$T/out" || fail "nobody says '$1': $(grep -i 'verbs\|rdma\|no rank\|reach' "$T/out" | tail -n 20)"; }
right() {
	rm -f "$T/stats"
	(host "$@") >"$T/out" 2>&1 || {
		tail -n 30 "$T/out"
		fail "$*"
	}
}
wrong() {
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/$1" "${@:2}" --timeout "${QUIET:-60}" >"$T/out" 2>&1 &&
		fail "$*: a job without a network ended well"
}

# Every fault of the list, one after the other; then a job in two processes.
export FAKE_VERBS_FAULTS=25 FAKE_VERBS_LOG=$T/faults
for net in verbs auto; do
	rm -f "$T/faults"
	DFSHIM_NET=$net right disorder --ranks 2 --iters 600 --colls 4 --max 65536 --seed "$SEED"
	read -r had _ all <<<"$(sort -n "$T/faults" | tail -n 1)"
	echo "$net: faults $had of $all, healed $(counted net_healed), slices sent again $(counted net_resent), dropped $(counted net_dropped)"
	[ "$had" -ge $((all - 1)) ] || fail "not all faults were had: $had of $all"
	[ "$(counted net_healed)" -ge 20 ] || fail "faults that healed: $(cat "$T/stats")"
	says 'was broken (rocex:1: '
done
says 'the RDMA device rocex has failed'
says 'over tcp'
FAKE_VERBS_FAULTS=60 DFSHIM_NET=verbs right disorder --ranks 2 --procs 2 --iters $((300 / SLOW)) --colls 4 --seed "$SEED"
[ "$(counted net_healed)" -gt 0 ] || fail "nothing healed: $(cat "$T/stats")"
unset FAKE_VERBS_FAULTS FAKE_VERBS_LOG

# Queue pairs that carry nothing: sockets take over, where permitted.
FAKE_VERBS=blackhole DFSHIM_NET_TIMEOUT_MS=2000 right collcheck --ranks 2 --sample 5
says 'verbs do not connect rocex:1 (GID 10.1.0.5) to device'
says 'over tcp'
# There is memory for the queues, but not for the slots.
FAKE_VERBS_MEMLOCK=200000 DFSHIM_NET=verbs right collcheck --ranks 2 --sample 40
says 'their slices go over sockets'
FAKE_VERBS=memlock right collcheck --ranks 2 --sample 5
says 'rocex cannot register memory: Cannot allocate memory; RLIMIT_MEMLOCK is'
says 'over tcp'

# The requested device does not exist.
NCCL_IB_HCA=nosuch right collcheck --ranks 2 --sample 5
says 'dfshim uses sockets, because no RDMA port can be used: rocex:1 not named by NCCL_IB_HCA=nosuch'
export DFSHIM_NET=verbs
for try in "NCCL_IB_HCA=nosuch not named by NCCL_IB_HCA=nosuch" "FAKE_VERBS=none the kernel has no RDMA device" \
	"NCCL_IB_GID_INDEX=9 NCCL_IB_GID_INDEX=9: the port has no such GID" "FAKE_VERBS=memlock cannot register memory" \
	"NCCL_IBVERBS_LIB=/nosuch.so /nosuch.so: cannot open" "FAKE_VERBS=hang did not return within 10 s"; do
	export "${try%% *}"
	wrong collcheck --ranks 2 --sample 5
	says "DFSHIM_NET=verbs, but no RDMA port can be used: "
	says "${try#* }"
	says 'cannot reach rank'
	unset FAKE_VERBS NCCL_IB_GID_INDEX
	export NCCL_IBVERBS_LIB=$T/libfake_verbs.so NCCL_IB_HCA=rocex
done
exit 0
