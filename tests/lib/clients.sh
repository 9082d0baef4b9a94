# Functions for the tests of clients under the preload. Sourced; B, T, SRC are set by tests/run.sh.
# shellcheck shell=bash
C=$B/clients
fail() {
	echo "FAILED: $*"
	exit 1
}
skip() {
	echo "$*"
	exit 77
}
[ -f "$B/libdfshim.so" ] && [ -f "$B/libdfhost.so" ] && [ -x "$C/disorder" ] ||
	skip "the libraries or the clients are not built here"
SEED=${SEED:-$(date +%s)}
echo "SEED=$SEED"
# In a sanitizer's build (SLOW, LIMIT, set by tests/run.sh) samples shrink, and what ends a client that hangs is its own
# watch over progress (QUIET), not the clock (LIMIT).
SLOW=${SLOW:-1}
# seconds TENTHS: prints TENTHS tenths of a second, SLOW times, in seconds.
seconds() { echo "$(($1 * SLOW / 10)).$(($1 * SLOW % 10))"; }

# In the environment of a client on CPU threads: by NCCL's rules, that is libdfnccl.so behind libdfshim.so.
# shellcheck disable=SC2034 # used by the tests
NCCL_RULES=(DFSHIM_MODE=trace "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so")

# all_ended NAME RANK...: in $T/out the deadlock interpreter says after its program that on these ranks the communicators c0 and
# c1 have ended with ncclRemoteError and the streams nb0 and nb1 run.
all_ended() {
	local r n
	for r in "${@:2}"; do
		for n in "communicator c0 ncclRemoteError" "communicator c1 ncclRemoteError" "stream nb0 runs" "stream nb1 runs"; do
			grep -q "^after: rank $r $n" "$T/out" || fail "$1: rank $r: not \"$n\": $(cat "$T/out")"
		done
	done
}

# own_shm: the script begins anew with a /dev/shm of its own, and fails if anything is left there at its end, also by
# processes that were killed.
own_shm() {
	if [ -n "${OWN_SHM-}" ]; then
		# shellcheck disable=SC2154 # set in the trap itself
		trap 'rc=$? left=$(ls -A /dev/shm)
			[ -z "$left" ] || { echo "FAILED: left in /dev/shm: $left" && rc=1; }
			exit $rc' EXIT
	elif unshare -m true 2>/dev/null; then
		OWN_SHM=1 exec unshare -m bash -c 'mount -t tmpfs none /dev/shm && exec "$0"' "$0"
	else
		echo "no rights for a mount namespace: what is left in /dev/shm was not looked at"
	fi
}

# host CLIENT ARGS...: on CPU threads by our rules, must be right.
host() {
	local c=$1 rc
	shift
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/$c" "$@" --timeout "${QUIET:-60}"
	rc=$?
	[ $rc = 0 ] || fail "$c $*: status $rc"
}

# A process with ranks of the test's running job: disorder's own, which starts them, has started itself again for each.
rank_process() {
	local p
	for p in $(pgrep -x exe); do
		! grep -qzxF "T=$T" "/proc/$p/environ" 2>/dev/null || echo "$p"
	done | head -n 1
}

# control ARGS...: disorder by NCCL's rules, stopped when nothing moves for 1.5 s (SLOW times that). Status in rc,
# messages in $T/verdict. Files that earlier jobs left in the folder of traces do not count.
control() {
	rc=0
	env -u DFSHIM_TRACE timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --rules nccl --timeout "$(seconds 15)" -- "$C/disorder" "$@" \
		--timeout 60 2>"$T/verdict" || rc=$?
}
