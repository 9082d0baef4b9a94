#!/bin/bash
# Description: from a real job to a verdict. A disordered job is ORDER by NCCL's rules. By dfshim's rules it finishes, and its trace predicts the deadlock. Replays of the trace have the same results.
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
B=${B:-$src/build}
df=$B/dfshim
app=$B/clients/disorder
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

[ -x "$app" ] && [ -e "$B/libdfhost.so" ] || { echo "no clients or no libdfhost.so here"; exit 77; }
unset DFSHIM_TRACE

expect() { # status, first word, command ...
	local status=$1 word=$2
	shift 2
	timeout "${LIMIT:-60}" "$@" >"$tmp/out" 2>"$tmp/err"
	local got=$?
	if [ $got -ne "$status" ] || ! head -1 "$tmp/out" | grep -q "^$word"; then
		echo "FAIL: $*: status $got (wanted $status), first line: $(head -1 "$tmp/out")"
		tail -3 "$tmp/err"
		bad=1
	fi
}

timeout "${LIMIT:-60}" "$df" run --host=4 -n 4 --rules nccl --trace "$tmp/nccl" --timeout 2 -- "$app" --warmup --iters 3 \
	>"$tmp/log" 2>&1 && { echo "FAIL: the disordered job finished by NCCL's rules"; bad=1; }
expect 10 ORDER: "$df" check "$tmp/nccl"
grep -q "can be cut here" "$tmp/out" || { echo "FAIL: no wait is marked as one that can be cut"; bad=1; }
grep -q "First divergence: .* at disorder" "$tmp/out" || { echo "FAIL: no call site in the first divergence"; bad=1; }
grep -qE "^  (both|r[0-9]+): disorder[^ ]* <- " "$tmp/out" || { echo "FAIL: no call stack below it"; bad=1; }
expect 10 '{"verdict":"ORDER"' "$df" check --json "$tmp/nccl"
jq -e '[.cycle[].evidence.stack[0]? // empty] | length > 1 and all(test("^disorder"))' "$tmp/out" >/dev/null ||
	{ echo "FAIL: check --json: the circle's steps have no call stacks: $(jq -c .cycle "$tmp/out")"; bad=1; }
expect 10 ORDER: "$df" replay --rules nccl --timeout 2 "$tmp/nccl"
# With more ranks than the model has, predict reports the ranks that it leaves out, and replay
# refuses the traces.
mkdir "$tmp/more" && for i in $(seq 1030); do ln "$tmp"/nccl/rank0-*.dft "$tmp/more/rank$i-x-$i.dft"; done
timeout "${LIMIT:-60}" "$df" predict "$tmp/more" >"$tmp/out" 2>&1
grep -q "more than 1024 ranks: 6 of 1030 processes are left out" "$tmp/out" || { echo "FAIL: predict of 1030 ranks: $(cat "$tmp/out")"; bad=1; }
timeout "${LIMIT:-60}" "$df" replay "$tmp/more" >"$tmp/out" 2>&1
[ $? = 1 ] && grep -q "1030 ranks; at most 1024 can be replayed" "$tmp/out" || { echo "FAIL: replay of 1030 ranks: $(cat "$tmp/out")"; bad=1; }
rm -rf "$tmp/more"
# A cycle without ranks that differ, because no two share more than one exchange. The report then
# lists the call sites of the cycle's operations.
square=$src/tests/deadlock/catalogue/PC-16.txt script=$B/tests/deadlock/interpreter/script
timeout "${LIMIT:-60}" "$df" run --host=4 --rules nccl --trace "$tmp/square" --timeout 2 -- "$script" --timeout 20 "$square" >"$tmp/log" 2>&1
expect 13 DATA: "$df" check "$tmp/square"
! grep "First divergence" "$tmp/out" || { echo "FAIL: ranks that issued the same are said to differ"; bad=1; }
sed -n '/^Operations of the cycle, by call site:/,/^$/p' "$tmp/out" | grep -A1 -E ' (send|recv) .* on r3\b' | grep -q "^    at script" || { echo "FAIL: no call sites of the cycle: $(cat "$tmp/out")"; bad=1; }
# A node has one identity: in the header (host_hash, byte 88 of the format), and in the records of
# members and of deaths.
"$df" run --host=2 -n 2 --trace "$tmp/two" -- "$app" --iters 1 >"$tmp/log" 2>&1 || { echo "FAIL: two ranks: status $?"; bad=1; }
nodes=$("$df" show --json --type comm_member "$tmp/two" | jq -r .a | sort -u)
for f in "$tmp/two"/*.dft; do
	[ "$nodes" = "$(od -An -tx8 -j88 -N8 "$f" | sed -E 's/ *0*/0x/')" ] || { echo "FAIL: $f: its node is not its members' ($nodes)"; bad=1; }
