#!/bin/bash
# Runs the programs of catalogue/ by each set of rules in RULES and compares their ends with the
# expected ones. The default of RULES is "nccl ours strict". t_catalogue_*.sh call this script.
#   nccl    libdfnccl.so executes; dfshim ends a program that hangs after the verdict.
#   trace   libdfnccl.so executes; dfshim only reports a hang, as with NVIDIA's NCCL.
#   ours    dfshim executes.
#   strict  dfshim executes with strict stream order and without releases.
#   lanes   NCCL executes on lanes in the order of issue.
#   agree   NCCL executes on lanes in the order on which the ranks agree.
#
# Each file of catalogue/ names the expected end: OK or a verdict word. ONLY="SQ-01 GS-12" selects
# programs. BEHIND names a library that is preloaded after libdfshim.so and libdfhost.so.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
# BACKEND=cuda uses the machine's GPUs instead of libdfhost.so.
preload=$B/libdfshim.so
[ "${BACKEND:-host}" = cuda ] || preload="$preload $B/libdfhost.so"
preload+=${BEHIND:+ $BEHIND}
[ -x "$S" ] || skip "the interpreter is not built here"

# expected FILE RULES: prints the expected end of a program, OK or a verdict word.
expected() {
	awk -v rules="$2" '
	$1 == "class" { class = $2 }
	$1 == "nccl" { nccl = $2 }
	$1 == "ours" { ours = $2 }
	$1 == "strict" { strict = $2 }
	$1 == "lanes" { lanes = $2 }
	$1 == "agree" { agree = $2 }
	END {
		if (nccl == "") nccl = class == "OK" ? "OK" : "?"
		if (ours == "") ours = class == "D" ? nccl : "OK"
		if (lanes == "") lanes = ours
		if (agree == "") agree = ours
		if (strict == "") {
			if (class == "D" || class == "OK") strict = ours
			else if (class == "S-i") strict = "OK"
			else if (class == "S-e") strict = "SYNC"
			else strict = nccl == "RESOURCE" ? "OK" : nccl
		}
		print rules == "nccl" || rules == "trace" ? nccl : rules == "ours" ? ours : rules == "lanes" ? lanes : rules == "agree" ? agree : strict
	}' "$1"
}

value() { awk -v k="$2" -v d="$3" '$1 == k { d = $2 } END { print d }' "$1"; }

# heart N FILE: prints the first sentence and the waits of the N-th verdict in the file. Replaces
# durations by N, because they vary.
heart() {
	awk -v want="$1" '
	/^[A-Z_]+: / { nr++ }
	nr == want && /^(First divergence|Remedy|Fix|Confidence|Note): |^  rank +operation/ { exit }
	nr == want { print }' "$2" | sed -E 's/[0-9]+\.[0-9] s\b/N s/g'
}

# sure FILE SEEN: succeeds if every report in SEEN has the certainty that FILE demands, or if FILE
# demands none.
sure() {
	local want
	want=$(value "$1" sure "")
	[ -z "$want" ] || ! grep '^Confidence' "$2" | grep -qv "^Confidence: $want\.$"
}

