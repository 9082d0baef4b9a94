#!/bin/bash
# The cost of disorder on a GPU: the paper's test 1 in random orders, compared with the same job in
# one order. Medians of three runs.
set -u
. "$SRC/tests/gpu/lib.sh"
job=(--ranks 8 --colls 8 --iters "${ITERS:-$(few 200)}" --min 256 --max 1048576 --no-check --json --timeout 60)
seconds() {
	local i
	for i in 1 2 3; do
		timeout 100 env "${card_env[@]}" "$C/disorder" "${job[@]}" --seed $i "$@" 2>/dev/null |
			sed -n 's/.*"result": *"OK".*/&/p' | grep -o '"seconds": *[0-9.]*' | grep -o '[0-9.]*$'
	done | sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'
}
random=$(seconds) equal=$(seconds --inorder)
awk -v r="$random" -v e="$equal" 'BEGIN {
	if (r == "" || e == "") print "BENCH gpu.disorder.time - s target <=1.2 UNMEASURED"
	else printf "BENCH gpu.disorder.time %s s peer inorder %s ratio %.3f target <=1.2 %s\n", r, e, r / e, r / e <= 1.2 ? "ok" : "MISS"
}'
