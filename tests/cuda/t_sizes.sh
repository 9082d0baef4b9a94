#!/bin/bash
# Description: messages of 10,000 sizes, on the test driver: connectors in GPU memory are recycled
# under DFSHIM_CONNECTOR_MB.
set -u
. "$SRC/tests/cuda/dryrun.sh"
# The budget bounds idle connectors, and ten messages in flight on either side need about as much
# again: so twice the budget. Without recycling all sizes need 100 times that. The bound does not
# depend on scheduling, so there is no retry.
sizes() { # OPTIONS
	rm -f "$T/stats"
	# shellcheck disable=SC2086 # a list of options
	timeout -k 5 "${LIMIT:-150}" env "LD_PRELOAD=$B/libdfshim.so" DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 DFSHIM_CONNECTOR_MB=64 \
		"DFSHIM_STATS=$T/stats" MANY_CASE=sizes MANY_AMOUNT=10000 "$C/many" $1 --timeout "${QUIET:-100}" >"$T/out" 2>&1 ||
		fail "$1: status $?: $(tail -5 "$T/out")"
	! grep "host memory" "$T/out" || fail "$1: connectors are in host memory"
	most=$(jq -s 'map(.connector_bytes) | max' "$T/stats")
	recycled=$(jq -s 'map(.recycled) | add' "$T/stats")
	echo "$1: at most $((most >> 20)) MiB, $recycled recycled"
	[ "$recycled" -ge 15000 ] || fail "$1: only $recycled connectors were recycled"
}
for how in "--ranks 2" "--procs 2"; do
	sizes "$how"
	[ "$most" -le $((128 << 20)) ] || fail "$how: connectors of $((most >> 20)) MiB under DFSHIM_CONNECTOR_MB=64"
done
exit 0
