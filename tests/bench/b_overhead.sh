#!/bin/bash
# Measures the cost of dfshim for a job: mode trace and mode prevent beside the same job without
# dfshim, on the CPU. Reports a step's time, the memory of the largest rank, the bytes of trace for
# a step, and the table of docs/evaluation.md (`$T/table`).
#
#   latency   ncclAllReduce again and again, 8 bytes and 1 MiB, a process for each rank
#             (tests/clients/latency.c)
#   nccltests the same by NVIDIA's nccl-tests (all_reduce_perf -c 0), a thread for each rank.
#             NCCL_TESTS: the folder with its programs
#   ddp       the communication of data-parallel training with computation between
#             (tests/clients/ddp.c): a step of 50 ms
#   torch     a small GPT under PyTorch's DistributedDataParallel (tests/bench/torch_bench.py).
#             TORCH_PYTHON: a Python that has PyTorch
#
# The job without dfshim and the job in mode trace run on libdfnccl.so, an NCCL that executes on the
# CPU. Runs of the three take turns, PAIRS times. A figure is the median of the ratios of
# neighbours. PARTS: only these. The figures of the others are kept from before.
set -u
cd "$SRC" || exit 1
unset DFSHIM_STATS DFSHIM_TRACE LD_PRELOAD
pairs=${PAIRS:-9} parts=${PARTS:-latency nccltests ddp torch} ranks=2
export LATENCY_ROUNDS=${LATENCY_ROUNDS:-11} LATENCY_MAX=1048576 DDP_ITERATIONS=${DDP_ITERATIONS:-40} STEPS=${STEPS:-12}
mkdir -p "$T/figures"
rm -rf "$T/traces"

# measured COMMAND...: runs the command, and prints "memory N": the most KiB that one of its
# processes had
cat >"$T/measured.py" <<'PY'
import resource, subprocess, sys

status = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL).returncode
print("memory", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
PY
# The environment that `dfshim run` gives a job executed by NCCL's rules; the modes differ in the
# preloaded libraries.
mapfile -t given < <("$B/dfshim" run --host=$ranks --rules nccl --dry-run -- x | grep -v '^LD_PRELOAD=\|^DFSHIM_MODE=')
# words PART: prints the command of the part, a word a line
words() {
	case $1 in
	latency) printf '%s\n' "$B/clients/latency" --procs $ranks --timeout 60 ;;
	nccltests) printf '%s\n' "${NCCL_TESTS-}/all_reduce_perf" -t $ranks -g 1 -b 8 -e 1M -f 131072 -c 0 -w 20 -n 200 ;;
	ddp) printf '%s\n' "$B/clients/ddp" --procs $ranks --timeout 60 ;;
	torch) printf '%s\n' "${TORCH_PYTHON-}" -m torch.distributed.run --standalone --nproc-per-node $ranks tests/bench/torch_bench.py gpt ;;
	esac
}
# run PART MODE PAIR: prints lines "NAME MODE PAIR WHAT VALUE"
run() {
	local name=$1 mode=$2 pair=$3 e=("${given[@]}") line
	case $mode in
	none) e+=("LD_PRELOAD=$B/libdfhost.so $B/libdfnccl.so") ;;
	trace) e+=(DFSHIM_MODE=trace "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so") ;;
	prevent) e+=("LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so") ;;
	esac
	[ "$mode" = none ] || e+=("DFSHIM_TRACE=$T/traces")
	mapfile -t line < <(words "$name")
	timeout 200 python3 "$T/measured.py" env "${e[@]}" "${line[@]}" 2>"$T/err.$name.$mode" | awk -v n="$name" -v m="$mode" -v p="$pair" '
		$1 == "latency:" && $3 == "bytes" {print n "." $2 "B", m, p, "step", $4}
		$1 ~ /^[0-9]+$/ && $3 == "float" {print n "." $1 "B", m, p, "step", $6}
		$1 == "ddp:" && $5 == "step" {print n, m, p, "step", $2 * 1000}
		$1 == "step" {print n, m, p, "step", $2 * 1000}
		$1 == "memory" {print n, m, p, "memory", $2}'
	[ "$mode" = none ] || "$B/dfshim" ls --json "$T/traces" 2>/dev/null |
		jq -r --arg n "$name" --arg m "$mode" --arg p "$pair" '[.[] | (.records + .overwritten) * 64] | max | "\($n) \($m) \($p) trace \(.)"'
	rm -rf "$T/traces"
}
for part in $parts; do
	case $part in
	nccltests) [ -x "${NCCL_TESTS-}/all_reduce_perf" ] || { echo "# NCCL_TESTS names no folder with all_reduce_perf" && continue; } ;;
	torch) "${TORCH_PYTHON:-false}" -c 'import torch' 2>/dev/null || { echo "# TORCH_PYTHON names no Python with PyTorch" && continue; } ;;
	esac
	for ((i = 0; i < pairs; i++)); do
		# Each mode goes first in turn.
		modes=(none trace prevent none trace)
		for mode in "${modes[@]:i % 3:3}"; do run "$part" "$mode" "$i"; done
	done >"$T/figures/$part.new"
	mv "$T/figures/$part.new" "$T/figures/$part"
