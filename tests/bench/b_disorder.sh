#!/bin/bash
# Measures the cost of disorder: the time of the main job with random orders against the same job in
# order, with a thread and with a process for each rank, how often the job preempts, and the
# processor time of an idle job.
#
# The two jobs take turns, PAIRS times (15). Each pair has a seed of its own, and the job that goes
# first alternates, too. A figure is the median of the pairs' ratios, followed by the smallest and
# the largest. ITERS: iterations (200).
set -u
cd "$SRC" || exit 1
unset DFSHIM_TRACE
pairs=${PAIRS:-15}
job=(--ranks 8 --colls 8 --iters "${ITERS:-200}" --min 256 --max 1048576 --no-check --json --timeout 60)

# seconds OPTIONS...: prints the seconds of one run, and adds the run's counters to $T/stats
seconds() {
	DFSHIM_STATS=$T/stats timeout 100 "$B/dfshim" run --host -- "$B/clients/disorder" "${job[@]}" "$@" 2>/dev/null |
		jq -r 'select(.result == "OK") | .seconds'
}
# spread: prints the smallest, the median and the largest of the numbers on standard input. Prints
# nothing if there are fewer numbers than pairs.
spread() {
	sort -g | awk -v want="$pairs" '{v[NR] = $1} END {if (NR == want) print v[1], v[int((NR + 1) / 2)], v[NR]}'
}
# per_block: prints the preemptions of a block on one rank. The papers saw about 18,000 for each
# block in this job of 200 iterations.
per_block() {
	jq -s "(map(.preemptions // 0) | add) / (map((.ranks // 1) * (.blocks // 1)) | add)" "$T/stats" 2>/dev/null
}

# compare NAME OPTIONS...: prints the lines of one way to run the job
compare() {
	local name=$1 i random equal
	shift
	: >"$T/times"
	: >"$T/counts"
	for ((i = 1; i <= pairs; i++)); do
		((i % 2)) || equal=$(seconds --seed "$i" --inorder "$@")
		rm -f "$T/stats"
		random=$(seconds --seed "$i" "$@")
		per_block >>"$T/counts"
		((i % 2)) && equal=$(seconds --seed "$i" --inorder "$@")
		[ -z "$random" ] || [ -z "$equal" ] || echo "$random $equal" >>"$T/times"
	done
	awk '{print $1 / $2}' "$T/times" | spread | awk -v name="$name" -v times="$(cut -d' ' -f1 "$T/times" | spread)" \
		-v peer="$(cut -d' ' -f2 "$T/times" | spread)" '{
		split(times, t)
		split(peer, p)
		printf "BENCH disorder.%s.time %.3f s peer inorder %.3f ratio %.3f target <=1.2 %s (%.2f to %.2f)\n",
			name, t[2], p[2], $2, $2 <= 1.2 ? "ok" : "MISS", $1, $3
	} END {if (!NR) print "BENCH disorder." name ".time - s target <=1.2 UNMEASURED"}'
	spread <"$T/counts" | awk -v name="$name" '{
		printf "BENCH disorder.%s.preemptions.per_block %.0f count target <=2000 %s (%.0f to %.0f)\n",
			name, $2, $2 <= 2000 ? "ok" : "MISS", $1, $3
	} END {if (!NR) print "BENCH disorder." name ".preemptions.per_block - count target <=2000 UNMEASURED"}'
	rm -f "$T/stats" "$T/times" "$T/counts"
}
compare threads
compare processes --procs 8

v=$(IDLE_SECONDS=3 timeout 60 "$B/dfshim" run --host -- "$B/clients/idle" --ranks 4 2>/dev/null |
	sed -n 's/.*: \([0-9.]*\) %$/\1/p')
echo "BENCH idle.cpu ${v:--} % target <=0.1 $(awk -v v="$v" 'BEGIN {print v == "" ? "UNMEASURED" : v <= 0.1 ? "ok" : "MISS"}')"
