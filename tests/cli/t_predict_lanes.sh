#!/bin/bash
# Description: `dfshim predict --executor nccl` does not report deadlocks that lanes prevent. It reports disorder inside a communicator, unless the ranks agree on an order, and whether the CTAs and hardware queues suffice.
# Limit: 200 s
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
unset DFSHIM_TRACE
# recorded NAME: the daemon executes the program on standard input. The traces are in $T/NAME.
recorded() {
	cat >"$T/$1.txt"
	timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host --executor daemon --trace "$T/$1" -- "$S" --timeout $((40 * SLOW)) "$T/$1.txt" \
		>"$T/$1.log" 2>&1 || fail "$1: not recorded: $(cat "$T/$1.log")"
}
# says STATUS NAME ARGS...: predict of this trace must exit with STATUS. Its output is in $T/said.
says() {
	local want=$1 name=$2 rc=0
	shift 2
	"$B/dfshim" predict "$@" "$T/$name" >"$T/said" 2>"$T/err" || rc=$?
	[ $rc = "$want" ] || fail "$name: predict $*: status $rc, not $want: $(cat "$T/said" "$T/err")"
}
said() { grep -qF -- "$1" "$T/said" || fail "not said: \"$1\": $(cat "$T/said")"; }

# Two communicators on one stream in opposite orders, with device synchronisations.
recorded opposite <<'PROGRAM'
ranks 2
comm A 0 1
comm B 0 1
0: AR A s; dsync; AR B s; dsync
1: AR B s; dsync; AR A s; dsync
PROGRAM
says 14 opposite
says 0 opposite --executor nccl
said "no potential deadlock found"
said "2 communicators of a rank"

# The same inside one communicator: two operations are exchanged.
recorded inside <<'PROGRAM'
ranks 2
comm A 0 1
0: AR A s n=64; AR A s2 n=32; ssync s; ssync s2
1: AR A s2 n=32; AR A s n=64; ssync s; ssync s2
PROGRAM
says 14 inside --executor nccl
said "POTENTIAL DEADLOCK: the recorded order deadlocks on lanes"
says 0 inside --executor nccl --order agree
# A message and a collective on two streams. In one communicator operations keep their order of
# issue.
recorded message <<'PROGRAM'
ranks 2
comm A 0 1
0: AR A s; send A 1 s2; ssync s; ssync s2
1: recv A 0 s2; AR A s; ssync s; ssync s2
PROGRAM
says 14 message --executor nccl
says 0 message --executor nccl --order agree

# A device synchronisation that predict must not assume to be released: a kernel, whose result the
# program may read, follows the operation.
DFSHIM_RELEASE=device recorded behind <<'PROGRAM'
ranks 2
comm A 0 1
comm B 0 1
0: AR A s; K s; dsync; AR B s2; dsync
1: AR B s2; K s2; dsync; AR A s; dsync
PROGRAM
says 14 behind --executor nccl

# Eight communicators at a time with 16 CTAs each need 128, and 16 in reserve.
{
	echo "ranks 2"
	for c in 1 2 3 4 5 6 7 8; do echo "comm C$c 0 1"; done
	for r in 0 1; do
		printf '%s:' $r
		for c in 1 2 3 4 5 6 7 8; do printf ' AR C%s s%s;' $c $c; done
		for c in 1 2 3 4 5 6 7 8; do printf ' ssync s%s;' $c; done
		echo
	done
} | recorded many
says 0 many --executor nccl --sms 144
said "at most 8 communicators of a rank"
said "a device of 144 multiprocessors has room for 8, and one in reserve: enough"
says 0 many --executor nccl --sms 143
said "has room for 7, and one in reserve: it may be short on 2 of 2 ranks"
said "  AllReduce on 0x"
# By default the recorded device counts: 4 slots of the CPU backend, 16 multiprocessors each.
says 0 many --executor nccl
said "a device of 64 multiprocessors has room for 3"
said "and 1 more communicators"
says 0 many --executor nccl --ctas 4
said "enough"
says 0 many --executor nccl --order agree --sms 64
said "has room for 3, and one in reserve: it may be short"
says 0 many --executor nccl --json
[ "$(jq -c '[.found, .budget.ctas, .budget.sms, .budget.short_ranks, (.budget.has_room | length), (.budget.beyond | length)]' "$T/said")" = \
	'[false,16,64,2,3,5]' ] || fail "JSON: $(cat "$T/said")"
says 0 many --json
[ "$(jq -c .budget "$T/said")" = null ] || fail "a budget by NCCL's rules: $(cat "$T/said")"
# 32 hardware queues suffice for 11 communicators and one in reserve, and also if a communicator has
# only one rank.
says 0 many --executor nccl --sms 144
said "a device of 32 hardware queues has room for 11, and one in reserve: enough"
says 0 many --executor nccl --sms 144 --queues 22
said "a device of 144 multiprocessors has room for 8, and one in reserve: enough"
said "a device of 22 hardware queues has room for 6, and one in reserve: it may be short on 2 of 2 ranks"
[ "$(grep -c '^  AllReduce on 0x' "$T/said")" = 2 ] || fail "held for queues: $(cat "$T/said")"
says 0 many --executor nccl --sms 144 --queues 8 --json
[ "$(jq -c '[.found, .budget.queues, .budget.short_ranks, (.budget.has_room | length), (.budget.beyond | length)]' "$T/said")" = \
	'[false,8,2,0,8]' ] || fail "JSON: $(cat "$T/said")"
says 0 many --executor nccl --sms 144 --queues 0
grep -q "queues" "$T/said" && fail "queues that are not shared: $(cat "$T/said")"
{
	echo "ranks 2"
	for c in 1 2 3 4 5 6; do printf 'comm C%s 0 1\ncomm D%s 0\ncomm E%s 1\n' $c $c $c; done
	for r in 0 1; do
		printf '%s:' $r
		for c in 1 2 3 4 5 6; do printf ' AR C%s s%s;' $c $c; done
		for c in 1 2 3 4 5 6; do printf ' AR %s%s t%s;' "$([ $r = 0 ] && echo D || echo E)" $c $c; done
		for c in 1 2 3 4 5 6; do printf ' ssync s%s; ssync t%s;' $c $c; done
		echo
	done
} | recorded alone
says 0 alone --executor nccl --sms 144 --queues 32
said "a device of 144 multiprocessors has room for 8, and one in reserve: enough"
said "a device of 32 hardware queues has room for 11, and one in reserve: it may be short on 2 of 2 ranks"
# With a synchronisation after each collective only one runs at a time. The program is `cold`,
# because its set-up only polls, and a poll that finds its operation done at once is not recorded.
sed -e '1a cold' -e 's/\(AR C\([0-9]\) s\([0-9]\);\)/\1 ssync s\3;/g' "$T/many.txt" | recorded few
says 0 few --executor nccl --sms 32
said "at most 1 communicators of a rank"
said "enough"
exit 0
