#!/bin/bash
# Description: threads block while NCCL sets up connections. The trace contains the operations that they were about to issue, and replay executes these.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
cat >"$T/cold.txt" <<'PROGRAM'
cold
ranks 2
comm A 0 1
comm B 0 1
0: AR A s1 n=64; AR B s2 n=128
1: AR B s2 n=128; AR A s1 n=64
PROGRAM
rm -rf "$T/trace"
mkdir -p "$T/trace"
env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=800 DFSHIM_TIMEOUT_ACTION=abort \
	DFSHIM_TRACE="$T/trace" timeout -k 2 "${LIMIT:-100}" "$S" --timeout 80 "$T/cold.txt" >"$T/live" 2>&1
"$B/dfshim" check "$T/trace" >"$T/check"
rc=$?
[ $rc = 10 ] || fail "check: status $rc: $(head -1 "$T/check")"
for out in live check; do
	grep -q '^ORDER: .*use different communicators first' "$T/$out" || fail "$out: $(grep -m 1 : "$T/$out")"
	grep -qE 'AllReduce\(64 x int32, sum\) +on r0; for [0-9.]+ s' "$T/$out" || fail "$out lacks r0's operation"
	grep -qE 'AllReduce\(128 x int32, sum\) +on r1; for [0-9.]+ s' "$T/$out" || fail "$out lacks r1's operation"
done
[ "$("$B/dfshim" show "$T/trace" | grep -c op_intent)" -ge 2 ] || fail "show lacks the records"
# All tools show the operations that were not issued.
"$B/dfshim" check --json "$T/trace" | jq -e '[.not_issued[] | [.rank, .kind, .count]] | sort == [["r0", "AllReduce", 64], ["r1", "AllReduce", 128]]' >/dev/null ||
	fail "check --json: $("$B/dfshim" check --json "$T/trace" | jq -c .not_issued)"
"$B/dfshim" check --json "$T/trace" | jq -e '[.not_issued[].evidence.stack[0]] | length == 2 and all(test("^script"))' >/dev/null ||
	fail "check --json: no call stack of what was not issued"
"$B/dfshim" timeline "$T/trace" | jq -e '[.traceEvents[] | select(.ph == "X" and (.name | test("^AllReduce .*never issued")))] | length == 2' >/dev/null ||
	fail "timeline lacks what was not issued"
