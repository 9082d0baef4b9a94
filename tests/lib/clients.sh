# Functions for tests that run clients with dfshim preloaded. Sourced. tests/run.sh sets B, T and
# SRC.
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
# tests/run.sh sets SLOW and LIMIT. In a build with a sanitizer samples shrink by SLOW, and a client
# that hangs is ended by its own check of progress (QUIET) instead of the clock (LIMIT).
SLOW=${SLOW:-1}
# seconds TENTHS: prints TENTHS tenths of a second times SLOW, in seconds.
seconds() { echo "$(($1 * SLOW / 10)).$(($1 * SLOW % 10))"; }

# The environment of a client on the CPU backend by NCCL's rules: libdfnccl.so is preloaded after
# libdfshim.so.
# shellcheck disable=SC2034 # used by the tests
NCCL_RULES=(DFSHIM_MODE=trace "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so")

# all_ended NAME RANK...: checks the interpreter's output in $T/out (`after`). On these ranks the
# communicators c0 and c1 must have ended with ncclRemoteError, and the streams nb0 and nb1 must
# work.
all_ended() {
	local r n
	for r in "${@:2}"; do
		for n in "communicator c0 ncclRemoteError" "communicator c1 ncclRemoteError" "stream nb0 runs" "stream nb1 runs"; do
			grep -q "^after: rank $r $n" "$T/out" || fail "$1: rank $r: not \"$n\": $(cat "$T/out")"
		done
	done
}

# own_shm: restarts the script with a /dev/shm of its own. Fails if a file is left there at the end,
# even if a killed process left it.
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

# host CLIENT ARGS...: runs a client on the CPU backend by dfshim's rules. It must succeed.
host() {
	local c=$1 rc
	shift
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/$c" "$@" --timeout "${QUIET:-60}"
	rc=$?
	[ $rc = 0 ] || fail "$c $*: status $rc"
}

# Prints the id of a process with ranks of the test's running job. `disorder` starts such processes
# from /proc/self/exe, so their name is "exe".
rank_process() {
	local p
	for p in $(pgrep -x exe); do
		! grep -qzxF "T=$T" "/proc/$p/environ" 2>/dev/null || echo "$p"
	done | head -n 1
}

# control ARGS...: runs `disorder` by NCCL's rules, and stops it after 1.5 s (times SLOW) without
# progress. Stores its status in rc and its messages in $T/verdict. Ignores files that earlier jobs
# left in the trace folder.
control() {
	rc=0
	env -u DFSHIM_TRACE timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --rules nccl --timeout "$(seconds 15)" -- "$C/disorder" "$@" \
		--timeout 60 2>"$T/verdict" || rc=$?
}
