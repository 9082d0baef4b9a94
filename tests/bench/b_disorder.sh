#!/bin/bash
# What disorder costs: the main job with random orders against the same job in order; how often it preempts;
# and what an idle job costs in processor time. Medians of three.
set -u
cd "$SRC" || exit 1
unset DFSHIM_TRACE
job=(--ranks 8 --colls 8 --iters "${ITERS:-200}" --min 256 --max 1048576 --no-check --json --timeout 60)

median() { sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }
seconds() { # of three runs with the options given
	local i
	for i in 1 2 3; do
		timeout 200 "$B/dfshim" run --host -- "$B/clients/disorder" "${job[@]}" --seed $i "$@" 2>/dev/null |
			jq -r 'select(.result == "OK") | .seconds'
	done | median
}
random=$(DFSHIM_STATS=$T/stats seconds) equal=$(seconds --inorder)
if [ -n "$random" ] && [ -n "$equal" ]; then
	awk -v r="$random" -v e="$equal" 'BEGIN {
		printf "BENCH disorder.time %s s peer inorder %s ratio %.3f target <=1.2 %s\n", r, e, r / e, r / e <= 1.2 ? "ok" : "MISS"
	}'
else
	echo "BENCH disorder.time - s target <=1.2 UNMEASURED"
fi
# A block preempts on each of its ranks; the papers saw about 18,000 for each block in this job of 200 iterations.
per_block() {
	jq -s "(map(.$1 // 0) | add) / (map((.ranks // 1) * (.blocks // 1)) | add)" "$T/stats" 2>/dev/null
}
v=$(per_block preemptions)
echo "BENCH disorder.preemptions.per_block ${v:--} count target <=2000 $(awk -v v="$v" 'BEGIN {print v == "" ? "UNMEASURED" : v <= 2000 ? "ok" : "MISS"}')"
rm -f "$T/stats"

v=$(IDLE_SECONDS=3 timeout 60 "$B/dfshim" run --host -- "$B/clients/idle" --ranks 4 2>/dev/null |
	sed -n 's/.*: \([0-9.]*\) %$/\1/p')
echo "BENCH idle.cpu ${v:--} % target <=0.1 $(awk -v v="$v" 'BEGIN {print v == "" ? "UNMEASURED" : v <= 0.1 ? "ok" : "MISS"}')"