done
expect 0 OK: "$df" replay --rules dfshim "$tmp/nccl"

# The report of the living job and that of its files are equal except for figures that vary. The job
# has many cycles of one length, and both must choose the same. If a rank answers too late, the job
# knows less than its files and says "likely", or has not even begun. Then repeat the job.
alike() { # name, arguments of the job ...
	local name=$1 f try tries="1 2 3 4 5"
	shift
	[ "${SLOW:-1}" = 1 ] || tries=1
	for try in $tries; do
		timeout "${LIMIT:-60}" "$df" run --host=8 -n 8 --rules nccl --trace "$tmp/$name$try" --timeout $((2 * ${SLOW:-1})) -- "$app" --iters 3 "$@" \
			>"$tmp/log" 2>&1 && { echo "FAIL: the disordered job finished by NCCL's rules ($*)"; bad=1; }
		! grep -q "^Shortest cycle" "$tmp/log" || ! grep -q "^Confidence: proved" "$tmp/log" || break
	done
	if [ "${SLOW:-1}" != 1 ] && ! grep -q "^Confidence: proved" "$tmp/log"; then
		echo "alike $*: under a sanitizer no process was answered by all others in time: nothing to compare"
		return
	fi
	"$df" check "$tmp/$name$try" >"$tmp/out" 2>&1
	for f in log out; do
		awk '/^[A-Z_]+: / { on = !nr++ } on { print } /^[0-9]+ traces, / { on = 0 }' "$tmp/$f" |
			sed -E 's/[0-9.]+( to [0-9.]+)? s\b/N s/g; /^Note: the verdict is for the moment/d; /^[0-9]* traces, /d' >"$tmp/$f.said"
	done
	if ! grep -q "^Shortest cycle" "$tmp/log.said" || ! diff "$tmp/log.said" "$tmp/out.said" >"$tmp/diff"; then
		echo "FAIL: live and from the files ($*; $try):"
		head -40 "$tmp/diff" "$tmp/log.said"
		bad=1
	fi
}
alike warm --warmup --seed 3

timeout "${LIMIT:-60}" "$df" run --host=4 -n 4 --trace "$tmp/ours" -- "$app" --warmup --iters 3 >"$tmp/log" 2>&1 ||
	{ echo "FAIL: the job did not finish by our rules"; cat "$tmp/log"; bad=1; }
expect 0 OK: "$df" check "$tmp/ours"
expect 14 "POTENTIAL DEADLOCK" "$df" predict "$tmp/ours"

timeout "${LIMIT:-60}" "$df" run --host=4 -n 4 --trace "$tmp/same" -- "$app" --warmup --iters 3 --inorder >"$tmp/log" 2>&1 ||
	{ echo "FAIL: the control did not finish"; bad=1; }
expect 0 "no potential deadlock" "$df" predict "$tmp/same"
expect 0 OK: "$df" replay --rules nccl "$tmp/same"
# The names of communicators are recorded whether NCCL or dfshim executes.
for how in nccl dfshim; do
	NET_NAMES=, timeout "${LIMIT:-60}" "$df" run --host=2 --rules $how --trace "$tmp/names.$how" -- "$B/clients/netcheck" --ranks 2 >"$tmp/log" 2>&1 ||
		{ echo "FAIL: netcheck by the rules of $how: $(tail -3 "$tmp/log")"; bad=1; }
	names=$("$df" ls --json "$tmp/names.$how" | jq -r '.. | .name? | strings' | sort -u | tr '\n' ' ')
	[ "$names" = "net0 net1 " ] || { echo "FAIL: by the rules of $how the names are: $names"; bad=1; }
done
# A replay calls them by the same names.
expect 0 OK: "$df" replay --trace "$tmp/again" "$tmp/names.dfshim"
names=$("$df" ls --json "$tmp/again" | jq -r '.. | .name? | strings' | sort -u | tr '\n' ' ')
[ "$names" = "net0 net1 " ] || { echo "FAIL: in a replay the names are: $names"; bad=1; }
exit $bad
