#!/bin/bash
# Measures the benefit of priorities: an 8 KiB all-reduce of high priority, one a millisecond, runs
# beside 64 MiB all-reduces on another communicator. There are 2 and 4 ranks, one process each. The
# latency of the small all-reduce is compared with that on the idle machine and with that under
# DFSHIM_ORDER=fifo. The time of a large all-reduce is compared with that of large ones alone in the
# order of issue.
#
# The four take turns, PAIRS times (7), and each goes first in its turn. A figure is the median of
# the rounds' ratios, followed by the smallest and the largest.
set -u
cd "$SRC" || exit 1
unset DFSHIM_TRACE DFSHIM_STATS DFSHIM_PRIORITY
pairs=${PAIRS:-7}

# job RANKS ORDER BYTES BULK OPS: prints the median latency in us, and the time of a large
# all-reduce in ms
job() {
	DFSHIM_ORDER=$2 PRIORITY_BYTES=$3 PRIORITY_BULK=$4 PRIORITY_OPS=$5 timeout 100 \
		"$B/dfshim" run --host -n "$1" -- "$B/clients/priority" --timeout 50 2>/dev/null |
		awk '$1 == "priority:" && $2 == "urgent" {print $3, $9}'
}
# figure NAME COLUMN PEER PEERCOLUMN UNIT OP LIMIT: compares two columns of $T/rounds
figure() {
	awk -v a="$2" -v b="$4" 'NF == 8 && $a > 0 && $b > 0 {print $a / $b, $a, $b}' "$T/rounds" | sort -g |
		awk -v name="$1" -v peer="$3" -v unit="$5" -v op="$6" -v limit="$7" -v want="$pairs" '
		{r[NR] = $1; x[NR] = $2; y[NR] = $3}
		END {
			if (NR < want) { printf "BENCH %s - %s target %s%s UNMEASURED\n", name, unit, op, limit; exit }
			m = int((NR + 1) / 2)
			ok = op == "<=" ? r[m] <= limit : r[m] >= limit
			printf "BENCH %s %s %s peer %s %s ratio %.3f target %s%s %s (%.2f to %.2f)\n",
				name, x[m], unit, peer, y[m], r[m], op, limit, ok ? "ok" : "MISS", r[1], r[NR]
		}'
}
for n in 2 4; do
	: >"$T/rounds"
	for ((i = 0; i < pairs; i++)); do
		declare -A got=()
		# Measurements that are compared follow one another: a machine with other users may
		# be faster a second later.
		all=(idle priority alone fifo)
		for ((k = 0; k < 4; k++)); do
			case ${all[i % 2 ? 3 - k : k]} in
			idle) got[idle]=$(job "$n" fifo 8192 0 400) ;;
			fifo) got[fifo]=$(job "$n" fifo 8192 67108864 30) ;;
			priority) got[priority]=$(job "$n" priority 8192 67108864 600) ;;
			alone) got[alone]=$(job "$n" fifo 0 67108864 600) ;;
			esac
		done
		echo "${got[idle]} ${got[fifo]} ${got[priority]} ${got[alone]}" >>"$T/rounds"
	done
	figure "priority.$n.latency" 5 idle 1 us "<=" 3
	figure "priority.$n.fifo" 3 priority 5 us ">=" 1
	figure "priority.$n.bulk" 6 alone 8 ms "<=" 1.05
done
