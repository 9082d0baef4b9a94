#!/bin/bash
# Description: the tests of a GPU on the test driver, in three parts: clients; programs that fail and that hang.
set -u
. "$SRC/tests/cuda/dryrun.sh"
# Each part by itself, as on a machine that is rented for a time; the results add up.
passes t_clients t_litmus
grep -q '"fine"' "$results/litmus.jsonl" || fail "the litmus programs' facts are not there"
# A program that fails, and one that hangs, are reported; the results of the others stay, and
# nothing runs on.
script litmus_bad 'exit 3'
gpu check "$results" gpu/t_litmus
[ $rc = 1 ] && part t_litmus | grep -q "litmus_bad: status 3" || fail "a failing program: status $rc: $(part t_litmus)"
nap=612.$$ # by which it is known
script litmus_bad "exec timeout 600 sleep $nap"
LIMIT=2 gpu check "$results" gpu/t_litmus
[ $rc = 1 ] && [[ $(part t_litmus) == "124 "* ]] || fail "a program that hangs: status $rc: $(part t_litmus)"
sleep 0.3
! pgrep -f "sleep $nap" >/dev/null || fail "what hung goes on in the background"
[[ $(part t_clients) == "0 "* ]] || fail "an earlier part's result is gone"
# By a limit of its own it takes nothing from those after it, and each line says whose it is.
EACH=1 gpu check "$results" gpu/t_litmus
[ $rc = 1 ] && [[ $(part t_litmus) == "1 "* ]] || fail "one of several that hangs: status $rc: $(part t_litmus)"
python3 - "$results/litmus.jsonl" <<'P' || fail "the facts: $(cat "$results/litmus.jsonl")"
import json, sys
f = [json.loads(x) for x in open(sys.argv[1])]
ended = {x["program"]: x["status"] for x in f if x["test"] == "ended"}
sys.exit(not (ended == {"bad": 124, "fine": 0} and any(x["test"] == "fine" for x in f)))
P
sleep 0.3
! pgrep -f "sleep $nap" >/dev/null || fail "what hung goes on in the background"
rm "$dry/tests/gpu/litmus_bad"

exit 0
