#!/bin/bash
# Compares AllReduce between processes of one machine, on CPU threads, with Open MPI's MPI_Allreduce
# for the same number of processes, sizes and repetitions. Also measures the caller's time in
# ncclAllReduce.
#
# Runs of the two take turns, PAIRS times (7). A figure is the median of the pairs' ratios, followed
# by the smallest and the largest. The speed of a run depends on the processors that it got: on a
# virtual machine a cache line may need four times as long between two of them in one run as in the
# next, for both programs alike.
set -u
cd "$SRC" || exit 1
export LATENCY_ROUNDS=${LATENCY_ROUNDS:-5} LATENCY_MAX=${LATENCY_MAX:-67108864}
pairs=${PAIRS:-7}
unset DFSHIM_TRACE DFSHIM_STATS

mpi=
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
	mpicc -O2 -o "$T/mpi_allreduce" tests/bench/mpi_allreduce.c && mpi=1
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# ours, theirs RANKS PAIR MAX ROUNDS: print one run as lines NAME PAIR BYTES LATENCY BUSBW CALL
ours() {
	LATENCY_MAX=$3 LATENCY_ROUNDS=$4 timeout 100 "$B/dfshim" run --host -n "$1" -- "$B/clients/latency" --timeout 60 2>"$T/err" |
		awk -v i="$2" '$1 == "latency:" && $3 == "bytes" {print "ours", i, $2, $4, $6, $9}'
}
theirs() {
	[ -z "$mpi" ] || LATENCY_MAX=$3 LATENCY_ROUNDS=$4 timeout 100 mpirun --oversubscribe --bind-to none -n "$1" "$T/mpi_allreduce" \
		2>/dev/null | awk -v i="$2" '$1 == "latency:" {print "mpi", i, $2, $4, $6}'
}
# pairs_of FILE RANKS MAX ROUNDS: runs both in pairs, in which each goes first every other time
pairs_of() {
	local i
	: >"$1"
	for ((i = 0; i < pairs; i++)); do
		if [ $((i % 2)) = 0 ]; then
			ours "$2" "$i" "$3" "$4" && theirs "$2" "$i" "$3" "$4"
		else
			theirs "$2" "$i" "$3" "$4" && ours "$2" "$i" "$3" "$4"
		fi >>"$1"
	done
}
# figure NAME FILE BYTES COLUMN UNIT OP TARGET: prints a figure. TARGET is a bound on ours / peer
figure() {
	awk -v b="$3" -v c="$4" '$3 == b {v[$1, $2] = $c; seen[$1] = 1; n = $2 > n ? $2 : n}
		END {for (i = 0; i <= n; i++) if (("ours", i) in v && v["mpi", i] > 0)
			print v["ours", i] / v["mpi", i], v["ours", i], v["mpi", i]}' "$2" |
		sort -g | awk -v n="$1" -v u="$5" -v op="$6" -v t="$7" -v pairs="$pairs" '{r[NR] = $1; a[NR] = $2; b[NR] = $3}
		END {
			if (NR < pairs) { printf "BENCH %s - %s target %s%s UNMEASURED\n", n, u, op, t; exit }
			m = int((NR + 1) / 2)
			ok = op == "<=" ? r[m] <= t : r[m] >= t
			printf "BENCH %s %s %s peer openmpi %s ratio %.3f target %s%s %s (%.2f to %.2f)\n",
				n, a[m], u, b[m], r[m], op, t, ok ? "ok" : "MISS", r[1], r[NR]
		}'
}
for n in 2 4; do
	# A small AllReduce is over before other work of the machine can disturb it, so it is
	# measured by itself, with more rounds.
	pairs_of "$T/small" $n 8 41
	figure "mpi.allreduce.$n.latency.8B" "$T/small" 8 4 us "<=" 3.0
	awk '$1 == "ours" && $3 == 8 {print $6}' "$T/small" | sort -g | awk -v n="call.allreduce.$n" -v pairs="$pairs" '{v[NR] = $1}
		END {
			if (NR < pairs) { print "BENCH " n " - us target <=1 UNMEASURED"; exit }
			m = int((NR + 1) / 2)
			printf "BENCH %s %s us target <=1 %s (%s to %s)\n", n, v[m], v[m] <= 1 ? "ok" : "MISS", v[1], v[NR]
		}'
	[ "$LATENCY_MAX" -ge 1048576 ] || continue
	pairs_of "$T/large" $n "$LATENCY_MAX" "$LATENCY_ROUNDS"
	for b in 1048576 4194304 16777216 67108864; do
		[ $b -gt "$LATENCY_MAX" ] || figure "mpi.allreduce.$n.busbw.$((b >> 20))MiB" "$T/large" $b 5 GB/s ">=" 1.0
	done
done
