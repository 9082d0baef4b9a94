#!/bin/bash
# Description: if a container's filter of system calls refuses shared memory, or there is no address space for it, a job on CPU threads ends with a line that names the reason.
set -u
. "$SRC/tests/lib/clients.sh"
[ -z "${SAN_RUNTIME-}" ] || skip "a sanitizer needs the address space"
[ -z "${QEMU_LD_PREFIX-}" ] || skip "an emulator makes these calls for itself"
unset DFSHIM_TRACE
# ends TEXT COMMAND...: the job must fail and print TEXT.
ends() {
	local text=$1
	shift
	timeout -k 5 "${LIMIT:-100}" "$@" >"$T/out" 2>&1 && fail "$text: the job succeeded"
	grep -qF "$text" "$T/out" || fail "no line '$text': $(cat "$T/out")"
}
job=("$B/dfshim" run --host=2 -- "$C/disorder" --ranks 2 --iters 2)
ends "host CUDA: no memory for the devices: memfd_create: Operation not permitted" python3 "$SRC/tests/lib/refuse.py" memfd_create "${job[@]}"
# shellcheck disable=SC2016 # the inner shell's
ends "host CUDA: no address space of " bash -c 'ulimit -v 3000000 && "$@"' limited "${job[@]}"
exit 0
