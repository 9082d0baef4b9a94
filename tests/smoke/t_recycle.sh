#!/bin/bash
# Description: connectors of idle collectives are recycled to obey DFSHIM_CONNECTOR_MB, and made again when needed.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
# run ENV...: runs the client in each of its forms. Stores the number of recycled connectors in
# `recycled`.
run() {
	local how
	rm -f "$T/stats"
	for how in "--ranks 4" "--ranks 4 --procs 4" "--ranks 6 --procs 3"; do
		# shellcheck disable=SC2086 # a list of options
		timeout -k 5 "${LIMIT:-60}" env DFSHIM_STATS="$T/stats" "$@" "$B/dfshim" run --host -- "$C/cycle" $how --timeout 40 \
			>"$T/out" 2>&1 || fail "$* $how: status $?: $(cat "$T/out")"
	done
	recycled=$(jq -s 'map(.recycled) | add' "$T/stats")
}
run DFSHIM_CONNECTOR_MB=1024
[ "$recycled" = 0 ] || fail "$recycled connectors recycled although there is room for all"
run DFSHIM_CONNECTOR_MB=1
[ "$recycled" -gt 500 ] || fail "$recycled connectors recycled in 1 MiB"
run DFSHIM_CONNECTOR_MB=1 DFSHIM_BLOCKS=2 DFSHIM_SLOTS=2
[ "$recycled" -gt 500 ] || fail "$recycled connectors recycled with two blocks"
run DFSHIM_CONNECTOR_MB=1 DFSHIM_STREAM_ORDER=strict
[ "$recycled" -gt 500 ] || fail "$recycled connectors recycled in strict order"
# More connectors than are examined for each new one. Most of them have already been recycled.
rm -f "$T/stats"
timeout -k 5 "${LIMIT:-100}" env DFSHIM_STATS="$T/stats" DFSHIM_CONNECTOR_MB=8 MANY_CASE=sizes MANY_AMOUNT=2000 \
	"$B/dfshim" run --host -- "$C/many" --ranks 2 --timeout "${QUIET:-60}" >"$T/out" 2>&1 || fail "sizes: status $?: $(cat "$T/out")"
most=$(jq '.connector_bytes' "$T/stats")
[ "$most" -le $((24 << 20)) ] || fail "connectors of $((most >> 20)) MiB under DFSHIM_CONNECTOR_MB=8"
exit 0
