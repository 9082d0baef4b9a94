# Functions for the parts of `make soak`. Sourced; SRC, B, T (scratch folder), SEED and BUDGET (seconds for the part) are set by
# scripts/soak.sh. A part works until its time is over and ends with "NAME: N runs, N findings".
# shellcheck shell=bash
runs=0 findings=0
part=$(basename "$0" .sh)
begun=$(date +%s)
mkdir -p "$T"

# side_by_side: JOBS of this part, each with a folder and a seed of its own. Its jobs mostly wait, for time-outs and for ranks
# that are stopped; so one processor serves many.
side_by_side() {
	[ "${JOBS:-1}" -gt 1 ] || return 0
	local i jobs=$JOBS
	for ((i = 0; i < jobs; i++)); do
		JOBS=1 T=$T/$i SEED=$((SEED * jobs + i)) "$0" >"$T/$i.log" 2>&1 &
	done
	wait
	cat "$T"/*.log | awk -v p="$part:" -v jobs="$jobs" '
		$1 == p && $3 == "runs," {runs += $2; findings += $4; ended++; next}
		$1 == p && NF == 3 {n[$3] += $2; next}
		{print}
		END {for (k in n) print p, n[k], k
			print p, runs + 0, "runs,", findings + jobs - ended, "findings"}'
	exit
}
over() { [ $(($(date +%s) - begun)) -ge "$BUDGET" ]; }

# draw NAME FROM TO, pick NAME WORD...: a number, a word, into the exported variable NAME. In a subshell bash would draw anew
# each time; so it is the same for the same SEED.
RANDOM=$((SEED % 32768))
draw() { export "$1=$(($2 + (RANDOM * 32768 + RANDOM) % ($3 - $2 + 1)))"; }
pick() {
	local name=$1 at
	shift
	draw at 0 $(($# - 1))
	shift "$at"
	export "$name=$1"
}

# finding TEXT: what was wrong; the run's folder is kept.
finding() {
	findings=$((findings + 1))
	echo "FINDING: $part, run $runs, SEED=$SEED: $*"
	cp -r "$T/run" "$T/finding-$findings" 2>/dev/null
}

# apart COMMAND...: with a /dev/shm, a process table and a scratch folder ($T/run) of its own, at most a minute and a half.
# Status 97: something was left in /dev/shm; 98: a process; 99: out of time.
apart() {
	local rc since=$SECONDS
	rm -rf "$T/run" && mkdir -p "$T/run"
	timeout -k 5 90 "$SRC/tests/lib/apart.sh" "$@" >"$T/run/out" 2>&1
	rc=$?
	# A killed rank's status is 137 too.
	[ $((SECONDS - since)) -lt 90 ] || rc=99
	return $rc
}

done_with() {
	echo "$part: $runs runs, $findings findings"
	[ $findings = 0 ]
}
