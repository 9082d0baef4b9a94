#!/bin/bash
# Compares verbs with ib_write_bw (perftest), on the two Soft-RoCE devices of the virtual machine of
# scripts/rdma.sh. The machine's processors are emulated where there is no KVM, so only the ratios
# have a meaning.
#
#   verbs.send.share.*   the rate of sends of that number of bytes from one process to another, over
#                        a device each. 128 sends are issued before the first wait. Peer: messages
#                        of that size, 128 under way
#   verbs.send.single.*  each send is waited for. Peer: one message under way
#
# Runs that are compared take turns, PAIRS times (3), in an order that is reversed every time. A
# figure is the median of the pairs' ratios, followed by the smallest and the largest. SIZES: "65536
# 1048576". The machine has two processors, as two nodes would have.
set -u
cd "$SRC" || exit 1
if [ -z "${RDMA-}" ]; then
	CPUS=2 scripts/rdma.sh tests/bench/b_verbs.sh | sed -n '/^BENCH /p; s/^skipped: /# verbs: /p'
	exit "${PIPESTATUS[0]}"
fi
unset DFSHIM_TRACE DFSHIM_STATS LD_PRELOAD
export NCCL_NET_PLUGIN=none DFSHIM_NET=verbs DFSHIM_HOST_NODE_DEVICES=1 NCCL_IB_TIMEOUT=17 NCCL_IB_RETRY_CNT=6
export LATENCY_SEND=1 LATENCY_ROUNDS=3
pairs=${PAIRS:-3}
bytes_each=52428800 # some seconds

# Both functions print MB/s for messages of BYTES.
theirs() { # BYTES DEPTH
	timeout 60 ib_write_bw -d rxe0 -x 1 -s "$1" -n $((bytes_each / $1)) -F -t "$2" -Q 1 >"$T/server" 2>&1 &
	sleep 1
	timeout 60 ib_write_bw -d rxe1 -x 1 -s "$1" -n $((bytes_each / $1)) -F -t "$2" -Q 1 --report_gbits 10.78.0.1 >"$T/client" 2>&1
	wait $!
	awk -v b="$1" '$1 == b {print $4 * 125}' "$T/client"
}
ours() { # BYTES DEPTH
	# shellcheck disable=SC2016 # the inner shell expands its variables
	LATENCY_MIN=$1 LATENCY_MAX=$1 LATENCY_DEPTH=$2 timeout 150 "$B/dfshim" run --host -n 2 -- bash -c 'export NCCL_IB_HCA="=rxe$LOCAL_RANK:1"; exec "$@"' - \
		"$B/clients/latency" --timeout 140 >"$T/ours" 2>&1
	awk -v b="$1" '$1 == "latency:" && $2 == b {print $6 * 1000}' "$T/ours"
}
# figure NAME: prints the median of lines OURS THEIRS
figure() {
	awk '$1 > 0 && $2 > 0 {print $1 / $2, $1, $2}' | sort -g | awk -v n="$1" -v pairs="$pairs" '{r[NR] = $1; a[NR] = $2; b[NR] = $3}
		END {
			if (NR < pairs) { print "BENCH " n " - MB/s target >=0.8 UNMEASURED"; exit }
			m = int((NR + 1) / 2)
			ok = r[m] >= 0.8 ? "ok" : "MISS"
			printf "BENCH %s %.1f MB/s peer ib_write_bw %.1f ratio %.3f target >=0.8 %s (%.2f to %.2f)\n", n, a[m], b[m], r[m], ok, r[1], r[NR]
		}'
}
for bytes in ${SIZES:-65536 1048576}; do
	for depth in 128 1; do
		for ((i = 0; i < pairs; i++)); do
			if [ $((i % 2)) = 0 ]; then
				a=$(ours "$bytes" $depth) b=$(theirs "$bytes" $depth)
			else
				b=$(theirs "$bytes" $depth) a=$(ours "$bytes" $depth)
			fi
			echo "${a:-0} ${b:-0}"
		done | figure "verbs.send.$([ $depth = 1 ] && echo single || echo share).$((bytes >> 10))KiB"
	done
done
