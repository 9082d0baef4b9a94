#!/bin/bash
# Measures how soon mode trace names a hang on simulated ranks (tests/bench/b_live.c), and writes
# the table into docs/evaluation.md, between its markers. RANKS, KINDS, RUNS and RUNS_MANY (for
# 1,024 ranks) select fewer runs. LOG names a file that keeps the runs, so that a later call adds to
# the table.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
T=$(mktemp -d) || exit 1
trap 'rm -rf "$T"' EXIT
load() { cut -d' ' -f1 /proc/loadavg; }
log=${LOG:-$T/log} first=$(load)
for kind in ${KINDS:-mismatch cycle dead missing}; do
	for ranks in ${RANKS:-16 64 256 1024}; do
		runs=${RUNS:-5}
		[ "$ranks" -lt 1024 ] || runs=${RUNS_MANY:-3}
		# Runs of the kind "missing" wait for the time-out.
		[ "$kind" != missing ] || runs=$(((runs + 1) / 3))
		"$B/tests/bench/b_live" "$runs" "$kind" "$ranks" | tee -a "$log" || exit 1
	done
done
{
	echo "Measured $(date -u +%F)" \
		"at $(git rev-parse --short HEAD 2>/dev/null || echo unknown)" \
		"on $(nproc) processors" \
		"($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1))," \
		"whose load by other programs was $first before and" \
		"with the simulation $(load) after."
	echo
	echo "| fault | ranks | runs | detected: half | 90 % | cause known on a rank: half | 90 %" \
		"| 99 % | all |"
	echo "|---|---|---|---|---|---|---|---|---|"
	awk '
	function share(v, n, part,    k) { k = int(n * part + 0.999999); return v[k < 1 ? 1 : k] }
	function sort(v, n,    i, j, x) {
		for (i = 2; i <= n; i++) {
			x = v[i]
			for (j = i - 1; j && v[j] > x; j--)
				v[j + 1] = v[j]
			v[j + 1] = x
		}
	}
	function flush() {
		if (!runs) return
		sort(seen, runs)
		# The times are counted by hundredths of a second, because there are thousands of
		# them.
		n = 0
		for (i = 0; i <= top; i++) for (k = 0; k < cause[i]; k++) all[++n] = i / 100
		printf "| %s | %s | %d | %.1f s | %.1f s | %.1f s | %.1f s | %.1f s | %.1f s |\n",
			kind, ranks, runs, share(seen, runs, 0.5), share(seen, runs, 0.9),
			share(all, n, 0.5), share(all, n, 0.9), share(all, n, 0.99), all[n]
		runs = top = 0
		delete cause; delete seen; delete all
	}
	$1 == "live" {
		if ($2 != kind || $3 != ranks) flush()
		kind = $2; ranks = $3; seen[++runs] = $4
		for (f = 5; f <= NF; f++) {
			i = int($f * 100 + 0.5)
			cause[i]++
			if (i > top)
				top = i
		}
	}
	END { flush() }' <(sort -s -k1,1 -k2,2 -k3,3n "$log")
} >"$T/text"
scripts/insert.sh docs/evaluation.md live "$T/text"
