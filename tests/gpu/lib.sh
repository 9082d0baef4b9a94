# Shared by the tests and benchmarks on a GPU. Sourced; B, T, SRC and SEED as for every test.
#
# shellcheck shell=bash
. "$SRC/tests/lib/clients.sh"
# GPU_NODE: the file that says there is a GPU. tests/cuda/dryrun.sh names another, with the test
# driver.
[ -e "${GPU_NODE:-/dev/nvidiactl}" ] || skip "no GPU: ${GPU_NODE:-/dev/nvidiactl} does not exist"
# few NR: that number of samples or rounds, fewer where the machine is slow (SLOW).
few() { echo $(($1 / SLOW < 1 ? 1 : $1 / SLOW)); }

# The preload as a user sets it, with the backend asked for by name and no way back to NCCL.
# CARD_RUNTIME: a library that must precede the CUDA runtime that a program names by its path.
card_env=("LD_PRELOAD=${SAN_RUNTIME-}$B/libdfshim.so${CARD_RUNTIME:+:$CARD_RUNTIME}" DFSHIM_BACKEND=cuda DFSHIM_STRICT=1)

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
