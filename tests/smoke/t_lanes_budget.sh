#!/bin/bash
# Description: on lanes, with more communicators than fit on a device, operations are held and end on the reserve, even if the device has only the reserve. Errors end held operations.
# Limit: 600 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
host() { timeout -k 5 "${LIMIT:-150}" "$B/dfshim" run --host --executor nccl "$@"; }
# right SMS CLIENT ARGS...: the client must succeed on devices with SMS multiprocessors. A
# communicator has 16 CTAs.
right() {
	local sms=$1
	shift
	DFSHIM_HOST_SMS=$sms host -- "$C/"$* --timeout $((80 * SLOW)) >"$T/out" 2>&1 || fail "$sms multiprocessors: $*: $(cat "$T/out")"
}

# 16 multiprocessors are only the reserve. 32 have room for one communicator beside it, 40 for one
# and a half.
for sms in 16 32 40; do
	right $sms disorder --ranks 4 --colls 8 --comms 8 --iters $((20 / SLOW)) --sync --seed "$SEED"
	right $sms disorder --ranks 2 --procs 2 --colls 6 --comms 6 --iters $((40 / SLOW)) --mix --streams 3 --seed "$SEED"
	right $sms disorder --ranks 4 --procs 2 --colls 6 --comms 6 --iters $((10 / SLOW)) --wait sync --seed "$SEED"
	right $sms p2pcheck
	right $sms splitcheck
	right $sms collcheck --ranks 2
done
right 64 disorder --ranks 8 --procs 8 --colls 8 --comms 8 --iters $((40 / SLOW)) --seed "$SEED"
right 64 disorder --ranks 2 --procs 2 --colls 100 --comms 100 --iters 2 --mix --streams 3 --seed "$SEED"

ONLY="PD-03 RD-01 SQ-04" RULES=lanes "$SRC/tests/deadlock/catalogue.sh" || fail "the catalogue"

# A communicator that requests more CTAs than the device has gets all of the device's.
DFSHIM_NCCL_CTAS=64 right 24 disorder --ranks 2 --colls 3 --comms 3 --iters $((20 / SLOW)) --seed "$SEED"
grep -q 'a communicator may have' "$T/out" && fail "a line about CTAs that no communicator asked for: $(cat "$T/out")"
grep -q 'DFSHIM_NCCL_CTAS=64: device 0 has 24 multiprocessors, so its communicators execute one at a time' "$T/out" ||
	fail "more CTAs than the device has: not said: $(cat "$T/out")"
# A communicator that requests more than its budget gets the budget, and a line is logged. An
# invalid budget is replaced by the default.
right 64 disorder --ranks 2 --colls 6 --comms 6 --ctas 32 --iters $((20 / SLOW)) --sync --seed "$SEED"
grep -q 'a communicator may have 32 CTAs by its configuration; it gets 16 (DFSHIM_NCCL_CTAS)' "$T/out" || fail "32 CTAs: $(cat "$T/out")"
for ctas in 0 65 many; do
	DFSHIM_NCCL_CTAS=$ctas right 64 disorder --ranks 2 --colls 6 --comms 6 --iters $((20 / SLOW)) --sync --seed "$SEED"
	grep -q "DFSHIM_NCCL_CTAS=$ctas" "$T/out" || fail "DFSHIM_NCCL_CTAS=$ctas: not said: $(cat "$T/out")"
done
# NCCL's own variables override its configuration, so dfshim counts their numbers.
NCCL_MIN_NCHANNELS=32 right 64 disorder --ranks 2 --colls 6 --comms 6 --iters $((20 / SLOW)) --sync --seed "$SEED"
grep -q 'is 32: NCCL may give each communicator as many CTAs, so dfshim counts 32 and not 16' "$T/out" ||
	fail "32 channels at least: not said: $(cat "$T/out")"
NCCL_LAUNCH_ORDER_IMPLICIT=1 right 64 disorder --ranks 2 --colls 2 --iters 2 --seed "$SEED"
grep -q 'NCCL_LAUNCH_ORDER_IMPLICIT is set to 0' "$T/out" || fail "the implicit order: not said: $(cat "$T/out")"
right 64 disorder --ranks 2 --colls 200 --comms 200 --iters 2 --streams 3 --seed "$SEED"
# The line is logged once for each device.
DFSHIM_DEBUG=info right 32 disorder --ranks 2 --colls 4 --comms 4 --iters 2 --seed "$SEED"
[ "$(grep -c 'device 0 has 32 multiprocessors, and its communicators have more than 16 CTAs together' "$T/out")" = 1 ] ||
	fail "not said: $(cat "$T/out")"

# The same in an agreed order, and with different orders inside a communicator.
for sms in 16 32 40; do
	for procs in 1 2; do
		DFSHIM_NCCL_ORDER=agree right $sms disorder --ranks 4 --procs $procs --colls 8 --comms 4 --iters $((20 / SLOW)) --mix --streams 3 --sync --warmup --seed "$SEED"
		DFSHIM_NCCL_ORDER=agree right $sms disorder --ranks 2 --procs $procs --colls 6 --comms 3 --iters $((20 / SLOW)) --wait sync --seed "$SEED"
	done
	DFSHIM_NCCL_ORDER=agree right $sms p2pcheck
	DFSHIM_NCCL_ORDER=agree right $sms splitcheck
