#!/bin/bash
# Description: two ranks on two RDMA devices of a kernel, over verbs: collectives, over one device
# each and over both; recovery from queue pairs put into error and from a link that is down for 1 s.
set -u
. "$SRC/tests/lib/clients.sh"
[ -n "${RDMA-}" ] || skip "no RDMA device of our own here: make check-rdma has a machine with two"
export DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_NET=verbs NCCL_NET_PLUGIN=none
# 7 retries would mean retrying forever on these devices, and the processor is emulated.
export NCCL_IB_TIMEOUT=17 NCCL_IB_RETRY_CNT=6 QUIET=120 LIMIT=200
counted() { awk -v k="\"$1\":" '{ for (i = 1; i < NF; i++) if ($i == k) sum += $(i + 1) } END { print sum + 0 }' "$T/stats"; }
sent() { cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts; }
# job CLIENT ARGS...: runs a process for each rank. Each has a device of its own; or with EACH empty
# both devices, and then ports of the same index are connected, and no packet leaves its device.
job() {
	rm -f "$T/stats"
	# shellcheck disable=SC2016 # its own variables
	timeout -k 5 "$LIMIT" "$B/dfshim" run --host -n 2 -- bash -c '[ -z "$0" ] || export NCCL_IB_HCA="=rxe$LOCAL_RANK:1"; exec "$@"' \
		"${EACH-1}" "$C/$1" "${@:2}" --timeout "$QUIET" >"$T/out" 2>&1 || {
		tail -n 30 "$T/out"
		fail "$*"
	}
	grep -q 'over verbs$' "$T/out" || fail "not over verbs: $(grep -i 'verbs\|rdma' "$T/out")"
}

before=$(sent)
job collcheck --sample 4 --seed "$SEED"
grep -E -m 1 ': verbs from rxe0:1 \(GID 10.78.0.1\) to device 1 of .* \(GID 10.78.0.2\)' "$T/out" || fail "which ports: $(grep verbs "$T/out")"
[ "$(sent)" -gt "$before" ] || fail "the device has sent nothing"
echo "collectives: right, $(($(sent) - before)) packets, $(counted net_bytes_sent) bytes"
EACH='' job disorder --iters 5 --colls 4 --max 65536 --seed "$SEED"
[ "$(grep -cE ': verbs from rxe[01]:1 ' "$T/out")" = 4 ] || fail "not over both devices: $(grep verbs "$T/out")"
[ "$(counted net_faults)" = 0 ] || fail "faults where there are none: $(cat "$T/stats")"

# Queue pairs are put into error.
if [ -f "$B/tests/rdma/libqp_error.so" ]; then
	NCCL_IBVERBS_LIB=$B/tests/rdma/libqp_error.so QP_ERROR_MS=700 QP_ERRORS=4 \
		job disorder --iters 60 --colls 4 --max 65536 --seed "$SEED"
	[ "$(counted net_healed)" -gt 0 ] || fail "nothing was healed: $(cat "$T/stats" "$T/out")"
	echo "queue pairs in error: $(grep -c 'qp_error: ' "$T/out"), healed $(counted net_healed), slices sent again $(counted net_resent)"
	grep -m 1 'was broken' "$T/out"
else
	echo "queue pairs were not put into error: built without libibverbs.so"
fi

# Faults on the link between the two ports, which the session's sockets do not use.
DFSHIM_NET_TIMEOUT_MS=60000 job disorder --iters 60 --colls 4 --max 65536 --seed "$SEED" &
job=$!
for _ in {1..600}; do
	! grep -q 'over verbs$' "$T/out" || break
	sleep 0.1
done
sleep 0.5
ip link set r1 down
sleep 1
ip link set r1 up
wait $job || fail "after a link that was down for 1 s: $(tail -n 30 "$T/out")"
echo "link down for 1 s: faults $(counted net_faults), healed $(counted net_healed)"
exit 0
