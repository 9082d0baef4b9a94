#!/bin/bash
# Description: random programs on lanes, also with collectives in graphs. If the ranks agree on an order, all programs that complete by dfshim's rules complete in any order of issue, also if SMs are short. In the order of issue, programs that complete with room for all complete with few SMs too.
# Limit: 600 s
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
R=$B/tests/deadlock/generator/random
[ -x "$S" ] && [ -x "$R" ] || skip "the interpreter is not built here"
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
PROGRAMS=$((${PROGRAMS:-300} / SLOW))
export DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=8 DFSHIM_TIMEOUT_MS=$((20000 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort
# Enough slots for all communicators.
export DFSHIM_EXECUTOR=nccl DFSHIM_HOST_SLOTS=64 DFSHIM_NCCL_CTAS=4
unset DFSHIM_TRACE

# drawn SEED: writes the program of the seed. Fails if the program does not complete by dfshim's
# rules.
drawn() {
	"$R" --print "$1" >"$T/$1.txt"
	grep -q '^# class.* ours 0 ' "$T/$1.txt"
}

# captured SEED: writes the program GSEED: every second collective of the program, but not in groups,
# is captured into a graph of its own, which is launched in its place.
captured() {
	awk '/^[0-9]+\.[0-9]+:/ {
		thread = $1
		gsub(/[^0-9]/, "x", thread)
		nr = split(substr($0, length($1) + 1), step, ";")
		out = $1
		grouped = 0
		for (i = 1; i <= nr; i++) {
			n = split(step[i], word, " ")
			grouped = word[1] == "{" || (grouped && word[1] != "}")
			if (!grouped && i % 2 && word[1] ~ /^(AR|AG|RS)$/) {
				op = word[1] " " word[2] " q" thread
				for (k = 4; k <= n; k++)
					op = op " " word[k]
				graph = "g" thread i
				step[i] = " cap q" thread " " graph "; " op "; endcap q" thread " " graph "; launch " graph " " word[3]
			}
			out = out step[i] (i < nr ? ";" : "")
		}
		$0 = out
	}
	{ print }' "$T/$1.txt" >"$T/G$1.txt"
}

# one SEED ORDER: executes a program. Writes $T/SEED.ORDER.bad if it fails.
one() {
	DFSHIM_NCCL_ORDER=$2 LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" \
		timeout -k 5 "${LIMIT:-60}" "$S" --timeout $((30 * SLOW)) "$T/$1.txt" >"$T/$1.$2" 2>&1 ||
		{ echo "program $1, $2:" && cat "$T/$1.txt" "$T/$1.$2"; } >"$T/$1.$2.bad"
}
# The seeds are fixed. A message behind one in NCCL's buffer waits for the receive of that one
# (docs/architecture.md), and one program in many thousands cannot wait for it. In program 571774653
# a part of a group must end before the other part can begin.
seed=${DRAW:-0} nr=0 graphs=0
while [ $nr -lt $PROGRAMS ]; do
	seed=$((seed + 1))
	drawn $seed || continue
	nr=$((nr + 1))
	[ "$(jobs -rp | wc -l)" -lt 6 ] || wait -n
	one $seed agree &
	captured $seed
	[ $((nr % 4)) = 0 ] && grep -q ' launch ' "$T/G$seed.txt" || continue
	[ "$(jobs -rp | wc -l)" -lt 6 ] || wait -n
	one G$seed agree &
	graphs=$((graphs + 1))
done
[ $graphs -gt $((PROGRAMS / 8)) ] || fail "only $graphs programs with graphs"
drawn 571774653 || fail "program 571774653 is another one"
one 571774653 agree
wait
cat "$T"/*.agree.bad >"$T/bad" 2>/dev/null
[ ! -s "$T/bad" ] || fail "$(cat "$T/bad")"
# few SEED: executes a program with room for one communicator beside the reserve. In the order of
# issue only if it completes with room for all.
few() {
	DFSHIM_HOST_SMS=8 one "$1" agree
	mv "$T/$1.agree.bad" "$T/$1.agree.few" 2>/dev/null
	if [ -e "$T/G$1.agree" ]; then
		DFSHIM_HOST_SMS=8 one "G$1" agree
		mv "$T/G$1.agree.bad" "$T/G$1.few" 2>/dev/null
	fi
	DFSHIM_TIMEOUT_MS=$((2000 * SLOW)) one "$1" issue
	[ ! -e "$T/$1.issue.bad" ] || return 0
	echo "$1" >>"$T/few"
	DFSHIM_HOST_SMS=8 one "$1" issue
	mv "$T/$1.issue.bad" "$T/$1.few" 2>/dev/null
}
for seed in $(seq 1 $((90 / SLOW))); do
	[ -e "$T/$seed.agree" ] || continue
	[ "$(jobs -rp | wc -l)" -lt 6 ] || wait -n
	few "$seed" &
done
wait
cat "$T"/*.few >"$T/bad" 2>/dev/null
[ ! -s "$T/bad" ] || fail "operations are held: $(cat "$T/bad")"
held=$(wc -l <"$T/few")
# The control: program 40 issues a message and a collective of one communicator in different orders.
drawn 40 || fail "program 40 is another one"
DFSHIM_TIMEOUT_MS=$((800 * SLOW)) one 40 issue
grep -q '^ORDER: ' "$T/40.issue.bad" || fail "program 40 in the order of issue: $(cat "$T/40.issue")"
echo "$nr programs, $held of them where operations are held, and $graphs with graphs"
exit 0
