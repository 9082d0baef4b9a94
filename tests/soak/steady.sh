#!/bin/bash
# Descriptors, threads and memory stay what they were: over operations, splits, communicators made and destroyed (many.c).
# shellcheck disable=SC2154 # lib.sh sets them
set -u
. "$SRC/tests/soak/lib.sh"
# Enough cycles that the list of kept ids (runtime/ctl/rdv.c) is full after a third of them.
declare -A amount=([operations]=30000 [splits]=300 [cycles]=6000)
until over; do
	for c in operations splits cycles; do
		runs=$((runs + 1))
		how="--ranks 2"
		[ $((runs % 2)) = 0 ] || [ $c = cycles ] || how="--procs 2"
		since=$SECONDS
		# shellcheck disable=SC2086 # words
		MANY_CASE=$c MANY_AMOUNT=${amount[$c]} DFSHIM_TRACE_MB=1 apart timeout 85 "$B/dfshim" run --host -- "$B/clients/many" \
			$how --seed "$SEED" --timeout 60
		rc=$?
		grep -h '^many:' "$T/run/out" | sort -u | sed 's/^many/steady/'
		[ $rc = 0 ] || finding "$c, ${amount[$c]}, $how: status $rc: $(tail -2 "$T/run/out")"
		# As much as takes a quarter of a minute, so that a machine that gets busy meanwhile has time to spare.
		took=$((SECONDS - since))
		[ $took -ge 8 ] || amount[$c]=$((amount[$c] * 2))
		[ $took -le 30 ] || amount[$c]=$((amount[$c] / 2))
	done
done
done_with
