#!/bin/bash
# Description: `dfshim sim` from the command line: forms of output, recorded runs, errors that name key, value and allowed values, sweeps and pictures, and the same result for any number of jobs.
set -u
SIM="${SIM:-${B:-build}/dfshim} sim"
T=${T:-$(mktemp -d)}
D=tests/sim/data
fails=0
fail() { echo "FAIL: $*"; fails=$((fails + 1)); }

# expect STATUS PATTERN ARGS...: the command must exit with STATUS, print PATTERN to standard error,
# and nothing to standard output.
expect() {
	local status=$1 pattern=$2 rc
	shift 2
	timeout "${LIMIT:-60}" $SIM "$@" >"$T/out" 2>"$T/err"
	rc=$?
	[ $rc = "$status" ] || fail "status $rc, want $status: $*"
	grep -q -- "$pattern" "$T/err" || fail "no '$pattern' for: $* (got: $(cat "$T/err"))"
	[ ! -s "$T/out" ] || fail "output on failure: $*"
}

for v in val_a val_b val_c limit overlap chatter; do
	timeout "${LIMIT:-60}" $SIM $D/$v.json --semantics artifact --per-round 2>"$T/err" >"$T/out" || fail "$v: status"
	cmp -s "$T/out" $D/$v.cumulative.txt || fail "$v: differs from the published program"
	grep -q '^deadlocks ' "$T/err" || fail "$v: no summary on standard error"
done

# Configurations with one mistake each.
good='"model":"StreamWithSync","grouping_policy":"Megatron","disorder_prob":0.1,"sync_prob":0.1,"tp_group_size":2,"dp_group_size":2,"pp_group_size":1,"coll_cnt_per_tp_group":5,"coll_cnt_per_dp_group":5,"total_rounds":50'
free='"model":"Single","grouping_policy":"Arbitrary","disorder_prob":0.1,"coll_cnt_per_group":[3,3]'
bad() { # PATTERN JSON
	printf '{%s}' "$2" >"$T/bad.json"
	expect 1 "$1" "$T/bad.json"
	grep -q "$T/bad.json" "$T/err" || fail "file not named: $2"
}
printf '{%s}' "$good" >"$T/good.json"
timeout "${LIMIT:-60}" $SIM "$T/good.json" >"$T/out" 2>"$T/err" || fail "good configuration refused: $(cat "$T/err")"
[ ! -s "$T/err" ] || fail "noise on standard error"
bad 'unknown key "disorder_prb" (value 0.1); did you mean "disorder_prob"' "$good,\"disorder_prb\":0.1"
bad 'unknown key "zzzzzzzzz".*allowed: model' "$good,\"zzzzzzzzz\":[1]"
bad 'disorder_prob is 1.5; allowed: a number from 0 to 1' "${good/disorder_prob\":0.1/disorder_prob\":1.5}"
bad 'disorder_prob is "x"' "${good/disorder_prob\":0.1/disorder_prob\":\"x\"}"
bad 'sync_prob is 1; allowed' "${good/sync_prob\":0.1/sync_prob\":1}"
bad 'sync_prob is missing' "${good/\"sync_prob\":0.1,/}"
bad 'model is "Sync"; allowed: "Single", "StreamWithSync"' "${good/StreamWithSync/Sync}"
bad 'tp_group_size is 0; allowed: an integer from 1' "${good/tp_group_size\":2/tp_group_size\":0}"
bad 'tp_group_size is 2.5; allowed: an integer' "${good/tp_group_size\":2/tp_group_size\":2.5}"
bad 'dp_group_size is missing, grouping_policy "Megatron" needs it' "${good/\"dp_group_size\":2,/}"
bad 'the workload has 1e+12 GPUs' "$(sed 's/_group_size":[12]/_group_size":10000/g' <<<"$good")"
bad 'at least one collective' "$(sed 's/_group":5/_group":0/g' <<<"$good")"
bad 'semantics is "exakt"; allowed: "exact", "artifact", "fifo"' "$good,\"semantics\":\"exakt\""
bad 'fix_seed is 2; allowed: an integer from 0 to 1' "$good,\"fix_seed\":2"
bad 'resource_limit is -2' "$good,\"resource_limit\":-2"
bad 'duplicate object key' "$good,\"sync_prob\":0.2"
bad 'gpu_per_group is missing' "$free"
bad 'has no group with GPU 1' "$free,\"gpu_per_group\":[[0,2],[2,3]]"
bad 'holds GPU 2 twice in group 1' "$free,\"gpu_per_group\":[[0,1],[2,2]]"
bad 'gpu_num is 7, but the highest GPU' "$free,\"gpu_per_group\":[[0,1],[1,2]],\"gpu_num\":7"
bad 'group_num is 3, but gpu_per_group has 2' "$free,\"gpu_per_group\":[[0,1],[1,2]],\"group_num\":3"
bad 'coll_cnt_per_group has 2 entries, but gpu_per_group has 1' "$free,\"gpu_per_group\":[[0,1]]"
bad 'gpu_per_group holds something else in group 0' "$free,\"gpu_per_group\":[[0,\"x\"],[1]]"
bad 'gpu_per_group is \[\]' "$free,\"gpu_per_group\":[]"
echo '{' >"$T/bad.json"
expect 1 'line 2, column' "$T/bad.json"
echo '[1]' >"$T/bad.json"
expect 1 'no JSON object' "$T/bad.json"
expect 1 'No such file' "$T/none.json"

