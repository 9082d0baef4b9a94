#!/bin/bash
# Measures the cost of lanes on CPU threads: libdfnccl.so behind libdfshim.so (DFSHIM_EXECUTOR=nccl)
# beside libdfnccl.so alone, in processes.
#
#   lanes.allreduce.RANKS.SIZE   the time of an AllReduce
#   lanes.ddp.RANKS              the time of a step that reduces buckets
#   lanes.comms.2                an AllReduce on one of 64 communicators, in one order, where all
#                                fit on a device
#   lanes.held.2                 the same with room for 4, so that most operations are held
#
# The two take turns, PAIRS times (7). value and peer are medians. The ratio is the median of the
# ratios of pairs, and the brackets hold the least and the greatest. Lanes may add at most 3 us plus
# 3 %.
set -u
[ -f "$B/libdfnccl.so" ] && [ -x "$B/clients/ddp" ] || { echo "# lanes: the clients are not built here" && exit 77; }
unset DFSHIM_TRACE DFSHIM_STATS
export LATENCY_ROUNDS=${LATENCY_ROUNDS:-9}

# one HOW CLIENT ARGS...: prints the client's figure in us
one() {
	local how=$1 client=$B/clients/$2
	shift 2
	local env=(DFSHIM_BACKEND=host "LD_PRELOAD=$B/libdfhost.so $B/libdfnccl.so")
	[ "$how" = alone ] || env=(DFSHIM_BACKEND=host DFSHIM_EXECUTOR=nccl "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so")
	timeout -k 5 100 env "${env[@]}" "$client" "$@" --timeout 60 2>>"$T/$how.err" | figure
}
# pairs NAME CLIENT ARGS...: measures with and without lanes in turns
pairs() {
	local name=$1 i
	shift
	: >"$T/pairs"
	for ((i = 0; i < ${PAIRS:-7}; i++)); do
		if ((i % 2)); then
			a=$(one alone "$@") l=$(one lanes "$@")
		else
			l=$(one lanes "$@") a=$(one alone "$@")
		fi
		[ -n "$a" ] && [ -n "$l" ] && echo "$a $l" >>"$T/pairs"
	done
	python3 - "$T/pairs" "lanes.$name" <<'P'
import statistics, sys
v = [tuple(map(float, line.split())) for line in open(sys.argv[1])]
if not v:
    print(f"BENCH {sys.argv[2]} - us target <=1.03+3us UNMEASURED")
    sys.exit()
r = [l / a for a, l in v]
a, l, m = (statistics.median(x) for x in ([a for a, _ in v], [l for _, l in v], r))
ok = statistics.median(l - 1.03 * a for a, l in v) <= 3
print(f"BENCH {sys.argv[2]} {l:.2f} us peer libdfnccl {a:.2f} ratio {m:.3f} target <=1.03+3us {'ok' if ok else 'MISS'} ({min(r):.2f} to {max(r):.2f})")
P
}

figure() { sed -nE 's/^latency: [0-9]+ bytes ([0-9.]+) us.*/\1/p'; }
for ranks in 2 4; do
	for size in 8 65536 1048576 16777216; do
		export LATENCY_MIN=$size LATENCY_MAX=$size
		pairs "allreduce.$ranks.$size" latency --ranks $ranks --procs $ranks
	done
done
figure() { sed -nE 's/^ddp: ([0-9.]+) ms a step/\1/p' | awk '{print $1 * 1000; exit}'; }
pairs ddp.2 ddp --ranks 2 --procs 2
figure() { sed -nE 's/.*"seconds": *([0-9.]+).*/\1/p' | awk '{print $1 * 1e6 / (64 * 20); exit}'; }
many=(disorder --ranks 2 --procs 2 --colls 64 --comms 64 --iters 20 --inorder --warmup --no-check --json --min 1024 --max 1024)
DFSHIM_HOST_SMS=2048 pairs comms.2 "${many[@]}"
DFSHIM_HOST_SMS=64 pairs held.2 "${many[@]}"
