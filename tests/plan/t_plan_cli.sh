#!/bin/bash
# Description: `dfshim plan` from the command line: the shipped networks with the paper's figures, the answer in the first line, JSON, pictures, errors that name key, value and allowed values, and random networks against oracle.py.
set -u
PLAN="${B:-build}/dfshim plan"
T=${T:-$(mktemp -d)}
fails=0
fail() { echo "FAIL: $*"; fails=$((fails + 1)); }

# expect STATUS PATTERN ARGS...: the command must exit with STATUS, print PATTERN to standard error,
# and nothing to standard output.
expect() {
	local status=$1 pattern=$2 rc
	shift 2
	timeout "${LIMIT:-60}" $PLAN "$@" >"$T/out" 2>"$T/err"
	rc=$?
	[ $rc = "$status" ] || fail "status $rc, want $status: $*"
	grep -q -- "$pattern" "$T/err" || fail "no '$pattern' for: $* (got: $(cat "$T/err"))"
	[ ! -s "$T/out" ] || fail "output on failure: $*"
}

# is FILE EXPRESSION: the expression must be true; d is the document, s its schemes.
is() {
	python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); s=d["schemes"]; sys.exit(not eval(sys.argv[2]))' "$1" "$2" ||
		fail "$1: not $2"
}

for f in docs/plan/*.json; do
	timeout "${LIMIT:-60}" $PLAN "$f" --json --plot "$T/x.svg" >"$T/$(basename "$f")" || fail "$f"
	python3 -c 'import sys,xml.dom.minidom as m; m.parse(sys.argv[1])' "$T/x.svg" || fail "$f: SVG is not XML"
	[ "$(grep -c 'class="s"' "$T/x.svg")" -ge 4 ] || fail "$f: schemes in the picture"
	timeout "${LIMIT:-60}" $PLAN "$f" >"$T/text" || fail "$f as text"
	grep -q '^DDP ' "$T/text" && grep -q '^DeFT' "$T/text" || fail "$f: table: $(cat "$T/text")"
	is "$T/$(basename "$f")" 'all(set(("iteration_ms", "bubble_ms", "updates_per_iteration", "link_use")) <= set(v) for v in s.values())'
	is "$T/$(basename "$f")" 'all(sum(v["k"]) == v["period"] for v in s.values() if v["period"])'
	is "$T/$(basename "$f")" 'all(abs(v["updates_per_iteration"] - len(v["k"]) / v["period"]) < 1e-6 for v in s.values() if v["period"])'
	is "$T/$(basename "$f")" 'all(s[k]["staleness"]["max"] == 0 for k in ("ddp", "bytescheduler", "usbyte"))'
done

# The paper's networks, within one percent (docs/scheduling.md contains the table).
near() { # FILE DDP BYTESCHEDULER USBYTE DEFT
	local f=$T/$1
	shift
	is "$f" "all(abs(s[k]['iteration_ms'] / t - 1) < 0.01 for k, t in zip(('ddp', 'bytescheduler', 'usbyte', 'deft'), ($(IFS=,; echo "$*"))))"
}
near vgg19.json 295.1 258.3 259.0 130.3
near resnet101.json 305.1 248.2 249.2 177.0
near gpt2.json 789.8 688.6 673.6 550.0
is "$T/resnet101.json" 'd["preserver"]["accepted"] and s["deft_one_link"]["k"] in ([1, 2], [2, 1])'

# The first word says whether a schedule would help.
first() { timeout "${LIMIT:-60}" $PLAN "$@" | head -1; }
first docs/plan/vgg19.json | grep -q '^Yes, if updates may be late: DeFT would take 130.3 ms .* 295.1 (2.26 times faster)' || fail "answer for VGG-19"
first docs/plan/low_coverage.json | grep -q '^No: ' || fail "answer for low coverage"
cat >"$T/order.json" <<'EOF'
{"name": "order", "buckets": [
	{"forward_ms": 40, "backward_ms": 40, "communication_ms": 1, "parameters": 20000000},
	{"forward_ms": 40, "backward_ms": 40, "communication_ms": 60, "parameters": 20000000}]}
EOF
first "$T/order.json" | grep -q '^Yes, without late updates: ' || fail "answer where order is enough: $(first "$T/order.json")"

# A link on the command line has the same effect as in the configuration.
python3 - "$T" <<'EOF'
import json, sys
d = json.load(open("docs/plan/vgg19.json"))
d["links"] = d["links"][:1]
json.dump(d, open(sys.argv[1] + "/one.json", "w"))
EOF
timeout "${LIMIT:-60}" $PLAN "$T/one.json" --link gloo=1.65 --json >"$T/two.out" || fail "--link"
cmp -s "$T/two.out" "$T/vgg19.json" || fail "--link gloo=1.65 differs from the configuration"
timeout "${LIMIT:-60}" $PLAN "$T/one.json" --json >"$T/one.out" || fail "one link"
is "$T/one.out" '"deft_one_link" not in s and s["deft"]["updates_per_iteration"] < 0.51'

# Times that follow from the speed of a link.
cat >"$T/speed.json" <<'EOF'
{"links": [{"name": "a", "gbyte_per_s": 2, "startup_ms": 0.5}, {"name": "b", "gbyte_per_s": 0.5}],
 "buckets": [{"forward_ms": 10, "backward_ms": 20, "parameters": 5000000}]}
EOF
timeout "${LIMIT:-60}" $PLAN "$T/speed.json" --json >"$T/speed.out" || fail "speeds"
is "$T/speed.out" 'abs(d["buckets"][0]["communication_ms"] - 10.5) < 1e-6'

# Random networks against the oracle.
SEED=${SEED:-$RANDOM}
echo "SEED=$SEED"
python3 - "$T" "$SEED" <<'EOF' || fail "oracle"
import json, os, random, subprocess, sys
random.seed(int(sys.argv[2]))
plan, bad = os.environ.get("B", "build") + "/dfshim", 0
for n in range(12):
    path = sys.argv[1] + "/random.json"
    buckets = [{"forward_ms": random.randint(1, 20), "backward_ms": random.randint(1, 40),
                "communication_ms": random.randint(1, 60), "parameters": random.randint(1, 4) * 1000000}
               for _ in range(random.randint(1, 8))]
    json.dump({"buckets": buckets, "partition": random.choice((1000000, 1500000, 5000000))}, open(path, "w"))
    out = json.loads(subprocess.run([plan, "plan", path, "--json"], capture_output=True, check=True).stdout)["schemes"]
    want = dict(l.split() for l in subprocess.run([sys.executable, "tests/plan/oracle.py", path], capture_output=True,
                                                  check=True, text=True).stdout.splitlines())
    for k in ("ddp", "bytescheduler"):
        if abs(out[k]["iteration_ms"] - float(want[k])) > 1e-3:
            print(k, out[k]["iteration_ms"], "oracle:", want[k], json.load(open(path)))
            bad = 1
    if not float(want["lower"]) - 1e-3 <= out["usbyte"]["iteration_ms"] <= float(want["ddp"]) + 1e-3:
        print("usbyte", out["usbyte"]["iteration_ms"], want)
        bad = 1
sys.exit(bad)
EOF

# Configurations with one mistake each.
bucket='{"forward_ms":1,"backward_ms":2,"communication_ms":3,"parameters":4}'
bad() { # PATTERN JSON
	printf '%s' "$2" >"$T/bad.json"
	expect 1 "$1" "$T/bad.json"
	grep -q "$T/bad.json" "$T/err" || fail "file not named: $2"
}
bad 'buckets' '{}'
bad '1 to 512 buckets' '{"buckets":[]}'
bad 'unpacked: bukets' "{\"buckets\":[$bucket],\"bukets\":1}"
bad 'buckets\[1\]: Object item not found: forward_ms' "{\"buckets\":[$bucket,{}]}"
bad 'buckets\[0\]: neither communication_ms nor gbyte_per_s' "{\"buckets\":[${bucket/\"communication_ms\":3,/}]}"
bad 'bucket 1: a computation takes no negative time' "{\"buckets\":[${bucket/:1/:-1}]}"
bad 'bucket 1: a computation takes no negative time' "{\"buckets\":[${bucket/:1/:1e300}]}"
bad 'bucket 1: its communication takes 0 ms' "{\"buckets\":[${bucket/:3/:0}]}"
bad 'bucket 1: 0 parameters' "{\"buckets\":[${bucket/:4/:0}]}"
bad 'less than a microsecond' "{\"buckets\":[${bucket/:1/:0}]}"
bad 'links: allowed: an array of 1 to 4' "{\"buckets\":[$bucket],\"links\":[{},{},{},{},{}]}"
bad 'link 2: slowdown 0.5' "{\"buckets\":[$bucket],\"links\":[{},{\"slowdown\":0.5}]}"
bad 'links\[1\]: a link after the first' "{\"buckets\":[$bucket],\"links\":[{},{\"gbyte_per_s\":2}]}"
bad 'start-up' "{\"buckets\":[$bucket],\"links\":[{\"startup_ms\":5}]}"
bad 'partition is -1' "{\"buckets\":[$bucket],\"partition\":-1}"
bad 'partition is 9223372036854775807' "{\"buckets\":[$bucket],\"partition\":9223372036854775807}"
bad 'preserver: allowed: learning_rate and sigma above 0' "{\"buckets\":[$bucket],\"preserver\":{\"loss\":1,\"learning_rate\":0,\"mu\":1,\"sigma\":1,\"batch\":1}}"
bad 'more than 512 parts' "{\"buckets\":[${bucket/:3/:3000}]}"
# Too long for 64-bit nanoseconds on the slow link.
bad 'more than 512 parts' "{\"buckets\":[${bucket/:3/:999999999}],\"links\":[{},{\"slowdown\":10000}]}"
bad 'duplicate object key' "{\"buckets\":[$bucket],\"buckets\":[]}"
bad 'line 1, column' '{'
bad 'Expected object' '[1]'
expect 1 'No such file' "$T/none.json"
mkdir -p "$T/empty"
expect 1 'no trace files' "$T/empty"
echo nonsense >"$T/empty/x.dft"
expect 1 'x.dft' "$T/empty"
expect 2 'no configuration' --json
expect 2 'unexpected argument' "$T/one.json" "$T/one.json"
expect 2 '--frob' "$T/one.json" --frob
expect 2 '--link gloo: allowed: NAME=S' "$T/one.json" --link gloo
expect 2 '--link gloo=0.5: allowed' "$T/one.json" --link gloo=0.5
expect 2 '--link d=2: more links' docs/plan/vgg19.json --link a=2 --link b=2 --link c=2 --link d=2
expect 2 'at most 4' docs/plan/vgg19.json --link a=2 --link b=2 --link c=2
expect 2 '--forward-share 1:' "$T/one.json" --forward-share 1
expect 2 '--iterations 0:' "$T/one.json" --iterations 0
expect 1 '/nonexistent/x.svg' "$T/one.json" --plot /nonexistent/x.svg

[ $fails = 0 ] || exit 1
echo "all as expected"