# one FILE RULES: runs a program and prints a line that begins with "ok" or "BAD". After "BAD" the
# program's output follows.
one() {
	local f=$1 rules=$2 id want have rc ms
	id=$(basename "$f" .txt)
	want=$(expected "$f" "$rules")
	# A program that must finish gets a long time-out. One that must hang gets a short time-out.
	ms=$((800 * SLOW * ${PATIENCE:-1}))
	[ "$want" != OK ] || ms=60000
	# A `differs` line may name the backend too: cuda-strict means strict rules on a GPU that
	# all ranks share.
	local differs="^differs ($rules|${BACKEND:-host}-$rules)"
	grep -qE "$differs " "$f" && [ $ms = 60000 ] && ms=$((3000 * SLOW))
	local e=("DFSHIM_BACKEND=${BACKEND:-host}" DFSHIM_TIMEOUT_MS="$ms" DFSHIM_TIMEOUT_ACTION=abort "LD_PRELOAD=$preload")
	case $rules in
	nccl) e+=("${NCCL_RULES[@]}" "DFSHIM_HOST_SLOTS=$(value "$f" slots 4)" "DFSHIM_HOST_QUEUES=$(value "$f" queues 8)") ;;
	ours) e+=("DFSHIM_RELEASE=$(value "$f" release safe)") ;;
	lanes | agree) e+=(DFSHIM_EXECUTOR=nccl "DFSHIM_NCCL_ORDER=${rules/lanes/issue}" "LD_PRELOAD=$preload $B/libdfnccl.so" "DFSHIM_RELEASE=$(value "$f" release safe)" "DFSHIM_HOST_SLOTS=$(value "$f" slots 4)") ;;
	strict) e+=(DFSHIM_RELEASE=none DFSHIM_STREAM_ORDER=strict) ;;
	trace) e+=("${NCCL_RULES[@]}" DFSHIM_TIMEOUT_ACTION=report "DFSHIM_HOST_SLOTS=$(value "$f" slots 4)" "DFSHIM_HOST_QUEUES=$(value "$f" queues 8)") ;;
	esac
	mkdir -p "$T/trace.$id.$rules"
	local words live=() said="" twice=""
	words='^(OK|SLOW|ORDER|RESOURCE|SYNC|DATA|MISSING|MISMATCH|INIT|CRASH|GPU_STUCK|NET_STALL|NCCL_INTERNAL|HOST|UNKNOWN)\b'
	if [ "$rules" = trace ]; then
		# With DFSHIM_TIMEOUT_ACTION=report dfshim does not end the hang. The test ends the
		# program after the report, as a user would.
		setsid env "DFSHIM_TRACE=$T/trace.$id.$rules" "${e[@]}" timeout -k 2 "${LIMIT:-100}" "$S" --timeout 80 "$f" >"$T/$id.$rules" 2>&1 &
		local pid=$!
		while kill -0 $pid 2>/dev/null && ! grep -q '^Confidence' "$T/$id.$rules" 2>/dev/null; do sleep 0.1; done
		! kill -0 $pid 2>/dev/null || sleep 1.5
		kill -TERM -- -$pid 2>/dev/null
		wait $pid
		rc=$?
	else
		env "DFSHIM_TRACE=$T/trace.$id.$rules" "${e[@]}" timeout -k 2 "${LIMIT:-100}" "$S" --timeout "$((ms == 60000 ? 80 : 12 * SLOW))" "$f" >"$T/$id.$rules" 2>&1
		rc=$?
	fi
	mapfile -t live < <(grep -oE "$words" "$T/$id.$rules")
	have=${live[0]-}
	if [ "$rc" != 0 ] && [ "$rc" != 1 ]; then
		said=$("$B/dfshim" check "$T/trace.$id.$rules" 2>&1 | tee -a "$T/$id.$rules" | head -1 | cut -d: -f1)
		# The job must give one verdict, and its traces the same verdict. While the job
		# lives, a missing rank may only be late (SLOW).
		[ ${#live[@]} = 1 ] || twice="${#live[@]} verdicts while it lived (${live[*]-})"
		if [ "$have" = SLOW ] && [[ " MISSING HOST SYNC " == *" $said "* ]]; then
			have=$said
		elif [ -n "$have" ] && [ "$have" != "$said" ]; then
			twice="$have while it lived, $said from the traces"
		elif [[ " ORDER RESOURCE SYNC DATA " == *" $have "* ]] && [ "$(grep -c '^Confidence: proved\.$' "$T/$id.$rules")" = 2 ] &&
			[ "$(heart 1 "$T/$id.$rules")" != "$(heart 2 "$T/$id.$rules")" ]; then
			twice="$have with one circle while it lived, with another from the traces"
		fi
	fi
	# If there is no verdict, print the last records, which are all that can explain the
	# failure.
	[ -n "$have" ] || [ "$rc" = 0 ] || "$B/dfshim" show --tail 8 "$T/trace.$id.$rules" >>"$T/$id.$rules" 2>&1
	rm -rf "$T/trace.$id.$rules"
	[ "$rc" = 0 ] && have=OK
	[ "$rc" != 1 ] || have=WRONG
	if [ -n "$twice" ]; then
		echo "BAD  $id $rules: $twice"
		sed 's/^/     | /' "$T/$id.$rules" | cut -c1-160 | head -40
	elif [ "$have" = "$want" ] && [ "$rules" != strict ] && ! sure "$f" "$T/$id.$rules"; then
		echo "BAD  $id $rules: $have, but not $(value "$f" sure ""): $(grep -m 1 '^Confidence' "$T/$id.$rules")"
	elif [ "$have" = "$want" ] && [ -n "$(value "$f" says "")" ] && ! grep -q "^$have: .*$(sed -n 's/^says //p' "$f")" "$T/$id.$rules"; then
		echo "BAD  $id $rules: $have, but it does not say \"$(sed -n 's/^says //p' "$f")\": $(grep -m 1 "^$have:" "$T/$id.$rules")"
	elif [ "$have" = "$want" ]; then
		echo "ok   $id $rules $want"
	elif grep -qE "$differs( .*)? $have( |\$)" "$f"; then
		echo "ok   $id $rules $have, not $want: $(grep -E "$differs( .*)? $have( |\$)" "$f" | sed 's/.*# //')"
	else
		echo "BAD  $id $rules: ${have:-status $rc}, expected $want"
		sed 's/^/     | /' "$T/$id.$rules" | cut -c1-160 | head -40
	fi
}

if [ "${1-}" = --one ]; then
	# Each program writes a file of its own. Programs that append to one shared file at the same
	# time may overwrite each other's lines.
	one "$2" "$3" >"$T/$(basename "$2" .txt).$3.line"
	exit 0
fi

nr=0
rm -f "$T"/*.line
for f in "$SRC"/tests/deadlock/catalogue/*.txt; do
	id=$(basename "$f" .txt)
	[ -z "${ONLY-}" ] || [[ " $ONLY " == *" $id "* ]] || continue
	for rules in ${RULES-nccl ours strict}; do
		printf '%s\0%s\0' "$f" "$rules"
		nr=$((nr + 1))
	done
done > >(xargs -0 -n 2 -P 8 "$0" --one >/dev/null)
wait $!
cat "$T"/*.line >"$T/lines"
have=$(grep -c '^ok\|^BAD' "$T/lines")
[ "$have" = "$nr" ] || fail "only $have of $nr programs came to an end"
# On a loaded machine a late rank may be reported as missing, and a thread may answer the checker
# too late. Programs with such a verdict run once more, alone and with longer time-outs.
late='INIT|MISSING|SLOW|UNKNOWN|CRASH'
mapfile -t unsure < <(sed -nE "s/^BAD  ([^ ]+) ([a-z]+): (.*[ (])?($late)( .*|,.*|\))?\$/\1 \2/p" "$T/lines")
for one in "${unsure[@]}"; do
	read -r id rules <<<"$one"
	PATIENCE=6 "$0" --one "$SRC/tests/deadlock/catalogue/$id.txt" "$rules" >/dev/null
	grep -q '^ok' "$T/$id.$rules.line" || continue
	echo "$id $rules: as it should with more time (at first: $(sed -n "s/^BAD  $id $rules: //p" "$T/lines"))"
	cat "$T"/*.line >"$T/lines"
done
sort "$T/lines" | grep '^ok' | awk '{ n[$3]++; d[$3] += NF > 4 } END {
	for (r in n) printf "%s: %d end as the catalogue says, %d otherwise, as their files say\n", r, n[r] - d[r], d[r] }'
grep -vE '^(ok|SEED)' "$T/lines" && fail "$(grep -c '^BAD' "$T/lines") of $(grep -c '^[oB][kA]' "$T/lines") do not end as the catalogue says"
exit 0
