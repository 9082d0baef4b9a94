# What the tests of clients under the preload share. Sourced; B, T, SRC are set by tests/run.sh.
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
# A sanitizer's build does a tenth of the work in the time: samples shrink, and what ends a client that hangs is
# its own watch over progress (QUIET), not the clock (LIMIT).
export SLOW=1
case $B in */thread | */address)
	SLOW=8
	LIMIT=${LIMIT:-450}
	;;
esac

# host CLIENT ARGS...: on CPU threads by our rules, must be right.
host() {
	local c=$1 rc
	shift
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/$c" "$@" --timeout "${QUIET:-60}"
	rc=$?
	[ $rc = 0 ] || fail "$c $*: status $rc"
}

# control ARGS...: disorder by NCCL's rules, stopped when nothing moves for 1.5 s. Status in rc, messages in
# $T/verdict.
control() {
	rc=0
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --rules nccl --timeout 1.5 -- "$C/disorder" "$@" --timeout 60 \
		2>"$T/verdict" || rc=$?
}
