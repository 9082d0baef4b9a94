#!/bin/bash
# Description: scripts/gpu.sh with the GPU's tests and benchmarks, on the test driver. This part runs
# clients, and programs that fail or hang.
set -u
. "$SRC/tests/cuda/dryrun.sh"
# Each part runs by itself, as on a machine that is rented for some time. The results add up.
passes t_clients t_litmus
grep -q '"fine"' "$results/litmus.jsonl" || fail "the litmus programs' facts are not there"
# A program that fails and one that hangs are reported. The results of the others stay, and no
# process remains.
script litmus_bad 'exit 3'
gpu check "$results" gpu/t_litmus
[ $rc = 1 ] && part t_litmus | grep -q "litmus_bad: status 3" || fail "a failing program: status $rc: $(part t_litmus)"
nap=612.$$ # a unique time by which pgrep finds the process
script litmus_bad "exec timeout 600 sleep $nap"
LIMIT=2 gpu check "$results" gpu/t_litmus
[ $rc = 1 ] && [[ $(part t_litmus) == "124 "* ]] || fail "a program that hangs: status $rc: $(part t_litmus)"
sleep 0.3
! pgrep -f "sleep $nap" >/dev/null || fail "what hung goes on in the background"
[[ $(part t_clients) == "0 "* ]] || fail "an earlier part's result is gone"
# With a limit for each program, one that hangs takes no time from those after it. Each line names
# its program.
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
