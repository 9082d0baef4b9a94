#!/bin/bash
# Adds up the output of soak runs: scripts/soak_sum.sh FILE... prints a table for
# docs/evaluation.md, a row for each run and the sums below. Each FILE is the complete output of
# scripts/soak.sh (docs/soak/*.log).
set -u
awk '
function flush() {
	if (head == "") return
	gsub(/^; /, "", what)
	printf "| %s | %s | %s | %s | %s | %d |\n", date, commit, seed, hours, what, findings
	head = what = ""
	findings = 0
}
BEGIN {
	print "| date | commit | seed | hours | what ran | findings |"
	print "|---|---|---|---|---|---|"
}
# soak: 0.6 h, SEED=20261127, JOBS=4, commit 7bf45120796a, 2 processors, 2026-11-24
/^soak: .* h, SEED=/ {
	flush()
	head = $0
	gsub(/,/, "")
	hours = $2; date = $NF
	for (i = 1; i <= NF; i++) {
		if ($i ~ /^SEED=/) seed = substr($i, 6)
		if ($i == "commit") commit = $(i + 1)
	}
}
/^programs: [0-9]+ programs in / {labelled = $2; executed = 0}
/^programs: executed by ours:/ {for (i = 6; i <= NF; i += 2) executed += $i}
/^kills: [0-9]+ (kill|stop|exit|exec|thread|fork)$/ {
	how[$3] += $2
	hows = hows (hows == "" ? "" : ", ") $2 " " $3
}
# A target that found a fault ended at an unknown time.
/^fuzz: .*: ok, [0-9]+ inputs/ {
	if (NF > 6)
		seconds += $6
	else
		ended++
	sub(/:$/, "", $2)
	inputs[$2] += $4
	fuzzed = fuzzed (fuzzed == "" ? "" : ", ") $2 " " $4
}
/^fuzz: [0-9]+ targets, [0-9]+ s each$/ {seconds += ended * $4; length_ = $4; ended = 0}
/^steady: [0-9]+ (operations|splits|cycles):/ {sub(/:$/, "", $3); n[$3] += $2; total[$3] += $2}
/^[a-z]+: [0-9]+ runs, [0-9]+ findings$/ && $1 != "soak:" {
	part = $1
	sub(/:$/, "", part)
	findings += $4; all += $4
	if (part == "programs") {
		what = what "; programs: " labelled " labelled, " executed \
			" of them executed by each set of rules"
		programs += labelled; programs_executed += executed
	} else if (part == "kills") {
		what = what "; kills: " $2 " jobs (" hows ")"
		kills += $2; hows = ""
	} else if (part == "fuzz") {
		what = what "; fuzz, " length_ " s a target: " fuzzed " inputs"
		fuzzed = ""
	} else if (part == "steady") {
		what = what "; steady: " n["operations"] + 0 " operations, " n["splits"] + 0 \
			" splits, " 2 * n["cycles"] " communicators"
		delete n
	} else {
		what = what "; " part ": " $2 " jobs"
		jobs[part] += $2
	}
}
END {
	flush()
	printf "\nIn all: %d programs labelled, %d of them executed by each set of rules; " \
		"%d jobs with kills (", programs, programs_executed, kills
	split("kill stop exit exec thread fork", order, " ")
	for (i = 1; i <= 6; i++) printf("%s%d %s", i > 1 ? ", " : "", how[order[i]], order[i])
	printf "); %.1f hours of fuzzing", seconds / 3600
	for (t in inputs) count += inputs[t]
	printf ", %d inputs; %d operations, %d splits, %d communicators made and destroyed; " \
		"%d jobs in hard times; %d findings.\n",
		count, total["operations"], total["splits"], 2 * total["cycles"], jobs["hard"], all
}' "$@"
