#!/bin/bash
# Descriptors, threads and memory stay what they were: over operations, splits, communicators made and destroyed (many.c).
set -u
. "$SRC/tests/soak/lib.sh"
amount=300
until over; do
	for c in operations:100 splits:1 cycles:1; do
		runs=$((runs + 1))
		how="--ranks 2"
		[ $((runs % 2)) = 0 ] || [ "${c%:*}" = cycles ] || how="--procs 2"
		# shellcheck disable=SC2086 # words
		MANY_CASE=${c%:*} MANY_AMOUNT=$((amount * ${c#*:})) DFSHIM_TRACE_MB=1 apart timeout 85 "$B/dfshim" run --host -- "$B/clients/many" \
			$how --seed "$SEED" --timeout 60
		rc=$?
		grep -h '^many:' "$T/run/out" | sort -u | sed 's/^many/steady/'
		[ $rc = 0 ] || finding "${c%:*}, $amount, $how: status $rc: $(tail -2 "$T/run/out")"
	done
	# As much as fits into half a minute.
	[ $amount -ge 20000 ] || amount=$((amount * 2))
done
done_with
