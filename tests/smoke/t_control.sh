#!/bin/bash
# Description: the control: by NCCL's rules the disordered job deadlocks with the right verdict, and the ordered job completes. The cause may be one stream, set-up, room, hardware queues or synchronisations.
set -u
. "$SRC/tests/lib/clients.sh"
# By NCCL's rules an ordered job completes, and so does a disordered one with a stream and room for
# each collective.
control --ranks 4 --colls 6 --iters 20 --inorder --seed "$SEED"
[ "$rc" = 0 ] || fail "in order by NCCL's rules: status $rc: $(tail -5 "$T/verdict")"
DFSHIM_HOST_SLOTS=64 DFSHIM_HOST_QUEUES=64 control --ranks 4 --colls 6 --streams 6 --iters 5 --warmup --seed "$SEED"
[ "$rc" = 0 ] || fail "with room for all by NCCL's rules: status $rc: $(tail -5 "$T/verdict")"

# One stream and random orders give a cycle of queues.
control --ranks 4 --colls 6 --iters 20 --warmup --seed "$SEED"
[ "$rc" != 0 ] || fail "one stream, random orders: finished by NCCL's rules"
grep -q ORDER "$T/verdict" || fail "one stream: no ORDER in: $(head -20 "$T/verdict")"

# The cycle may also be in the set-up of connections.
control --ranks 4 --colls 6 --iters 20 --seed "$SEED"
[ "$rc" != 0 ] || fail "without warm-up: finished by NCCL's rules"

# Each collective has a stream, but the device has room for some of them only.
DFSHIM_HOST_SLOTS=2 control --ranks 4 --colls 8 --streams 8 --iters 50 --warmup --seed "$SEED"
[ "$rc" != 0 ] || fail "two slots for eight collectives: finished by NCCL's rules"
grep -q RESOURCE "$T/verdict" || fail "two slots: no RESOURCE in: $(head -20 "$T/verdict")"

# Each collective has a stream and room, but the streams share two hardware queues. On lanes the same
# job ends.
few=(--ranks 4 --colls 6 --streams 6 --iters 20 --warmup --seed "$SEED")
export DFSHIM_HOST_SLOTS=64 DFSHIM_HOST_QUEUES=2
control "${few[@]}"
[ "$rc" != 0 ] || fail "two queues for six streams: finished by NCCL's rules"
grep -q 'RESOURCE: .* share a hardware queue' "$T/verdict" || fail "two queues: no RESOURCE in: $(head -20 "$T/verdict")"
env -u DFSHIM_TRACE timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --executor nccl --timeout $((60 * SLOW)) -- "$C/disorder" "${few[@]}" >"$T/lanes" 2>&1 ||
	fail "two queues, on lanes: $(cat "$T/lanes")"
unset DFSHIM_HOST_SLOTS DFSHIM_HOST_QUEUES

# Room is counted in CTAs. 40 SMs have room for 8 communicators of 4 CTAs, but not of 16: the third
# one gets 8 SMs and waits.
for ctas in 4 16; do
	DFSHIM_HOST_SMS=40 DFSHIM_HOST_QUEUES=64 control --ranks 4 --colls 8 --streams 8 --iters 50 --warmup --ctas $ctas --seed "$SEED"
	if [ $ctas = 4 ]; then
		[ "$rc" = 0 ] || fail "8 communicators of 4 CTAs on 40 SMs: status $rc: $(tail -5 "$T/verdict")"
	else
		[ "$rc" != 0 ] || fail "8 communicators of 16 CTAs on 40 SMs: finished by NCCL's rules"
		grep -q RESOURCE "$T/verdict" || fail "40 SMs: no RESOURCE in: $(head -20 "$T/verdict")"
	fi
done

# Room for all, with device synchronisations between the collectives.
DFSHIM_HOST_SLOTS=64 DFSHIM_HOST_QUEUES=64 control --ranks 4 --colls 6 --streams 6 --iters 20 --warmup --sync --seed "$SEED"
[ "$rc" != 0 ] || fail "with synchronisations: finished by NCCL's rules"
grep -q SYNC "$T/verdict" || fail "synchronisations: no SYNC in: $(head -20 "$T/verdict")"
exit 0
