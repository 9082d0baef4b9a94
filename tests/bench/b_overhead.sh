#!/bin/bash
# What dfshim costs a job: mode trace and mode prevent beside the same job without it, on the CPU. A step's time, memory of
# the largest rank, bytes of trace a step; and the table of the README (`$T/table`).
#
#   latency   ncclAllReduce again and again, as nccl-tests does with -c 0: 8 bytes and 1 MiB
#   ddp       the communication of data-parallel training with computation between (tests/clients/ddp.c): a step of 50 ms
#   torch     PyTorch's DistributedDataParallel; TORCH_PYTHON: a Python that has it
#
# Without a GPU "without it" needs an NCCL that executes on the CPU: libdfnccl.so, or what NCCL_CPU names. Runs of the three
# take turns, PAIRS times; a figure is the median of the ratios of neighbours.
set -u
cd "$SRC" || exit 1
unset DFSHIM_STATS DFSHIM_TRACE LD_PRELOAD
pairs=${PAIRS:-9} ranks=2
export LATENCY_ROUNDS=${LATENCY_ROUNDS:-11} LATENCY_MAX=1048576 DDP_ITERATIONS=${DDP_ITERATIONS:-40}
nccl=${NCCL_CPU:-$B/libdfnccl.so} all="none trace prevent"
[ -f "$nccl" ] || {
	echo "# no NCCL that executes on the CPU here: only mode prevent is run"
	all=prevent
}
rm -rf "$T/traces"

# measured COMMAND...: prints what it prints, and "memory N": the most KiB that one of its processes had.
cat >"$T/measured.py" <<'PY'
import resource, subprocess, sys

status = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL).returncode
print("memory", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
PY
# run MODE PAIR NAME COMMAND...: lines "NAME MODE PAIR WHAT VALUE"
run() {
	local mode=$1 pair=$2 name=$3 e=()
	shift 3
	case $mode in
	none) e=("LD_PRELOAD=$B/libdfhost.so $nccl") ;;
	trace) e=(DFSHIM_MODE=trace DFSHIM_BACKEND=host "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $nccl") ;;
	prevent) e=(DFSHIM_BACKEND=host "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so") ;;
	esac
	[ "$mode" = none ] || e+=("DFSHIM_TRACE=$T/traces/$name.$mode.$pair")
	timeout 120 python3 "$T/measured.py" env "${e[@]}" "$@" 2>"$T/err" | awk -v n="$name" -v m="$mode" -v p="$pair" '
		$1 == "latency:" && $3 == "bytes" {print n "." $2 "B", m, p, "step", $4}
		$1 == "ddp:" && $5 == "step" {print n, m, p, "step", $2 * 1000}
		$1 == "torch:" {print n, m, p, "step", $2}
		$1 == "memory" {print n, m, p, "memory", $2}'
	[ "$mode" = none ] || "$B/dfshim" ls --json "$T/traces/$name.$mode.$pair" 2>/dev/null |
		jq -r --arg n "$name" --arg m "$mode" --arg p "$pair" '[.[] | (.records + .overwritten) * 64] | max | "\($n) \($m) \($p) trace \(.)"'
	rm -rf "$T/traces"
}
: >"$T/figures"
for ((i = 0; i < pairs; i++)); do
	# Each goes first in turn.
	modes=(none trace prevent none trace)
	for mode in "${modes[@]:i % 3:3}"; do
		[[ " $all " = *" $mode "* ]] || continue
		run "$mode" "$i" latency "$B/clients/latency" --procs $ranks --timeout 60
		run "$mode" "$i" ddp "$B/clients/ddp" --procs $ranks --timeout 60
	done
done >>"$T/figures"

# ratio NAME MODE: "ratio value peer", medians
ratio() {
	awk -v n="$1" -v m="$2" '$1 == n && $4 == "step" {v[$2, $3] = $5; last = $3 > last ? $3 : last}
		END {for (i = 0; i <= last; i++) if (v[m, i] > 0 && v["none", i] > 0) print v[m, i] / v["none", i], v[m, i], v["none", i]}' "$T/figures" |
		sort -g | awk '{a[NR] = $0} END {if (NR >= 3) print a[int((NR + 1) / 2)]}'
}
# middle NAME MODE WHAT
middle() { awk -v n="$1" -v m="$2" -v w="$3" '$1 == n && $2 == m && $4 == w {print $5}' "$T/figures" | sort -g | awk '{a[NR] = $1} END {if (NR) print a[int((NR + 1) / 2)]}'; }
{
	echo "| | without | mode trace | mode prevent |"
	echo "|---|---|---|---|"
} >"$T/table"
step() { # NAME WORDS TARGET-OF-TRACE
	local name=$1 target=$3 mode r v p row="| $2"
	for mode in trace prevent; do
		r='' v='' p=''
		read -r r v p <<<"$(ratio "$name" $mode)"
		if [ -z "$p" ]; then
			echo "BENCH overhead.$name.$mode - us target <=$target UNMEASURED"
			[ $mode != trace ] || row="$row | not measured"
			v=$(middle "$name" $mode step)
			row="$row | $([ -n "$v" ] && printf "%.4g us" "$v" || echo not measured)"
			continue
		fi
		[ $mode = trace ] || target=-
		awk -v n="$name" -v m="$mode" -v r="$r" -v v="$v" -v p="$p" -v t="$target" 'BEGIN {
			printf "BENCH overhead.%s.%s %.1f us peer none %.1f ratio %.3f target %s\n", n, m, v, p, r,
				t == "-" ? "- ok" : "<=" t " " (r <= t ? "ok" : "MISS")}'
		[ $mode != trace ] || row="$row | $(printf '%.4g us' "$p")"
		row="$row | $(awk -v r="$r" 'BEGIN {printf "%+.1f %%", (r - 1) * 100}')"
	done
	echo "$row |" >>"$T/table"
}
step latency.8B "all-reduce of 8 bytes" 1.01
step latency.1048576B "all-reduce of 1 MiB" 1.01
step ddp "training step with 48 ms of computation (\`clients/ddp\`)" 1.01
if [ -n "${TORCH_PYTHON-}" ]; then
	echo "# torch: no PyTorch job runs on the CPU with and without dfshim alike"
fi
step torch "PyTorch DDP step" 1.01
row="| memory of a rank" none=""
for mode in none trace prevent; do
	kib=$(middle ddp $mode memory)
	[ -n "$kib" ] || { row="$row | not measured" && continue; }
	[ $mode != none ] || { none=$kib && row="$row | $(awk -v k="${kib:-0}" 'BEGIN {printf "%.0f MiB", k / 1024}')" && continue; }
	[ -n "$none" ] || { row="$row | $((kib / 1024)) MiB in all" && continue; }
	more=$(awk -v a="${kib:-0}" -v b="${none:-0}" 'BEGIN {printf "%.1f", (a - b) / 1024}')
	echo "BENCH overhead.memory.$mode $more MiB target <=80 $(awk -v m="$more" 'BEGIN {print m <= 80 ? "ok" : "MISS"}')"
	row="$row | +$more MiB"
done
echo "$row |" >>"$T/table"
row="| trace of a rank, a training step | -"
for mode in trace prevent; do
	bytes=$(middle ddp $mode trace)
	[ -n "$bytes" ] || { row="$row | not measured" && continue; }
	each=$(awk -v b="${bytes:-0}" -v n="$DDP_ITERATIONS" 'BEGIN {printf "%.0f", b / n}')
	echo "BENCH overhead.trace.$mode $each bytes/step target - ok"
	row="$row | $each bytes"
done
echo "$row |" >>"$T/table"
