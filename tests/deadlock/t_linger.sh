#!/bin/bash
# Description: a process that has sent messages and exits normally stays until they are received, with or without destroying its communicator.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
export DFSHIM_STRICT=1 DFSHIM_HOST_DEVICES=4 DFSHIM_TIMEOUT_MS=$((20000 * SLOW))
# The sender sends its messages long before the receiver receives them. Both ranks execute all their
# steps.
program() { # NAME LAST_STEPS
	cat >"$T/$1" <<END
prog $1
ranks 2
procs
comm c0 0 1
0: AR c0 nb0; ssync nb0; sleep 3000; recv c0 1 nb0 n=5; recv c0 1 nb0 n=2000; ssync nb0
1: AR c0 nb0; ssync nb0; send c0 0 nb0 n=5; send c0 0 nb0 n=2000; ssync nb0; $2
END
}
program destroyed "destroy c0; exit"
program left "exit"
program quit "destroy c0; quit"
program left_quit "quit"
# The child of a fork has sent nothing.
program forked "fork; exit"
# The child lacks dfshim's threads, which may have held any lock at the time of the fork.
forks=$(printf 'AR c0 nb0 n=200000; fork; %.0s' {1..20})
cat >"$T/busy" <<END
prog busy
ranks 2
procs
comm c0 0 1
0: $forks ssync nb0
1: $forks ssync nb0
END
# run NAME BACKEND VARIABLES...: starts a program in the background.
run() {
	local name=$1 backend=$2
	shift 2
	env "$@" DFSHIM_TRACE="$T/trace/$name.$backend" DFSHIM_BACKEND="$backend" \
		timeout -k 5 "${LIMIT:-60}" "$S" --timeout $((8 * SLOW)) "$T/$name" >"$T/out.$name.$backend" 2>&1 &
}
# In the child of a fork LeakSanitizer searches threads that do not exist there, and reports memory
# that only their stacks point to as lost.
no_leaks="${ASAN_OPTIONS-} detect_leaks=0"
run busy host ASAN_OPTIONS="$no_leaks" LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so"
wait
pkill -KILL -f "script --timeout $((8 * SLOW)) $T/busy" # children that hang
[ "$(grep -c '^--- busy completes' "$T/out.busy.host")" = 2 ] || fail "a fork's child does not end: $(cat "$T/out.busy.host")"
backends=host
for name in destroyed left quit left_quit; do
	run $name host LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so"
done
run forked host ASAN_OPTIONS="$no_leaks" LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so"
# The same with the test driver, whose memory is lost with its process.
if [ -f "$B/tests/cuda/runtime/libcudart.so.13" ] && [ -f "$B/kernels/daemon.fatbin" ] && [ -z "${SAN_RUNTIME-}" ]; then
	backends="host cuda"
	for name in destroyed left quit left_quit forked; do
		run $name cuda LD_PRELOAD="$B/libdfshim.so" LD_LIBRARY_PATH="$B/tests/cuda/runtime:$B/tests/cuda/driver"
	done
fi
wait
for name in destroyed left quit left_quit forked; do
	for backend in $backends; do
		out=$T/out.$name.$backend
		grep -q '^@ 0 0 6$' "$out" || fail "$name, $backend: not received: $(cat "$out")"
		n=$(grep -c "the exit of this process waits: 2 sends" "$out")
		[ "$n" = 1 ] || fail "$name, $backend: $n processes waited for the receiver: $(cat "$out")"
		sed '/^script: no progress/q' "$out" | grep -qE '^[A-Z_]+: |NCCL error' && fail "$name, $backend: $(cat "$out")"
	done
done
echo "on: $backends"
exit 0
