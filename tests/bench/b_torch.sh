#!/bin/bash
# Measures the cost of PyTorch on the CPU backend (`dfshim run --host`), beside PyTorch on the CPU
# (tests/bench/torch_bench.py).
#
#   torch.operator.*  the time that an operator on small tensors takes beyond the same on CPU
#                     tensors, in one process
#   torch.start       4 ranks until the first collective has ended, from the start of the command on,
#                     less the time in which one interpreter by itself imports torch
#   torch.gpt         a step of a small GPT under DistributedDataParallel with 4 ranks, beside gloo
#
# TORCH_PYTHON: a Python with a CUDA build of PyTorch. PARTS: only these of them (operator start
# gpt). Runs that are compared take turns, PAIRS times (5), and each goes first every other time. A
# figure is the median of the pairs, followed by the smallest and the largest.
set -u
cd "$SRC" || exit 1
unset DFSHIM_TRACE DFSHIM_STATS LD_PRELOAD
py=${TORCH_PYTHON:-$B/venv/bin/python} pairs=${PAIRS:-5} parts=${PARTS:-operator start gpt} ranks=4
"$py" -c 'import torch, sys; sys.exit(torch.version.cuda is None)' 2>/dev/null || {
	echo "# torch: no Python with a CUDA build of PyTorch: TORCH_PYTHON names one, make check-torch installs one"
	exit 77
}
echo "# $("$py" -c 'import torch; print("PyTorch", torch.__version__)')"
job() { timeout -k 5 200 "$py" -m torch.distributed.run --standalone --nproc-per-node $ranks tests/bench/torch_bench.py "$@"; }
ours() { timeout -k 5 200 "$B/dfshim" run --host -- "$py" -m torch.distributed.run --standalone --nproc-per-node $ranks tests/bench/torch_bench.py "$@"; }
# took WORD RANKS CMD...: prints the seconds from now until the last of RANKS lines of CMD that
# begin with WORD, each with the time at which it was written
took() {
	local begun=$EPOCHREALTIME
	timeout -k 5 200 "${@:3}" 2>"$T/err" |
		awk -v w="$1" -v ranks="$2" -v begun="$begun" '$1 == w {n++; if ($2 > v) v = $2} END {if (n == ranks) printf "%.3f\n", v - begun}'
}

wants() { [[ " $parts " == *" $1 "* ]]; }

if wants operator; then
	for ((i = 0; i < pairs; i++)); do
		OMP_NUM_THREADS=1 timeout -k 5 200 "$B/dfshim" run --host=1 -- "$py" tests/bench/torch_bench.py operators
	done >"$T/operators"
	# Prints the median run of each operator, and then the median of all operators.
	awk '$1 == "operator" {print $2, $3 - $4, $3, $4}' "$T/operators" | sort -k1,1 -k2,2g | awk -v pairs="$pairs" '
		function flush(m) {
			if (!n) return
			m = int((n + 1) / 2)
			printf "BENCH torch.operator.%s %.1f us peer cpu %.1f ratio %.2f target - ok (%.1f to %.1f more)\n", name, c[m], p[m], c[m] / p[m], d[1], d[n]
			print d[m] >"/dev/stderr"
		}
		$1 != name {flush(); n = 0; name = $1}
		{n++; d[n] = $2; c[n] = $3; p[n] = $4}
		END {flush()}' 2>"$T/more"
	sort -g "$T/more" | awk '{v[NR] = $1} END {
		if (!NR) { print "BENCH torch.operator - us target <=30 UNMEASURED"; exit }
		m = int((NR + 1) / 2)
		printf "BENCH torch.operator %.1f us target <=30 %s (%.1f to %.1f, of %d operators)\n", v[m], v[NR] <= 30 ? "ok" : "MISS", v[1], v[NR], NR}'
fi

: >"$T/starts"
: >"$T/steps"
for ((i = 0; i < pairs; i++)); do
	a=ours b=job
	[ $((i % 2)) = 0 ] || { a=job b=ours; }
	declare -A s=() g=()
	for how in $(wants start && echo $a $b); do
		if [ $how = ours ]; then
			s[ours]=$(took start $ranks "$B/dfshim" run --host -n $ranks -- "$py" tests/bench/torch_bench.py start)
		else
			s[job]=$(took imported 1 "$py" tests/bench/torch_bench.py imported)
		fi
	done
	for how in $(wants gpt && echo $a $b); do
		g[$how]=$($how gpt 2>"$T/err.$how" | awk '$1 == "step" {print $2, $3}')
	done
	[ -z "${s[ours]-}" ] || [ -z "${s[job]-}" ] || echo "${s[ours]} ${s[job]}" >>"$T/starts"
	[ -z "${g[ours]-}" ] || [ -z "${g[job]-}" ] || echo "${g[ours]} ${g[job]}" >>"$T/steps"
done
wants start && awk '{print $1 - $2, $1, $2}' "$T/starts" | sort -g | awk -v pairs="$pairs" '{d[NR] = $1; a[NR] = $2; b[NR] = $3} END {
	m = int((NR + 1) / 2)
	# A job imports torch, too: if it was quicker, the machine was busy with something else.
	if (NR < pairs || d[m] < 0) { printf "BENCH torch.start - s target <=2 UNMEASURED%s\n", NR < pairs ? "" : " (the import alone took longer than the job)"; exit }
	printf "BENCH torch.start %.2f s target <=2 %s (%.2f to %.2f; import torch alone %.2f s)\n", d[m], d[m] <= 2 ? "ok" : "MISS", d[1], d[NR], b[m]}'
# The losses must be equal, because both ran the same job.
wants gpt && awk '{print $1 / $3, $1, $3, $2 - $4}' "$T/steps" | sort -g | awk -v pairs="$pairs" '{r[NR] = $1; a[NR] = $2; b[NR] = $3; if ($4 > .01 || $4 < -.01) bad = 1} END {
	if (NR < pairs || bad) { printf "BENCH torch.gpt - ms target <=1.5 UNMEASURED%s\n", bad ? " (the losses differ)" : ""; exit }
	m = int((NR + 1) / 2)
	printf "BENCH torch.gpt %.0f ms peer gloo %.0f ratio %.3f target <=1.5 %s (%.2f to %.2f)\n", a[m], b[m], r[m], r[m] <= 1.5 ? "ok" : "MISS", r[1], r[NR]}'
exit 0
