#!/bin/bash
# Point-to-point, communicators, errors, non-blocking communicators and graphs, with the clients of
# the CPU backend's tests.
set -u
. "$SRC/tests/gpu/lib.sh"
for n in 1 2 4 7; do
	card p2pcheck --ranks $n --seed "$SEED"
done
card p2pcheck --procs 3 --seed "$SEED"
# Ranks of one GPU read one another's buffers, which the client overwrites as soon as an operation
# has ended or was aborted. Messages have more slices than a connector has slots of this size.
export DFSHIM_SLOT_KB=128
CUDA_VISIBLE_DEVICES=0 card refcheck --ranks 2 --seed "$SEED"
grep -q '"by_reference": [1-9]' "$T/stats" || fail "refcheck: no slice by reference: $(cat "$T/stats")"
# Ranks of GPUs with access to each other do the same.
card refcheck --ranks 4 --seed "$SEED"
unset DFSHIM_SLOT_KB
card splitcheck --ranks 5
card splitcheck --procs 4
card nbcheck --ranks 4
card errcheck --ranks 2
card graphcheck --ranks 4
card graphcheck --procs 2
card graphforms --ranks 2
# Streams with a late peer.
card streamcheck
MANY_CASE=comms MANY_AMOUNT=$(few 64) card many --ranks 4
MANY_CASE=outstanding MANY_AMOUNT=$(few 1000) card many --ranks 4
MANY_CASE=waiting MANY_AMOUNT=40 card many --ranks 2 --procs 2
MANY_CASE=behind MANY_AMOUNT=40 card many --ranks 2
# The memory of connectors for messages of many sizes stays bounded.
MANY_CASE=sizes MANY_AMOUNT=$(few 10000) DFSHIM_CONNECTOR_MB=64 card many --ranks 2
most=$(jq -s 'map(.connector_bytes) | max' "$T/stats")
[ "$most" -le $((128 << 20)) ] || fail "connectors of $((most >> 20)) MiB under DFSHIM_CONNECTOR_MB=64"
# A process is killed while the other's kernel reads slots in its GPU memory, each of a slice of several: the other sees its end.
for us in 1000 20000 100000; do
	env "${card_env[@]}" DFSHIM_SLOT_KB=1 NCCL_PROTO=Simple SURVIVOR_HOW=kill SURVIVOR_MADE=1 SURVIVOR_PROC=1 SURVIVOR_US=$us \
		SURVIVOR_ROUNDS=100000 timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --grace 40 -n 2 -- "$C/survivor" --ranks 2 \
		--timeout "${QUIET:-40}" >"$T/killed" 2>&1
	grep -q '^survivor: process 0: ended: ncclRemoteError' "$T/killed" || fail "a peer that is killed after $us us: $(tail -20 "$T/killed")"
done
exit 0
