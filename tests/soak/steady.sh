#!/bin/bash
# The number of descriptors, the number of threads, and memory do not grow with operations, splits,
# and communicators that are created and destroyed (tests/clients/many.c).
# shellcheck disable=SC2154 # lib.sh sets them
set -u
. "$SRC/tests/soak/lib.sh"
# Enough cycles to fill the list of kept ids (runtime/ctl/rdv.c) in the first third of them.
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
		# Adapt the amount to about a quarter of a minute, so that the limit suffices even
		# if the machine becomes busy.
		took=$((SECONDS - since))
		[ $took -ge 8 ] || amount[$c]=$((amount[$c] * 2))
		[ $took -le 30 ] || amount[$c]=$((amount[$c] / 2))
	done
done
done_with
