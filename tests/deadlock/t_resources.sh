#!/bin/bash
# Description: 512 communicators and 4,096 operations in flight on each of 8 ranks in random orders; threads that wait; graphs among plain calls.
# Limit: 900 s
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
# LIMIT may be too short for these jobs on a busy machine, so it can only lengthen the limit.
limit=$((${LIMIT:-0} > 600 ? LIMIT : 600))

# by_ours FILE: executes a program, which must complete with the right values. The interpreter sees
# no progress between the first and the last operation of a stream. The largest program needs ten
# CPU seconds, mostly in one thread at a time, so this takes minutes on a busy machine. dfshim sees
# every slice and reports a hang, so DFSHIM_TIMEOUT_MS can be shorter.
by_ours() {
	env -u DFSHIM_TRACE DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=8 DFSHIM_TIMEOUT_MS=60000 DFSHIM_TIMEOUT_ACTION=abort \
		LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "$limit" "$S" --timeout "$limit" "$1" >"$1.log" 2>&1 ||
		fail "$(basename "$1"): status $?: $(grep -m 1 -E '^[A-Z_]+: ' "$1.log"; tail -n 5 "$1.log")"
	tail -1 "$1.log"
}

# Every rank issues one operation on each of 512 communicators, in its own order, on three streams.
awk -v seed="$SEED" 'BEGIN {
	srand(seed)
	print "prog communicators\nranks 8\ncold"
	for (c = 0; c < 512; c++) print "comm c" c " 0 1 2 3 4 5 6 7"
	for (r = 0; r < 8; r++) {
		for (c = 0; c < 512; c++) o[c] = c
		for (c = 511; c > 0; c--) { k = int(rand() * (c + 1)); t = o[c]; o[c] = o[k]; o[k] = t }
		printf "%d:", r
		for (c = 0; c < 512; c++) printf " AR c%d nb%d n=%d;", o[c], o[c] % 3, 1 + o[c] % 64
		print ""
	}
}' >"$T/communicators"
by_ours "$T/communicators"

# Every rank issues 4,096 operations, eight on each of 512 communicators, in its own order.
awk -v seed="$SEED" -v nr=$((4096 / SLOW)) 'BEGIN {
	srand(seed + 4)
	print "prog both\nranks 8\ncold"
	for (c = 0; c < nr / 8; c++) print "comm c" c " 0 1 2 3 4 5 6 7"
	for (r = 0; r < 8; r++) {
		for (i = 0; i < nr; i++) o[i] = i
		for (i = nr - 1; i > 0; i--) { k = int(rand() * (i + 1)); t = o[i]; o[i] = o[k]; o[k] = t }
		printf "%d:", r
		for (i = 0; i < nr; i++) printf " AR c%d nb%d n=%d in=i%d;", int(o[i] / 8), o[i] % 3, 1 + o[i] % 8, r
		print ""
	}
}' >"$T/both"
by_ours "$T/both"

# Four ranks issue 1,024 operations each on four communicators in random orders: 64 signatures of
# each communicator, four times. The k-th operation of a signature matches the k-th on the other
# ranks.
awk -v seed="$SEED" 'BEGIN {
	srand(seed + 1)
	print "prog operations\nranks 4"
	for (c = 0; c < 4; c++) print "comm c" c " 0 1 2 3"
	for (r = 0; r < 4; r++) {
		for (i = 0; i < 1024; i++) o[i] = i
		for (i = 1023; i > 0; i--) { k = int(rand() * (i + 1)); t = o[i]; o[i] = o[k]; o[k] = t }
		printf "%d:", r
		for (i = 0; i < 1024; i++) printf " AR c%d nb n=%d;", o[i] % 4, 1 + int(o[i] / 4) % 64
		print ""
	}
}' >"$T/operations"
by_ours "$T/operations"

# Four threads a rank. Each has two communicators of its own, on streams that two threads share.
awk -v seed="$SEED" 'BEGIN {
	srand(seed + 2)
	print "prog threads\nranks 4"
	for (c = 0; c < 8; c++) print "comm c" c " 0 1 2 3"
	for (r = 0; r < 4; r++) for (t = 0; t < 4; t++) {
		printf "%d.%d:", r, t
		for (i = 0; i < 40; i++) {
			f = rand() < 0.5
			printf " AR c%d nb%d n=%d; AR c%d nb%d n=%d;", 2 * t + f, t % 2, 5 + i, 2 * t + !f, t % 2, 5 + i
		}
		print ""
	}
}' >"$T/threads"
by_ours "$T/threads"

# Four threads a rank that wait for a stream, an event or the device while other threads issue
# operations. At the end the first thread, which made the communicators, waits for the others.
awk -v seed="$SEED" 'BEGIN {
	srand(seed + 5)
	print "prog waits\nranks 4"
	for (c = 0; c < 8; c++) print "comm c" c " 0 1 2 3"
	for (t = 0; t < 4; t++) for (i = 0; i < 20; i++) wait[t, i] = int(rand() * 5)
	for (r = 0; r < 4; r++) for (t = 0; t < 4; t++) {
		printf "%d.%d:", r, t
		for (i = 0; i < 20; i++) {
			f = rand() < 0.5
			printf " AR c%d nb%d n=%d in=i%d.%d out=a%d.%d.%d;", 2 * t + f, t, 5 + i, t, r, t, f, r
			printf " dsync;"
			printf " AR c%d nb%d n=%d in=i%d.%d out=a%d.%d.%d;", 2 * t + !f, t, 5 + i, t, r, t, !f, r
			if (wait[t, i] == 0) printf " ssync nb%d; read a%d.0.%d;", t, t, r
			if (wait[t, i] == 1) printf " rec e%d nb%d; esync e%d; read a%d.1.%d;", t, t, t, t, r
			if (wait[t, i] == 2) printf " dsync;"
		}
		print ""
	}
}' >"$T/waits"
by_ours "$T/waits"

# Replays of graphs, in a different order on each rank and each on its own stream. Plain calls on
# the same communicators are between them.
awk -v seed="$SEED" 'BEGIN {
	srand(seed + 3)
	print "prog graphs\nranks 4"
	for (c = 0; c < 6; c++) print "comm c" c " 0 1 2 3"
	for (r = 0; r < 4; r++) {
		printf "%d:", r
		for (c = 0; c < 6; c++) printf " cap nbc g%d; AR c%d nbc n=%d; endcap nbc g%d;", c, c, 10 + c, c
		for (i = 0; i < 10; i++) {
			for (c = 0; c < 6; c++) o[c] = c
			for (c = 5; c > 0; c--) { k = int(rand() * (c + 1)); t = o[c]; o[c] = o[k]; o[k] = t }
			for (c = 0; c < 6; c++) {
				if (rand() < 0.5) printf " launch g%d nb%d; AR c%d nbx n=%d;", o[c], o[c], o[c], 100 + o[c]
				else printf " AR c%d nbx n=%d; launch g%d nb%d;", o[c], 100 + o[c], o[c], o[c]
			}
		}
		print ""
	}
}' >"$T/graphs"
by_ours "$T/graphs"
exit 0
