#!/bin/bash
# Description: `dfshim replay --executor nccl` repeats recorded communication on lanes. A hang by NCCL's rules that lanes prevent is passed, and its unrecorded rest is not reported as missing. Other hangs keep their verdicts. All kinds of operations are replayed.
# Limit: 200 s
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
unset DFSHIM_TRACE
# hung NAME: the program on standard input hangs by NCCL's rules. The traces are in $T/NAME.
hung() {
	cat >"$T/$1.txt"
	timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host --rules nccl --timeout "$(seconds 15)" --trace "$T/$1" -- "$S" --timeout $((40 * SLOW)) "$T/$1.txt" \
		>"$T/$1.log" 2>&1 && fail "$1: no hang by NCCL's rules: $(cat "$T/$1.log")"
}
# again STATUS WORD NAME ARGS...: the replay must exit with STATUS and say WORD first.
again() {
	local want=$1 word=$2 name=$3 rc=0 quiet=50
	shift 3
	# A replay that must finish waits longer for a loaded machine.
	[ "$want" != 0 ] || [ "$name" = opposite ] || quiet=400
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" replay --timeout "$(seconds $quiet)" "$@" "$T/$name" >"$T/said" 2>"$T/err" || rc=$?
	[ $rc = "$want" ] && grep -q "^$word: " "$T/said" || fail "$name: replay $*: status $rc, not $want: $(cat "$T/said" "$T/err")"
}

# Device synchronisations in opposite orders. The first ones hang, so the traces lack what follows.
hung opposite <<'PROGRAM'
ranks 2
comm A 0 1
comm B 0 1
0: AR A s; dsync; AR B s; dsync
1: AR B s; dsync; AR A s; dsync
PROGRAM
again 12 SYNC opposite --rules nccl
for executor in nccl daemon; do
	again 0 OK opposite --executor $executor --trace "$T/new.$executor"
	grep -q "are not in the trace" "$T/err" || fail "replay does not say what is not there: $(cat "$T/err")"
	"$B/dfshim" ls --json "$T/new.$executor" | jq -e --arg e $executor 'length == 2 and all(.executor | startswith($e))' >/dev/null || fail "not by $executor"
done
# Opposite orders on streams: the traces have the whole program.
hung streams <<'PROGRAM'
ranks 2
comm A 0 1
comm B 0 1
0: AR A s; AR B s; ssync s
1: AR B s; AR A s; ssync s
PROGRAM
again 0 OK streams --executor nccl
grep -q "^OK: all [0-9]* operations finished" "$T/said" || fail "streams: $(cat "$T/said")"
# A wait for a result that needs this thread hangs by any rules.
hung data <<'PROGRAM'
ranks 2
comm A 0 1
comm B 0 1
0: AR A s1; ssync s1; AR B s2; ssync s2
1: AR B s2; ssync s2; AR A s1; ssync s1
PROGRAM
again 13 DATA data --executor nccl
# Two ranks that send first hang by NCCL's rules, so on lanes too.
hung sends <<'PROGRAM'
ranks 2
comm A 0 1
0: send A 1 s n=2000000; recv A 1 s n=2000000
1: send A 0 s n=2000000; recv A 0 s n=2000000
PROGRAM
again 10 ORDER sends --executor nccl
again 0 OK sends --executor daemon
# A rank that leaves is missing in the replay too.
hung leaves <<'PROGRAM'
ranks 2
comm A 0 1
0: AR A s; ssync s; AR A s; ssync s
1: AR A s; ssync s
PROGRAM
again 20 MISSING leaves --executor nccl

# All collectives.
timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host --executor nccl --trace "$T/kinds" -- "$C/collcheck" --ranks 2 --timeout 60 >"$T/log" 2>&1 ||
	fail "collcheck: $(cat "$T/log")"
for kind in AlltoAll Gather Scatter; do
	"$B/dfshim" show "$T/kinds" | grep -qi " $kind " || fail "no $kind in the traces"
done
again 0 OK kinds --executor nccl
again 0 OK kinds
# A message of a rank to itself has no number among the collectives of its communicator.
printf '%s\n' "ranks 2" "comm A 0 1" "0: {; send A 0 s n=64; recv A 0 s n=64; }; AR A s; ssync s" "1: AR A s; ssync s" >"$T/self.txt"
timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host --executor nccl --trace "$T/self" -- "$S" --timeout $((40 * SLOW)) "$T/self.txt" >"$T/log" 2>&1 ||
	fail "self: $(cat "$T/log")"
"$B/dfshim" show "$T/self" | grep -q " SendRecvSelf " || fail "no message of a rank to itself in the traces"
"$B/dfshim" check "$T/self" >"$T/said" 2>&1 || fail "self: check: $(cat "$T/said")"
"$B/dfshim" predict --executor nccl "$T/self" >"$T/said" 2>&1 || fail "self: predict: $(cat "$T/said")"
again 0 OK self --executor nccl
again 0 OK self

"$B/dfshim" replay --executor nccl --rules nccl "$T/kinds" >"$T/said" 2>&1
[ $? = 2 ] && grep -q "by dfshim's rules, not --rules nccl" "$T/said" || fail "both: $(cat "$T/said")"
exit 0
