#!/bin/bash
# Description: after a released synchronisation a program sees the same values as after a kept one.
#
# Random programs. Every rank issues the same AllReduces in an order of its own. A device
# synchronisation follows each one, and some of these have to be released. Then the rank reads the
# results in every way that relies on the synchronisations alone: a copy to the host by this thread
# or another one, a copy on another stream or by another device, an event after such a copy, a
# collective on another communicator that reads the result, a source that the CPU writes again, and
# a destination in memory that the CPU reads. All values are compared with those of the program
# order. Ranks are threads of one process, or processes.
set -u
. "$SRC/tests/lib/clients.sh"
PROGRAMS=${PROGRAMS:-64}
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"

# programs POLICY COUNT FROM [PROCS]: prints random programs. Other work between the
# synchronisations, which only the policy `device` releases, is added with that policy.
programs() {
	awk -v seed="$SEED" -v policy="$1" -v nr="$2" -v from="$3" -v procs="${4-}" '
	function rnd(n) { return int(rand() * n) }
	BEGIN {
		srand(seed + from)
		for (p = from; p < from + nr; p++) {
			# With few collectives all ranks often have the same order.
			ranks = (procs == "" ? 2 : 3) + rnd(2)
			colls = (procs == "" ? 2 : 3) + rnd(2)
			printf "prog %d\nclass OK\nranks %d\n%s", p, ranks, procs
			for (c = 0; c <= colls; c++) {
				printf "comm c%d", c
				for (r = 0; r < ranks; r++)
					printf " %d", r
				printf "\n"
			}
			# A wait for memory that the CPU can access must not be released, so some of
			# these programs hang.
			for (c = 0; c < colls && policy == "visible"; c++) {
				kind[c] = rnd(4)
				if (kind[c] == 1) printf "pin i%d\n", c
				if (kind[c] == 2) printf "pin o%d\n", c
				if (kind[c] == 3) printf "managed o%d\n", c
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
					if (k < colls - 1 || rnd(2)) {
						line = line "dsync; "
						if (policy == "visible" && kind[c] == 1)
							line = line sprintf("poke i%d n=%d; ", c, c % 2 ? 4 : 5000)
						if (policy == "visible" && kind[c] > 1)
							line = line sprintf("peek o%d n=%d; ", c, c % 2 ? 4 : 5000)
					}
					if (policy == "device" && rnd(3) == 0 && k < colls - 1)
						line = line sprintf("K nb2 o%d y%d; ", c, c)
				}
				# The synchronisations after all but the last collective guarantee
				# that these are done.
				for (k = 0; k < colls - 1; k++) {
					c = order[k]
					if (rnd(2))
						line = line sprintf("K nb2 o%d z%d; ssync nb2; read z%d; ", c, c, c)
					if (rnd(2))
						line = line sprintf("%sread o%d n=%d; ", rnd(2) ? "t" : "", c, c % 2 ? 4 : 5000)
					if (rnd(3) == 0)
						line = line sprintf("far o%d f%d n=%d; read f%d n=%d; ", c, c, c % 2 ? 4 : 5000, c, c % 2 ? 4 : 5000)
					if (rnd(3) == 0)
						line = line sprintf("K nb4 o%d w%d; rec e%d nb4; esync e%d; read w%d; ", c, c, c, c, c)
				}
				# The same collective on all ranks. Some rank has its input only
				# after a synchronisation.
				line = line sprintf("AR c%d nb3 n=4 in=o%d out=last; ssync nb3; read last", colls, order[0])
				printf "%d: %s\n", r, line
			}
			printf "end\n"
		}
	}'
}

# run NAME POLICY MS: executes the programs in $T/programs.
run() {
	DFSHIM_STATS=$T/stats.$1 DFSHIM_BACKEND=host DFSHIM_RELEASE=$2 DFSHIM_HOST_DEVICES=5 DFSHIM_TIMEOUT_MS=$3 \
		DFSHIM_TIMEOUT_ACTION=abort LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" \
		"$S" --timeout 60 "$T/programs" >"$T/out" 2>&1
}
# released NAME LEAST: prints the number of releases. Fails if there are fewer than LEAST.
released() {
	local nr
	nr=$(cat "$T/stats.$1"* | sed -n 's/.*"releases": \([0-9]*\).*/\1/p' | awk '{ n += $1 } END { print n + 0 }')
	[ "$nr" -ge "$2" ] || fail "$1: only $nr releases, so nothing was shown"
	echo "$1: $nr releases"
}

nr=$((PROGRAMS / SLOW))
for policy in safe device; do
	programs $policy "$nr" 0 >"$T/programs"
	run $policy $policy 60000 || fail "policy $policy: status $?: $(grep -vE ' completes|^===' "$T/out" | head -20)"
	[ "$(grep -c ' completes' "$T/out")" = "$nr" ] || fail "policy $policy: $(tail -5 "$T/out")"
	released $policy $((nr / 4))
done

# Every program completes or hangs with a report, and no thread reads a wrong value.
programs visible $((nr / 4)) 1000 >"$T/programs"
run visible safe 400
grep -E '^--- [0-9]+ (wrong|error)' "$T/out" && fail "memory that the host sees: $(head -40 "$T/out")"
[ "$(grep -cE '^--- [0-9]+ (completes|hung)' "$T/out")" = $((nr / 4)) ] || fail "memory that the host sees: $(tail -20 "$T/out")"
released visible $((1 / SLOW))
echo "visible: $(grep -c '^--- .* hung' "$T/out") can't be released"

# A process for each rank, so that the proof of a release needs several processes.
for ((p = 0; p < (nr + 15) / 16; p++)); do
	programs safe 1 $((2000 + p)) 'procs\n' >"$T/programs"
	run procs.$p safe 60000 || fail "processes, program $((2000 + p)): status $?: $(grep -vE ' completes|^===' "$T/out" | head -20)"
done
released procs 1
exit 0
