#!/bin/bash
# Measures the cost of relaxed order for a job that does not need it: the same ordered calls with
# and without DFSHIM_STREAM_ORDER=strict, one process for each rank. Runs of the two alternate, and
# the figure is the median of the ratios of neighbours: a machine that slows down for a while slows
# both.
set -u
cd "$SRC" || exit 1
unset DFSHIM_TRACE DFSHIM_STATS
export LATENCY_ROUNDS=${LATENCY_ROUNDS:-11} LATENCY_MAX=${LATENCY_MAX:-16777216}
pairs=${PAIRS:-21}

for ((i = 0; i < pairs; i++)); do
	# Each goes first every other time.
	orders="relaxed strict"
	[ $((i % 2)) = 0 ] || orders="strict relaxed"
	for order in $orders; do
		DFSHIM_STREAM_ORDER=$order timeout 60 "$B/dfshim" run --host -n 2 -- "$B/clients/latency" --timeout 50 2>/dev/null |
			awk -v i="$i" -v o="$order" '$1 == "latency:" && $3 == "bytes" {print i, o, $2, $4, $9}'
	done
done >"$T/strict"

# figure NAME BYTES COLUMN UNIT: prints the median ratio
figure() {
	awk -v b="$2" -v c="$3" '$3 == b {v[$2, $1] = $c; n = $1 > n ? $1 : n}
		END {for (i = 0; i <= n; i++) if (("relaxed", i) in v && v["strict", i] > 0)
			print v["relaxed", i] / v["strict", i], v["relaxed", i], v["strict", i]}' "$T/strict" |
		sort -g | awk -v n="$1" -v u="$4" '{r[NR] = $1; a[NR] = $2; b[NR] = $3}
		END {
			if (NR < 3) { printf "BENCH %s - %s target <=1.02 UNMEASURED\n", n, u; exit }
			m = int((NR + 1) / 2)
			printf "BENCH %s %s %s peer strict %s ratio %.3f target <=1.02 %s\n", n, a[m], u, b[m], r[m], r[m] <= 1.02 ? "ok" : "MISS"
		}'
}
figure relaxed.call 8 5 us
figure relaxed.latency.8B 8 4 us
for b in 1048576 4194304 16777216; do
	[ $b -gt "$LATENCY_MAX" ] || figure "relaxed.time.$((b >> 20))MiB" $b 4 us
done
