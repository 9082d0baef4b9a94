#!/bin/bash
# Description: `dfshim plan` on the traces of a real job: its buckets are right, and the replay of DDP is close to the recorded time.
set -u
. "$SRC/tests/lib/clients.sh"

mkdir -p "$T/job"
timeout "${LIMIT:-100}" "$B/dfshim" run --host -n 2 --trace "$T/job" -- "$C/ddp" >"$T/log" 2>&1 || fail "ddp: $(tail -5 "$T/log")"
timeout "${LIMIT:-60}" "$B/dfshim" plan "$T/job" --link second=2 --json --plot "$T/job.svg" >"$T/plan.json" || fail "plan"
python3 "$SRC/tests/lib/json_keys.py" plan "$T/plan.json" || fail "plan --json: not as docs/json.md says"
# Times depend on the machine's load, but those of the recording and of its replay depend in the
# same way.
python3 - "$T/plan.json" <<'EOF' || fail "$(cat "$T/plan.json")"
import json, sys
d = json.load(open(sys.argv[1]))
ddp, deft, seen = d["schemes"]["ddp"], d["schemes"]["deft"], d["recorded"]
assert [b["parameters"] for b in d["buckets"]] == [131072, 262144, 196608, 196608, 65536], "buckets"
assert seen["ranks"] == 2 and 8 <= seen["iterations"] <= 11, "iterations"
assert all(b["communication_ms"] > 0 for b in d["buckets"]), "times"
assert 0.5 < ddp["iteration_ms"] / seen["iteration_ms"] < 2, "replay of DDP"
assert sum(b["forward_ms"] + b["backward_ms"] for b in d["buckets"]) >= 48, "slept for less"
assert deft["iteration_ms"] <= ddp["iteration_ms"] and d["answer"], "schemes"
EOF
"$B/dfshim" plan "$T/job" | grep -q '1 small all-reduce of each iteration left out' || fail "the loss is taken for a bucket"
"$B/dfshim" plan "$T/job" --buckets 4 >"$T/out" 2>"$T/err" && fail "another number of buckets is accepted"
grep -q 'do not repeat after 4' "$T/err" || fail "$(cat "$T/err")"
exit 0
