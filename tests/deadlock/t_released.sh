#!/bin/bash
# Description: what the host sees after a released synchronisation is what it would have seen after a kept one.
#
# Random programs: every rank issues the same all-reduces in an order of its own, each followed by a device
# synchronisation (so that some have to be released), and then looks at the results in every way that a program can
# that relies on the synchronisations alone: a copy to the host, a copy on another stream, a collective on another
# communicator that reads the result. All values are compared with those that program order gives.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/script
[ -x "$S" ] || skip "the interpreter is not built here"

# programs POLICY: with other work between the synchronisations, which only the policy `device` leaves behind.
programs() {
	awk -v seed="$SEED" -v nr="$((64 / SLOW))" -v policy="$1" '
	function rnd(n) { return int(rand() * n) }
	BEGIN {
		srand(seed)
		for (p = 0; p < nr; p++) {
			ranks = 2 + rnd(3)
			colls = 2 + rnd(3)
			printf "prog %d\nclass OK\nranks %d\n", p, ranks
			for (c = 0; c <= colls; c++) {
				printf "comm c%d", c
				for (r = 0; r < ranks; r++)
					printf " %d", r
				printf "\n"
			}
			for (r = 0; r < ranks; r++) {
				for (c = 0; c < colls; c++)
					order[c] = c
				for (c = colls - 1; c > 0; c--) {
					k = rnd(c + 1)
					t = order[c]; order[c] = order[k]; order[k] = t
				}
				line = ""
				for (k = 0; k < colls; k++) {
					c = order[k]
					line = line sprintf("AR c%d nb%d n=%d in=i%d out=o%d; ", c, rnd(2), c % 2 ? 4 : 5000, c, c)
					if (k < colls - 1 || rnd(2))
						line = line "dsync; "
					if (policy == "device" && rnd(3) == 0 && k < colls - 1)
						line = line sprintf("K nb2 o%d y%d; ", c, c)
				}
				# All but the last one are over by rights.
				for (k = 0; k < colls - 1; k++) {
					c = order[k]
					if (rnd(2))
						line = line sprintf("K nb2 o%d z%d; ssync nb2; read z%d; ", c, c, c)
					if (rnd(2))
						line = line sprintf("read o%d; ", c)
				}
				# The same collective everywhere, of what some rank has only by a synchronisation.
				line = line sprintf("AR c%d nb3 n=4 in=o%d out=last; ssync nb3; read last", colls, order[0])
				printf "%d: %s\n", r, line
			}
			printf "end\n"
		}
	}'
}

for policy in safe device; do
	programs $policy >"$T/programs"
	DFSHIM_STATS=$T/stats.$policy DFSHIM_BACKEND=host DFSHIM_RELEASE=$policy DFSHIM_HOST_DEVICES=4 \
		LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" "$S" --timeout 60 "$T/programs" \
		>"$T/out" 2>&1 || fail "policy $policy: status $?: $(grep -vE ' completes$|^===' "$T/out" | head -20)"
	[ "$(grep -c ' completes' "$T/out")" = $((64 / SLOW)) ] || fail "policy $policy: $(tail -5 "$T/out")"
	released=$(sed -n 's/.*"releases": \([0-9]*\).*/\1/p' "$T/stats.$policy")
	[ "${released:-0}" -ge $((20 / SLOW)) ] || fail "policy $policy: only ${released:-no} releases, so nothing was shown"
	echo "$policy: $released releases"
done
exit 0
