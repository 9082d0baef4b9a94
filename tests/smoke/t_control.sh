#!/bin/bash
# Description: the control: by NCCL's rules the disordered job deadlocks and the verdict says so; in order it finishes.
set -u
. "$SRC/tests/lib/clients.sh"
# In order nothing is wrong with NCCL's rules, nor with one stream for each collective and room for all.
control --ranks 4 --colls 6 --iters 20 --inorder --seed "$SEED"
[ "$rc" = 0 ] || fail "in order by NCCL's rules: status $rc: $(tail -5 "$T/verdict")"
DFSHIM_HOST_SLOTS=64 DFSHIM_HOST_QUEUES=64 control --ranks 4 --colls 6 --streams 6 --iters 5 --warmup --seed "$SEED"
[ "$rc" = 0 ] || fail "with room for all by NCCL's rules: status $rc: $(tail -5 "$T/verdict")"

# One stream, random orders: a cycle of queues.
control --ranks 4 --colls 6 --iters 20 --warmup --seed "$SEED"
[ "$rc" != 0 ] || fail "one stream, random orders: finished by NCCL's rules"
grep -q ORDER "$T/verdict" || fail "one stream: no ORDER in: $(head -20 "$T/verdict")"

# Also when the cycle is in the set-up of connections.
control --ranks 4 --colls 6 --iters 20 --seed "$SEED"
[ "$rc" != 0 ] || fail "without warm-up: finished by NCCL's rules"

# A stream for each, but only some fit the device.
DFSHIM_HOST_SLOTS=2 control --ranks 4 --colls 8 --streams 8 --iters 50 --warmup --seed "$SEED"
[ "$rc" != 0 ] || fail "two slots for eight collectives: finished by NCCL's rules"
grep -q RESOURCE "$T/verdict" || fail "two slots: no RESOURCE in: $(head -20 "$T/verdict")"

# Room is counted in CTAs: 40 SMs have room for 8 communicators of 4 CTAs, not of 16, the third of which gets 8 SMs and waits.
for ctas in 4 16; do
	DFSHIM_HOST_SMS=40 DFSHIM_HOST_QUEUES=64 control --ranks 4 --colls 8 --streams 8 --iters 50 --warmup --ctas $ctas --seed "$SEED"
	if [ $ctas = 4 ]; then
		[ "$rc" = 0 ] || fail "8 communicators of 4 CTAs on 40 SMs: status $rc: $(tail -5 "$T/verdict")"
	else
		[ "$rc" != 0 ] || fail "8 communicators of 16 CTAs on 40 SMs: finished by NCCL's rules"
		grep -q RESOURCE "$T/verdict" || fail "40 SMs: no RESOURCE in: $(head -20 "$T/verdict")"
	fi
done

# Room for all, but a device synchronisation between them.
DFSHIM_HOST_SLOTS=64 DFSHIM_HOST_QUEUES=64 control --ranks 4 --colls 6 --streams 6 --iters 20 --warmup --sync --seed "$SEED"
[ "$rc" != 0 ] || fail "with synchronisations: finished by NCCL's rules"
grep -q SYNC "$T/verdict" || fail "synchronisations: no SYNC in: $(head -20 "$T/verdict")"
exit 0