done
RULES=agree ONLY="PD-03 RD-01 SQ-04" "$SRC/tests/deadlock/catalogue.sh" || fail "the catalogue, in an agreed order"

# Communicators are created, aborted and left while other communicators hold all multiprocessors.
for case in abort abort-sync leave busy; do
	for how in "--ranks 3" "--procs 3"; do
		for order in issue agree; do
			: >"$T/err"
			# shellcheck disable=SC2086 # words
			DFSHIM_NCCL_ORDER=$order DFSHIM_HOST_SMS=16 RUDE_UNTIL=$T/err RUDE_CASE=$case host -- "$C/rude" $how --timeout $((80 * SLOW)) \
				>"$T/out" 2>"$T/err" || fail "rude $case $how, $order: $(cat "$T/out" "$T/err")"
		done
	done
done
# leaves "WORD" RANK OTHER: rank RANK sends a small message and destroys the communicator, while the
# receive of rank OTHER is held.
leaves() {
	printf '%s\n' $1 "ranks 2" "comm A 0 1" "comm B 0 1" "$2: send A $3 s n=4; ssync s; destroy A; hs f; hw g; AR B s1; ssync s1" \
		"$3: AR B s1; hw f; recv A $2 s n=4; ssync s; hs g; ssync s1" >"$T/script"
	DFSHIM_HOST_SMS=32 host -- "$B/tests/deadlock/interpreter/script" --timeout $((80 * SLOW)) "$T/script" >"$T/out" 2>&1 ||
		fail "rank $2 leaves ($1): $(cat "$T/out")"
}
leaves "" 0 1
leaves procs 0 1
leaves "" 1 0
leaves procs 1 0

# The sender of a message waits in its stream for an operation that waits for another held one. The
# message must not get the reserve before that held operation.
printf '%s\n' "ranks 3" "comm X 0 1 2" "comm D 1 2" "comm E 1 2" "0: recv X 1 s n=4; send X 2 s n=4; ssync s" \
	"1: sleep 300; AR D s3; K s3; send X 0 s3 n=4; ssync s3; AR E s1; ssync s1" \
	"2: AR E s1; recv X 0 s2 n=4; sleep 600; AR D s3; ssync s3; ssync s2; ssync s1" >"$T/script"
DFSHIM_HOST_SMS=32 host -- "$B/tests/deadlock/interpreter/script" --timeout $((80 * SLOW)) "$T/script" >"$T/out" 2>&1 ||
	fail "behind another one: $(cat "$T/out")"

# While a lane has what others wait for, its thread looks at it more often than each millisecond.
printf '%s\n' "ranks 2" "comm A 0 1" "comm B 0 1" "0: AR A s1; AR B s2; ssync s1; ssync s2" "1: hw g; AR A s1; AR B s2; ssync s1; ssync s2" \
	"1.1: sleep $((4000 * SLOW)); hs g" >"$T/script"
for _ in 1 2 3 4 5; do
	DFSHIM_TIMEOUT_MS=600000 DFSHIM_HOST_SMS=32 host -- "$B/tests/deadlock/interpreter/script" --timeout $((80 * SLOW)) "$T/script" >"$T/out" 2>&1 &
	most=$(timeout $((60 * SLOW)) python3 - "$T/script" <<'PROGRAM'
import glob, sys, time
def looks():
    for path in glob.glob("/proc/[0-9]*/task/*/comm"):
        try:
            at = path[:-4]
            if open(path).read() == "dfshim-lanes\n" and sys.argv[1] in open(at + "cmdline").read():
                return int(open(at + "status").read().split("\nvoluntary_ctxt_switches:")[1].split()[0])
        except (OSError, IndexError):
            pass
most, since, was = 0, time.monotonic(), None
while True:
    n, t = looks(), time.monotonic()
    if n is None and was is not None:
        break
    if n is not None and was is not None:
        most = max(most, (n - was) / (t - since))
    was, since = n, t
    time.sleep(0.2)
print(int(most))
PROGRAM
	)
	wait $! || fail "a watched lane: $(cat "$T/out")"
	[ "${most:-0}" -le 1500 ] || break
done
# Each millisecond makes 1,000 at most.
[ "${most:-0}" -gt 1500 ] || fail "a watched lane is looked at $most times a second"

DFSHIM_HOST_SMS=16 SURVIVOR_HOW=kill SURVIVOR_MADE=1 SURVIVOR_PROC=1 SURVIVOR_US=200000 SURVIVOR_ROUNDS=100000 host --grace "$(seconds 200)" \
	-n 3 -- "$C/survivor" --ranks 6 --timeout $((40 * SLOW)) >"$T/out" 2>"$T/err"
[ "$(grep -c 'rank [23] .* has died: its communicators end' "$T/err")" = 2 ] || fail "a death: $(cat "$T/err")"
exit 0