done

# middle NAME MODE WHAT: prints the median
middle() {
	awk -v n="$1" -v m="$2" -v w="$3" '$1 == n && $2 == m && $4 == w {print $5}' "$T"/figures/* | sort -g |
		awk '{a[NR] = $1} END {if (NR) print a[int((NR + 1) / 2)]}'
}
# ratios NAME MODE: prints the ratios of neighbours in ascending order
ratios() {
	awk -v n="$1" -v m="$2" '$1 == n && $4 == "step" {v[$2, $3] = $5; last = $3 > last ? $3 : last}
		END {for (i = 0; i <= last; i++) if (v[m, i] > 0 && v["none", i] > 0) print v[m, i] / v["none", i]}' "$T"/figures/* | sort -g
}
nr=$(awk '$4 == "memory" && $2 == "none" {n[$1]++} END {for (p in n) print n[p]}' "$T"/figures/* | sort -nu | paste -sd/)
{
	echo "$(nproc) processors, $(date -u +%F), $ranks ranks; medians of the ratios of ${nr//\// or } neighbouring runs, and in brackets the middle half of them."
	echo
	echo "| | without | mode trace | mode prevent |"
	echo "|---|---|---|---|"
} >"$T/table"
step() { # NAME WORDS
	local name=$1 mode v p row="| $2"
	p=$(middle "$name" none step)
	row="$row | $([ -n "$p" ] && awk -v p="$p" 'BEGIN {printf p < 1000 ? "%.3g us" : "%.3g ms", p < 1000 ? p : p / 1000}' || echo not measured)"
	for mode in trace prevent; do
		v=$(ratios "$name" $mode | awk '{a[NR] = $1} END {if (NR >= 3) print a[int((NR + 1) / 2)], a[int((NR + 3) / 4)], a[int((3 * NR + 3) / 4)]}')
		if [ -z "$v" ]; then
			echo "BENCH overhead.$name.$mode - us target $([ $mode = trace ] && echo "<=1.01" || echo -) UNMEASURED"
			row="$row | not measured"
			continue
		fi
		awk -v n="$name" -v m="$mode" -v v="$(middle "$name" $mode step)" -v p="$p" -v r="${v%% *}" 'BEGIN {
			printf "BENCH overhead.%s.%s %.1f us peer none %.1f ratio %.3f target %s\n", n, m, v, p, r,
				m == "trace" ? "<=1.01 " (r <= 1.01 ? "ok" : "MISS") : "- ok"}'
		# shellcheck disable=SC2086 # words
		row="$row | $(printf '%s\n' $v | awk '{printf NR == 1 ? "%+.1f %%" : NR == 2 ? " (%+.1f to" : " %+.1f)", ($1 - 1) * 100}')"
	done
	echo "$row |" >>"$T/table"
}
step latency.8B "all-reduce of 8 bytes (\`clients/latency\`)"
step latency.1048576B "all-reduce of 1 MiB"
step nccltests.8B "all-reduce of 8 bytes (nccl-tests, \`-c 0\`)"
step nccltests.1048576B "all-reduce of 1 MiB"
step ddp "training step with 48 ms of computation (\`clients/ddp\`)"
step torch "PyTorch DDP step (GPT, 10 M parameters)"
per_rank() { # NAME WORDS STEPS
	local name=$1 mode kib none bytes each row="| memory of a rank, $2"
	none=$(middle "$name" none memory)
	row="$row | $([ -n "$none" ] && echo "$((none / 1024)) MiB" || echo not measured)"
	for mode in trace prevent; do
		kib=$(middle "$name" $mode memory)
		[ -n "$kib" ] && [ -n "$none" ] || { row="$row | not measured" && continue; }
		each=$(awk -v a="$kib" -v b="$none" 'BEGIN {printf "%.1f", (a - b) / 1024}')
		# The limit is 64 MiB, and 16 MiB for the ring of the trace.
		echo "BENCH overhead.memory.$name.$mode $each MiB target <=80 $(awk -v m="$each" 'BEGIN {print m <= 80 ? "ok" : "MISS"}')"
		row="$row | $(printf '%+.1f MiB' "$each")"
	done
	echo "$row |" >>"$T/table"
	row="| trace of a rank, a step, $2 | -"
	for mode in trace prevent; do
		bytes=$(middle "$name" $mode trace)
		[ -n "$bytes" ] || { row="$row | not measured" && continue; }
		each=$(awk -v b="$bytes" -v n="$3" 'BEGIN {printf "%.0f", b / n}')
		echo "BENCH overhead.trace.$name.$mode $each bytes/step target - ok"
		row="$row | $each bytes"
	done
	echo "$row |" >>"$T/table"
}
per_rank ddp "\`clients/ddp\`" "$DDP_ITERATIONS"
per_rank torch "PyTorch DDP" "$STEPS"
# b_profiler prints a figure for each kind of event of NCCL's profiler plugin: NCCL on the CPU
# reports no events.
"$B/tests/bench/b_profiler" || exit 1
