# What the tests and benchmarks on a GPU share. Sourced; B, T, SRC and SEED as for every test.
# shellcheck shell=bash
. "$SRC/tests/lib/clients.sh"
[ -e /dev/nvidiactl ] || skip "no GPU: /dev/nvidiactl does not exist"

# The preload as a user sets it, with the backend asked for by name and no way back to NCCL.
card_env=("LD_PRELOAD=$B/libdfshim.so" DFSHIM_BACKEND=cuda DFSHIM_STRICT=1)

# card CLIENT ARGS...: all ranks on the GPUs that there are; right, and executed by us.
card() {
	local c=$1 rc
	shift
	rm -f "$T/stats"
	timeout -k 5 "${LIMIT:-100}" env "${card_env[@]}" "DFSHIM_STATS=$T/stats" "$C/$c" "$@" --timeout "${QUIET:-40}"
	rc=$?
	[ $rc = 0 ] || fail "$c $*: status $rc"
	grep -q '"operations": [1-9]' "$T/stats" 2>/dev/null || fail "$c $*: none of it was executed by dfshim"
}
