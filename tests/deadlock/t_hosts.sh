#!/bin/bash
# Description: threads that wait outside CUDA and NCCL. Their wait is proved and released if no other thread can wake them, and not proved if one can.
set -u
. "$SRC/tests/lib/clients.sh"
C=$B/clients/hostwaits
# Release only proved cycles here. t_likely.sh tests the others.
export DFSHIM_RELEASE_MS=0
[ -x "$C" ] || skip "the client is not built here"

# one none|some HOW...: runs the client, which must complete with no release or with some releases.
one() {
	local want=$1 n
	shift
	rm -f "$T/stats"
	env -u DFSHIM_TRACE DFSHIM_STATS="$T/stats" DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=3 DFSHIM_TIMEOUT_MS=60000 \
		LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" "$C" "$@" >"$T/out" 2>&1 ||
		fail "$*: status $?: $(cat "$T/out")"
	n=$(sed -n 's/.*"releases": \([0-9]*\).*/\1/p' "$T/stats")
	case $want-$n in
	none-0 | some-[1-9]*) echo "$*: $n released" ;;
	*) fail "$*: $n released, not $want: $(cat "$T/out")" ;;
	esac
}

hows="join cond mutex sem"
# ThreadSanitizer has a thread of its own. As far as the records show, it could wake other threads
# or issue an operation, so nothing is proved.
grep -q libtsan <(ldd "$B/libdfshim.so") && hows=""
for how in $hows; do
	one some "$how"
done
# A thread that never used NCCL or CUDA does not use a communicator, but it could wake any thread
# that waits for anything but a join.
if [ -n "$hows" ]; then
	one some join beside
	env -u DFSHIM_TRACE DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=3 DFSHIM_TIMEOUT_MS=1000 DFSHIM_TIMEOUT_ACTION=abort \
		LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" timeout -k 5 "${LIMIT:-100}" "$C" cond beside >"$T/out" 2>&1 &&
		fail "cond beside: it ended: $(cat "$T/out")"
	grep -q "WARN released" "$T/out" && fail "cond beside: $(cat "$T/out")"
	head -1 "$T/out"
fi
for how in join cond mutex sem timed func; do
	one none "$how" late
done
# Run twelve at a time, so that a thread is slow to leave its wait. That thread issues the missing
# operation, on a communicator that its rank has not used yet.
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	(
		mkdir -p "$T/beside.$i"
		T=$T/beside.$i
		one none func late
	) &
	pids="${pids-} $!"
	[ $((i % 6)) != 0 ] || {
		for pid in $pids; do wait "$pid" || exit 1; done
		pids=
	}
done
exit 0
