#!/bin/bash
# Random programs of the deadlock suite. A fifth of the time is for programs with late threads. In
# the rest programs are labelled by the model, and for a part of that time (EXECUTED percent,
# default 75) also executed by both sets of rules.
set -u
. "$SRC/tests/soak/lib.sh"
late=$((BUDGET / 5))
"$B/tests/deadlock/generator/threads" --programs 0 --seconds $late --seed "$SEED" >"$T/threads" 2>&1
rc=$?
grep -vE '^SEED|^$' "$T/threads" | sed 's/^/programs with late threads: /'
[ $rc = 0 ] || echo "FINDING: programs with late threads, SEED=$SEED: status $rc: $(tail -3 "$T/threads")"
wrong=$((rc != 0))
"$B/tests/deadlock/generator/random" --programs 0 --seconds $((BUDGET - late)) --executing $(((BUDGET - late) * ${EXECUTED:-75} / 100)) --seed "$SEED" >"$T/log" 2>&1
rc=$?
grep -vE '^SEED|^$' "$T/log" | sed 's/^/programs: /'
runs=$(sed -n 's/^\([0-9]*\) programs in .*/\1/p' "$T/log")
findings=$(sed -n 's/.*, \([0-9]*\) wrong$/\1/p' "$T/log")
[ -n "$findings" ] || { findings=1 && echo "FINDING: programs, SEED=$SEED: status $rc: $(tail -3 "$T/log")"; }
runs=$((${runs:-0} + $(sed -n 's/^\([0-9]*\) programs in .*/\1/p' "$T/threads" | grep . || echo 0)))
findings=$((findings + wrong))
done_with
