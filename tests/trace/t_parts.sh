#!/bin/bash
# Description: if ranks of a Python program execute different code, verdicts name the lines that differ instead of their common helper. The report, the timeline and the Flight Recorder's files do so too.
set -u
. "$SRC/tests/lib/clients.sh"
[ -e "$B/libdfnccl.so" ] || skip "no libdfnccl.so"
[ -z "${SAN_RUNTIME-}" ] || skip "the interpreter does not run under a sanitizer"
[ -z "${QEMU_LD_PREFIX-}" ] || skip "this machine's interpreter cannot load libraries of another kind of machine"
py=${PYTHON:-python3}
"$py" -c 'import ctypes, sys; sys.exit(not (3, 9) <= sys.version_info < (3, 15) or sys.implementation.name != "cpython")' || skip "no CPython 3.9 to 3.14"
unset DFSHIM_TRACE
job=$SRC/tests/trace/parts.py
at() { echo "parts.py:$(grep -n "# $1\$" "$job" | cut -d: -f1)"; }
loss="$(at loss) reduce_loss" clip="$(at clip) clip" metrics="$(at metrics) log_metrics"

# hang CASE STATUS: runs the job, which must hang and exit with STATUS.
hang() {
	mkdir -p "$T/$1"
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host=2 -n 2 --rules nccl --timeout $((2 * SLOW)) --trace "$T/$1/trace" -- \
		"$py" "$job" "$T/$1" "$1" >"$T/$1/live" 2>&1
	rc=$?
	"$B/dfshim" check "$T/$1/trace" >"$T/$1/check"
	[ $rc = "$2" ] || bad "$1" "status $rc"
}
bad() {
	cat "$T/$1/live" "$T/$1/check"
	fail "$1: $2"
}

hang order 10
for f in live check; do
	grep -qE "^First divergence: r0 issued .* at $loss, r1 issued .* at $metrics" "$T/order/$f" || bad order "$f: first divergence"
	grep -qE "^  r0: [^ ]+ at $loss( \(runs\))?, [^ ]+ at $clip, [^ ]+ at $metrics" "$T/order/$f" || bad order "$f: order of r0"
	grep -qE "^  r1: [^ ]+ at $metrics( \(runs\))?, [^ ]+ at $clip, [^ ]+ at $loss" "$T/order/$f" || bad order "$f: order of r1"
	grep -qE "^  r0: parts.py:[0-9]+ all_reduce <- $loss <- parts.py:[0-9]+ <module>$" "$T/order/$f" || bad order "$f: stack of r0"
done
hang mismatch 21
for f in live check; do
	for case in order mismatch; do
		grep -qE "^Last call alike: [^ ]+#1 AllReduce\(64 x float32, sum\) at parts.py:[0-9]+ all_reduce <- $(at alike) <module>" "$T/$case/$f" ||
			bad $case "$f: last call alike"
	done
	grep -qE "^  r0 .* 128 .*  $(at 128) step_of_128$" "$T/mismatch/$f" || bad mismatch "$f: call of r0"
	grep -qE "^  r1 .* 64 .*  $(at 64) step_of_64$" "$T/mismatch/$f" || bad mismatch "$f: call of r1"
done

"$B/dfshim" report -o "$T/report.html" "$T/order/trace" >/dev/null || fail "report"
grep -q "at $loss" "$T/report.html" || fail "report: no line"
"$B/dfshim" timeline -o "$T/timeline.json" "$T/order/trace" >/dev/null || fail "timeline"
jq -r '.traceEvents[].args["Call stack"]? // empty' "$T/timeline.json" | grep -q "all_reduce <- $metrics" || fail "timeline: no line"
[ "$(jq -r '.traceEvents[].args["Process Group Name"]? // empty' "$T/timeline.json" | sort -u | tr -d '\n')" = ABC ] ||
	fail "timeline: communicators are not called as in the verdict"
"$B/dfshim" export-fr -o "$T/fr" "$T/order/trace" >/dev/null || fail "export-fr"
python3 - "$T/fr0" "${loss%% *}" <<'PY' || fail "export-fr: frames"
import pickle, sys

with open(sys.argv[1], "rb") as f:
    entries = pickle.load(f)["entries"]
file, line = sys.argv[2].split(":")
frames = [[(x["filename"], x["line"], x["name"]) for x in e["frames"]] for e in entries]
want = (file, int(line), "reduce_loss")
print(frames[-3:], want)
sys.exit(not any(x[1:2] == [want] and x[0][2] == "all_reduce" for x in frames))
PY
exit 0