"$B/dfshim" report -o "$T/r.html" "$T/trace" >/dev/null || fail "report: status $?"
[ "$(grep -o 'AllReduce [^"]*, not issued yet' "$T/r.html" | wc -l)" = 2 ] || fail "report lacks what was not issued"
# By NCCL's rules the replay hangs for the same reason.
"$B/dfshim" replay --rules nccl --timeout 2 "$T/trace" >"$T/nccl" 2>&1
rc=$?
[ $rc = 10 ] && grep -q '^ORDER: .*use different communicators first' "$T/nccl" || fail "replay by NCCL's rules: status $rc: $(head -3 "$T/nccl")"
# By dfshim's rules the threads do not wait. The operations that they would issue next are unknown,
# so the replay must not report a missing rank.
"$B/dfshim" replay --host --json "$T/trace" >"$T/ours" 2>&1
rc=$?
grep -q "not in the trace" "$T/ours" || fail "replay does not say what is not there: $(head -3 "$T/ours")"
[ $rc = 0 ] || fail "replay: status $rc: $(head -3 "$T/ours")"
grep -q "no operations" "$T/ours" && fail "replay found no operations"
# The same for the first message between two ranks, outside and inside groups. On lanes the
# application's threads do not wait.
for group in no yes; do
	g() { if [ $group = yes ]; then echo "{; $1; }"; else echo "$1"; fi; }
	printf '%s\n' cold "ranks 2" "comm A 0 1" "comm B 0 1" "0: AR A s1; AR B s2; $(g "send A 1 s1"); $(g "send B 1 s2")" \
		"1: AR A s1; AR B s2; $(g "recv B 0 s2"); $(g "recv A 0 s1")" >"$T/pair.txt"
	env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort \
		timeout -k 2 "${LIMIT:-100}" "$S" --timeout 80 "$T/pair.txt" >"$T/live" 2>&1 && fail "a pair: no hang by NCCL's rules"
	grep -q "^ORDER: .* NCCL connects two ranks at their first message" "$T/live" || fail "a pair: $(cat "$T/live")"
	# A ring of messages. Also if a message is the communicator's first operation, NCCL connects
	# two ranks and not all of them.
	printf '%s\n' cold "ranks 3" "comm A 0 1 2" "0: $(g "send A 1 s1"); $(g "recv A 2 s2")" "1: $(g "send A 2 s1"); $(g "recv A 0 s2")" \
		"2: $(g "send A 0 s1"); $(g "recv A 1 s2")" >"$T/ring.txt"
	env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort \
		timeout -k 2 "${LIMIT:-100}" "$S" --timeout 80 "$T/ring.txt" >"$T/live" 2>&1 && fail "a ring: no hang by NCCL's rules"
	grep -q "^ORDER: .*, .* and others wait for one another .* NCCL connects two ranks at their first message" "$T/live" || fail "a ring: $(cat "$T/live")"
	grep -q "^Fix: put the messages that meet into one ncclGroupStart/End" "$T/live" || fail "a ring: $(cat "$T/live")"
	# With an agreed order operations do not wait for SMs, so both communicators must fit.
	for how in "issue 16" "issue 64" "agree 64"; do
		read -r order sms <<<"$how"
		# A rank's operations on one communicator keep their order unless the ranks agree on
		# another one, so the ring completes only with `agree`.
		for program in pair $([ "$order" = issue ] || echo ring); do
			DFSHIM_NCCL_ORDER=$order DFSHIM_HOST_SMS=$sms timeout -k 2 "${LIMIT:-100}" "$B/dfshim" run --host --executor nccl -- \
				"$S" --timeout $((60 * SLOW)) "$T/$program.txt" >"$T/live" 2>&1 || fail "a $program on lanes, $order, $sms: $(cat "$T/live")"
		done
	done
done
# A group with a message that the other rank has not issued: ncclGroupEnd() waits for that rank, and
# launches nothing of the group.
printf '%s\n' cold "ranks 2" "comm A 0 1" "0: AR A s1; dsync; {; send A 1 s1; recv A 1 s1; }" "1: AR A s1; dsync; recv A 0 s1; dsync" >"$T/batch.txt"
env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort \
	timeout -k 2 "${LIMIT:-100}" "$S" --timeout 80 "$T/batch.txt" >"$T/live" 2>&1 && fail "a batch: no hang by NCCL's rules"
grep -q "^SYNC: r1 is in cudaDeviceSynchronize" "$T/live" || fail "a batch: $(cat "$T/live")"
grep -q "that call connects with r1, which has not issued its part" "$T/live" || fail "a batch: $(cat "$T/live")"
# NCCL executes AlltoAll as messages.
printf '%s\n' cold "ranks 2" "comm A 0 1" "comm B 0 1" "0: A2A A s1; A2A B s2" "1: A2A B s2; A2A A s1" >"$T/all.txt"
env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort \
	timeout -k 2 "${LIMIT:-100}" "$S" --timeout 80 "$T/all.txt" >"$T/live" 2>&1 && fail "AlltoAll: no hang by NCCL's rules"
grep -q "^ORDER: .* NCCL connects two ranks at their first message" "$T/live" || fail "AlltoAll: $(cat "$T/live")"
for how in "issue 16" "issue 64" "agree 64"; do
	read -r order sms <<<"$how"
	DFSHIM_NCCL_ORDER=$order DFSHIM_HOST_SMS=$sms timeout -k 2 "${LIMIT:-100}" "$B/dfshim" run --host --executor nccl -- \
		"$S" --timeout $((60 * SLOW)) "$T/all.txt" >"$T/live" 2>&1 || fail "AlltoAll on lanes, $order, $sms: $(cat "$T/live")"
done
exit 0
