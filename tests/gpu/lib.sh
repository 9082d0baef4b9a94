# Shared by the tests and benchmarks on a GPU. Sourced; needs B, T, SRC and SEED as every test does.
#
# shellcheck shell=bash
. "$SRC/tests/lib/clients.sh"
# GPU_NODE: a file that exists if there is a GPU. tests/cuda/dryrun.sh names another one, and uses
# the test driver.
[ -e "${GPU_NODE:-/dev/nvidiactl}" ] || skip "no GPU: ${GPU_NODE:-/dev/nvidiactl} does not exist"
# few NR: prints this number of samples or rounds, divided by SLOW.
few() { echo $(($1 / SLOW < 1 ? 1 : $1 / SLOW)); }

# Preloads dfshim and requires the GPU backend: with DFSHIM_STRICT=1 a failed start is an error.
# CARD_RUNTIME: a library that must precede a CUDA runtime which a program names by its path.
card_env=("LD_PRELOAD=${SAN_RUNTIME-}$B/libdfshim.so${CARD_RUNTIME:+:$CARD_RUNTIME}" DFSHIM_BACKEND=cuda DFSHIM_STRICT=1)

# card CLIENT ARGS...: runs the client with all ranks on the GPUs of this machine. It must succeed,
# and dfshim must execute its operations.
card() {
	local c=$1 rc
	shift
	rm -f "$T/stats"
	timeout -k 5 "${LIMIT:-100}" env "${card_env[@]}" "DFSHIM_STATS=$T/stats" "$C/$c" "$@" --timeout "${QUIET:-40}"
	rc=$?
	[ $rc = 0 ] || fail "$c $*: status $rc"
	grep -q '"operations": [1-9]' "$T/stats" 2>/dev/null || fail "$c $*: none of it was executed by dfshim"
}