# Wrong usage.
expect 2 'no configuration'
expect 2 "unknown option '--frob'" "$T/good.json" --frob
expect 2 "unexpected argument" "$T/good.json" "$T/good.json"
expect 2 '--rounds 0: a whole number from 1 to 1000000000000000' "$T/good.json" --rounds 0
expect 2 '--rounds x' "$T/good.json" --rounds x
expect 2 '--jobs -1' "$T/good.json" --jobs -1
expect 2 '--until-width 2: a number' "$T/good.json" --until-width 2
expect 2 '--rng foo: one of native|cpython' "$T/good.json" --rng foo
expect 2 'unknown key "foo"' "$T/good.json" --set foo=1
expect 2 '--semantics bar: one of exact' "$T/good.json" --semantics bar
expect 2 '--sweep nokey=1,2: no such key' "$T/good.json" --sweep nokey=1,2
expect 2 '--sweep disorder_prob=0:1:log:4: from 0 to 1; allowed: numbers above 0' "$T/good.json" --sweep disorder_prob=0:1:log:4
expect 2 'four parts' "$T/good.json" --sweep disorder_prob=0:1:log
expect 2 '1 values; allowed: 2 to' "$T/good.json" --sweep disorder_prob=0:1:lin:1
expect 2 'takes no numbers' "$T/good.json" --sweep model=0:1:lin:3
expect 2 'draws a sweep' "$T/good.json" -o "$T/x.svg"

# JSON. Neither the number of jobs nor the short cuts change the result.
field() { python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval("d"+sys.argv[2]))' "$1" "$2"; }
for o in "--jobs 1" "--jobs 2" "--jobs 7" "--plain"; do
	timeout "${LIMIT:-60}" $SIM "$T/good.json" --json --rounds 5000 --seed 11 $o >"$T/j.json" || fail "json $o"
	echo "$(field "$T/j.json" '["rounds"]') $(field "$T/j.json" '["deadlocks"]') $(field "$T/j.json" '["ratio"]') $(field "$T/j.json" '["ci95"]')"
done | sort -u >"$T/results"
[ "$(wc -l <"$T/results")" = 1 ] || fail "results differ: $(cat "$T/results")"
grep -q '^5000 [1-9]' "$T/results" || fail "no deadlocks in $(cat "$T/results")"
field "$T/j.json" '["rounds_per_second"] > 0' | grep -q True || fail "no rate"
timeout "${LIMIT:-60}" $SIM "$T/good.json" --per-round --rounds 700 --seed 4 --jobs 1 >"$T/a" 2>/dev/null
timeout "${LIMIT:-60}" $SIM "$T/good.json" --per-round --rounds 700 --seed 4 --jobs 5 --plain >"$T/b" 2>/dev/null
cmp -s "$T/a" "$T/b" && [ "$(wc -l <"$T/a")" = 700 ] || fail "--per-round depends on jobs"
timeout "${LIMIT:-60}" $SIM "$T/good.json" --until-width 0.05 --seed 4 --jobs 1 --json >"$T/a"
timeout "${LIMIT:-60}" $SIM "$T/good.json" --until-width 0.05 --seed 4 --jobs 3 --json >"$T/b"
[ "$(field "$T/a" '["rounds"]')" = "$(field "$T/b" '["rounds"]')" ] || fail "--until-width depends on jobs"
field "$T/a" '["ci95"][1] - d["ci95"][0] <= 0.05' | grep -q True || fail "--until-width not reached"

# Other semantics and limits, and several rules side by side.
timeout "${LIMIT:-60}" $SIM "$T/good.json" --rules --rounds 500 --seed 5 --json --set resource_limit=3 >"$T/r.json" || fail rules
field "$T/r.json" '["rules"][-1]["deadlocks"] == 0 and d["rules"][-1]["releases"] > 0 and len(d["rules"]) == 5' |
	grep -q True || fail "rules: $(cat "$T/r.json")"

# Sweeps.
timeout "${LIMIT:-60}" $SIM "$T/good.json" --sweep disorder_prob=1e-3:0.5:log:5 --sweep semantics=exact,artifact --rounds 300 \
	-o "$T/x.svg" >"$T/out" 2>"$T/err" || fail "sweep: $(cat "$T/err")"
[ "$(wc -l <"$T/out")" = 11 ] || fail "sweep table: $(cat "$T/out")"
[ "$(grep -c '<circle' "$T/x.svg")" = 12 ] || fail "points and legend in the picture"
python3 -c 'import sys,xml.dom.minidom as m; m.parse(sys.argv[1])' "$T/x.svg" || fail "SVG is not XML"
timeout "${LIMIT:-60}" $SIM "$T/good.json" --sweep pp_group_size=1:4:lin:4 --rounds 200 --json >"$T/s.json" || fail "sweep json"
field "$T/s.json" '["points"][3]["pp_group_size"]' | grep -qx 4 || fail "sweep points"
expect 2 'disorder_prob' "$T/good.json" --sweep disorder_prob=0.1,zz --rounds 10
timeout "${LIMIT:-60}" $SIM "$T/good.json" --sweep total_rounds=10,20 -o /nonexistent/x.svg >/dev/null 2>"$T/err"
[ $? = 1 ] && grep -q "/nonexistent/x.svg: cannot write" "$T/err" || fail "unwritable picture"

# The shipped schema equals the program's.
timeout "${LIMIT:-60}" $SIM --schema | cmp -s - docs/sim.schema.json || fail "docs/sim.schema.json is not 'dfshim sim --schema'"
if python3 -c 'import jsonschema' 2>/dev/null; then
	for f in docs/sim/*.json $D/*.json "$T/good.json"; do
		python3 -c 'import json,sys,jsonschema; jsonschema.validate(json.load(open(sys.argv[1])), json.load(open("docs/sim.schema.json")))' "$f" ||
			fail "schema refuses $f"
	done
fi

timeout "${LIMIT:-60}" $SIM --help | grep -q '^Usage: dfshim sim' || fail "--help"

[ $fails = 0 ]
