#!/bin/bash
# Measures Table 1 of the DFCCL paper under each semantics and dispatch. Prints one JSON line for
# each run, with its processor time, for docs/simulator.md. The configurations are those of
# docs/sim/.
#
#   tests/bench/sim_table1.sh [--rounds N] [--jobs N] [--seed N] [FILTER]
set -eu
cd "$(dirname "$0")/../.."
SIM=${SIM:-build/dfshim}
rounds=32000 jobs=$(nproc) seed=1 filter=
while [ $# -gt 0 ]; do
	case $1 in
	--rounds) rounds=$2; shift 2 ;;
	--jobs) jobs=$2; shift 2 ;;
	--seed) seed=$2; shift 2 ;;
	-*) echo "usage: $0 [--rounds N] [--jobs N] [--seed N] [FILTER]" >&2; exit 2 ;;
	*) filter=$1; shift ;;
	esac
done
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for file in docs/sim/*.json; do
	name=$(basename "$file" .json)
	case $name in *"$filter"*) ;; *) continue ;; esac
	case $name in single_*) semantics="artifact exact fifo" ;; *) semantics="artifact exact" ;; esac
	for s in $semantics; do
		for d in interleave concatenate; do
			TIMEFORMAT=%U
			{ cpu=$({ time "$SIM" sim "$file" --semantics "$s" --dispatch "$d" --rounds "$rounds" \
				--seed "$seed" --jobs "$jobs" --json >&3; } 2>&1); } 3>"$out"
			tr -d '\n' <"$out" | tr -s ' ' | sed "s/^{/{\"name\": \"$name\", \"cpu_seconds\": $cpu,/"
			echo
		done
	done
done
