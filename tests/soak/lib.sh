# Functions for the parts of `make soak`. Sourced. scripts/soak.sh sets SRC, B, T (scratch folder),
# SEED and BUDGET (seconds for the part). A part works until its time is over, and prints "NAME: N
# runs, N findings".
# shellcheck shell=bash
runs=0 findings=0
part=$(basename "$0" .sh)
begun=$(date +%s)
mkdir -p "$T"

# side_by_side: runs JOBS copies of this part, each with its own folder and seed. The copies mostly
# wait, for time-outs and for stopped ranks, so one CPU serves many.
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

# draw NAME FROM TO, pick NAME WORD...: store a random number or word in the exported variable NAME.
# In a subshell bash would start again with the same state, so these are no commands for $(). The
# same SEED gives the same values.
RANDOM=$((SEED % 32768))
draw() { export "$1=$(($2 + (RANDOM * 32768 + RANDOM) % ($3 - $2 + 1)))"; }
pick() {
	local name=$1 at
	shift
	draw at 0 $(($# - 1))
	shift "$at"
	export "$name=$1"
}

# finding TEXT: prints what was wrong, and keeps the run's folder.
finding() {
	findings=$((findings + 1))
	echo "FINDING: $part, run $runs, SEED=$SEED: $*"
	cp -r "$T/run" "$T/finding-$findings" 2>/dev/null
}

# apart COMMAND...: runs a command with its own /dev/shm, processes and scratch folder ($T/run), for
# at most 90 seconds. Returns 97 if a file is left in /dev/shm, 98 if a process is left, 99 if the
# time was over.
apart() {
	local rc since=$SECONDS
	rm -rf "$T/run" && mkdir -p "$T/run"
	timeout -k 5 90 "$SRC/tests/lib/apart.sh" "$@" >"$T/run/out" 2>&1
	rc=$?
	# 137 is also the status of a killed rank, so check the time instead.
	[ $((SECONDS - since)) -lt 90 ] || rc=99
	return $rc
}

done_with() {
	echo "$part: $runs runs, $findings findings"
	[ $findings = 0 ]
}
