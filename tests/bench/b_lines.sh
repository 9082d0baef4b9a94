#!/bin/bash
# Measures the time that the lines of a Python program (trace/record/script.c) add to a call of
# NCCL. The same calls run with and without them, in turns, PAIRS times. A figure is the median of
# the differences of neighbours. PYTHON: the interpreter.
set -u
cd "$SRC" || exit 1
unset DFSHIM_STATS DFSHIM_TRACE LD_PRELOAD
py=${PYTHON:-python3} names=(own library_10 library_40)
if ! "$py" -c 'import ctypes' 2>/dev/null; then
	printf 'BENCH lines.%s - ns target <=300 UNMEASURED\n' "${names[@]}"
	exit 0
fi
for ((i = 0; i < ${PAIRS:-9}; i++)); do
	for on in 0 1; do
		DFSHIM_PYTHON=$on timeout 100 "$B/dfshim" run --host=1 -- "$py" tests/bench/lines.py >"$T/ns.$on" || exit 1
	done
	paste -d' ' "$T/ns.0" "$T/ns.1"
done >"$T/pairs"
for k in 1 2 3; do
	awk -v k=$k '{ print $(k + 3) - $k }' "$T/pairs" | sort -g |
		awk -v n="${names[k - 1]}" '{ v[NR] = $1 } END { m = v[int((NR + 1) / 2)]
			printf "BENCH lines.%s %.0f ns target <=300 %s (%.0f to %.0f)\n", n, m, m <= 300 ? "ok" : "MISS", v[1], v[NR] }'
done
