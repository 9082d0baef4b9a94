#!/bin/bash
# AllReduce between processes of one machine, on CPU threads: ours beside Open MPI's MPI_Allreduce with the
# same number of processes, sizes, repetitions; medians. And what a call of ncclAllReduce costs the caller.
set -u
cd "$SRC" || exit 1
export LATENCY_ROUNDS=${LATENCY_ROUNDS:-11} LATENCY_MAX=${LATENCY_MAX:-67108864}
unset DFSHIM_TRACE DFSHIM_STATS

mpi=
if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
	mpicc -O2 -o "$T/mpi_allreduce" tests/bench/mpi_allreduce.c && mpi=1
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

field() { awk -v b="$2" -v f="$3" '$1 == "latency:" && $2 == b {print $f}' "$1"; }
# figure NAME VALUE UNIT PEER OP TARGET: TARGET is a bound on ours / peer
figure() {
	awk -v n="$1" -v v="$2" -v u="$3" -v p="$4" -v op="$5" -v t="$6" 'BEGIN {
		if (v == "") { printf "BENCH %s - %s target %s%s UNMEASURED\n", n, u, op, t; exit }
		if (p == "") { printf "BENCH %s %s %s target %s%s UNMEASURED\n", n, v, u, op, t; exit }
		r = v / p
		ok = op == "<=" ? r <= t : r >= t
		printf "BENCH %s %s %s peer openmpi %s ratio %.3f target %s%s %s\n", n, v, u, p, r, op, t, ok ? "ok" : "MISS"
	}'
}
for n in 2 4; do
	timeout 280 "$B/dfshim" run --host -n $n -- "$B/clients/latency" --timeout 60 >"$T/ours.$n" 2>"$T/ours.$n.err" || {
		tail -3 "$T/ours.$n.err" >&2
		: >"$T/ours.$n"
	}
	: >"$T/mpi.$n"
	[ -z "$mpi" ] || timeout 280 mpirun --oversubscribe --bind-to none -n $n "$T/mpi_allreduce" \
		>"$T/mpi.$n" 2>/dev/null
	figure "mpi.allreduce.$n.latency.8B" "$(field "$T/ours.$n" 8 4)" us "$(field "$T/mpi.$n" 8 4)" "<=" 3.0
	for b in 1048576 4194304 16777216 67108864; do
		[ $b -le "$LATENCY_MAX" ] || continue
		figure "mpi.allreduce.$n.busbw.$((b >> 20))MiB" "$(field "$T/ours.$n" $b 6)" GB/s \
			"$(field "$T/mpi.$n" $b 6)" ">=" 1.0
	done
	v=$(field "$T/ours.$n" 8 9)
	if [ -z "$v" ]; then
		echo "BENCH call.allreduce.$n - us target <=1 UNMEASURED"
	else
		echo "BENCH call.allreduce.$n $v us target <=1 $(awk -v v="$v" 'BEGIN {print v <= 1 ? "ok" : "MISS"}')"
	fi
done
