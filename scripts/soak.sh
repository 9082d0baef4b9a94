#!/bin/bash
# Runs tests that depend on time and chance for `make soak HOURS=n`, in parts that share the time:
#
#   scripts/soak.sh HOURS [PART...]
#
# HOURS may be a fraction. PART: programs, kills, fuzz, steady, hard, sanitized. Every finding is a
# line "FINDING: ..." with the command that repeats it, and its folder is kept in build/soak. The
# last line counts runs and findings. SEED: the seed of all draws. JOBS: parallel jobs of kills and
# hard (2 for each processor). JOBS=1 with the seed of a finding repeats the finding. Runs are
# recorded in docs/evaluation.md.
set -u
cd "$(dirname "$0")/.." || exit 1
export SRC=$PWD B=${B:-build} SEED=${SEED:-$(date +%s)} JOBS=${JOBS:-$((2 * $(nproc)))}
case $B in /*) ;; *) B=$PWD/$B ;; esac
hours=${1-1}
shift
[ $# -gt 0 ] || set -- programs kills fuzz steady hard sanitized
seconds=$(awk -v h="$hours" 'BEGIN {print int(h * 3600)}')
[ "$seconds" -gt 0 ] 2>/dev/null || {
	echo "soak: HOURS=$hours: a number of hours above 0 is needed" >&2
	exit 2
}
for p; do
	[ -x "tests/soak/$p.sh" ] || {
		echo "soak: no part '$p'" >&2
		exit 2
	}
done
if [ "$(id -u)" != 0 ] || ! unshare --mount --pid --fork --mount-proc true 2>/dev/null; then
	echo "soak: needs root, for a /dev/shm and a process table of each job's own" >&2
	exit 77
fi
# Shares of the time.
declare -A share=([programs]=25 [kills]=25 [fuzz]=10 [steady]=10 [hard]=15 [sanitized]=15)
all=0 runs=0 findings=0
for p; do all=$((all + share[$p])); done
echo "soak: $hours h, SEED=$SEED, JOBS=$JOBS," \
	"commit $(git rev-parse --short=12 HEAD 2>/dev/null), $(nproc) processors, $(date -u +%F)"
unset DFSHIM_TRACE LD_PRELOAD

for p; do
	export T=$B/soak/$p BUDGET=$((seconds * share[$p] / all))
	rm -rf "$T" && mkdir -p "$T"
	echo "== $p: $BUDGET s =="
	"tests/soak/$p.sh" 2>&1 | tee "$T/part.log"
	read -r _ r _ f _ \
		<<<"$(grep -E "^$p: [0-9]+ runs, [0-9]+ findings$" "$T/part.log" | tail -1)"
	[ -n "${f-}" ] || { echo "FINDING: $p has not ended" && f=1; }
	runs=$((runs + ${r:-0})) findings=$((findings + f))
	unset r f
done
echo "soak: $runs runs, $findings findings"
[ $findings = 0 ]
