#!/bin/bash
# Description: a call site in a Python program begins with the lines of the program, for each form of code. With DFSHIM_PYTHON=0 it consists of addresses.
#
# PYTHON names the interpreter. If dfshim does not know the interpreter's frames, call sites must be
# those of a program without an interpreter.
set -u
. "$SRC/tests/lib/clients.sh"
[ -e "$B/libdfhost.so" ] || skip "no libdfhost.so"
[ -z "${SAN_RUNTIME-}" ] || skip "the interpreter does not run under a sanitizer"
[ -z "${QEMU_LD_PREFIX-}" ] || skip "this machine's interpreter cannot load libraries of another kind of machine"
py=${PYTHON:-python3}
command -v "$py" >/dev/null || skip "no $py"
version=$("$py" -c 'import ctypes, sys; print(sys.implementation.name, sys.version)') || skip "no ctypes"
echo "$version"
[[ $version = cpython* ]] || skip "not CPython"
unset DFSHIM_TRACE
job=$SRC/tests/trace/lines.py
filter=()
line() { grep -n "# $1\$" "$job" | cut -d: -f1; }
mkdir -p "$T/torch/lib"
cp "$B/libdfplan.so" "$T/torch/lib/libtorch_test.so"

# trace NAME ENVIRONMENT...: runs the job and writes the innermost frames of each call to $T/NAME,
# with its number of elements.
trace() {
	local name=$1
	shift
	rm -rf "$T/$name.trace" "$T/id"
	timeout -k 5 "${LIMIT:-100}" env "$@" "$B/dfshim" run --host=2 -n 2 --trace "$T/$name.trace" -- "${filter[@]}" "$py" "$job" "$T" ||
		fail "$name: status $?"
	"$B/dfshim" show --json --rank 0 "$T/$name.trace" | jq -r 'select(.type == "op" or (.type == "call" and .call == "cudaDeviceSynchronize")) |
		"\(if .type == "op" then .b else "wait" end) \(.stack[0:5] | join(" <- "))"' >"$T/$name"
}
# has COUNT FRAMES: the frames of the call with COUNT elements must begin with FRAMES.
has() {
	awk -v n="$1" -v f="$2" '$1 == n { sub(/^[^ ]* /, ""); found = index($0 " <- ", f " <- ") == 1 } END { exit !found }' "$T/lines" || {
		cat "$T/lines"
		fail "call $1 is not at $2"
	}
}

trace off DFSHIM_PYTHON=0
! grep -q 'lines\.py' "$T/off" || fail "lines with DFSHIM_PYTHON=0"
trace lines A=
known=0
[[ ! $version =~ ^cpython\ 3\.(9|1[0-4])\. || $version = *free-threading* ]] || known=1
if [ $known = 0 ]; then
	cmp "$T/off" "$T/lines" || fail "frames of an interpreter that is not known"
	exit 0
fi
r="lines.py:$(line reduce) reduce"
main() { echo "lines.py:$(grep -n "$1" "$job" | tail -n 1 | cut -d: -f1) <module>"; }
has 1 "$r <- $(main '# module$')"
has 2 "$r <- lines.py:$(line method) step <- $(main '^Model()')"
has 3 "$r <- lines.py:$(line generator) batches <- $(main '^list(')"
has 4 "$r <- lines.py:$(line deep) deep <- lines.py:$(grep -n 'deep(n - 1)' "$job" | cut -d: -f1) deep"
has 5 "$r <- lines.py:$(line thread) in_thread"
has 6 "$r <- far.py:4003 far <- $(main '"far")')"
has 7 "$r <- für.py:2 größe <- $(main '/x/f.u00fcr')"
has 8 "$r <- 約.py:2 約 <- $(main '/x/.u7d04')"
has 9 "$r <- 😀.py:2 𐐀 <- $(main '/x/.U0001f600')"
has 10 "lines.py:$(line torch) train <- $(main '^train()')"
has 11 "lines.py:$(line library) train <- $(main '^train()')"
has 12 "code.py:2 call <- code.py:2 call <- code.py:2 call <- lines.py:$(line package) train"
has 13 "lines.py:$(line gradients) gradients (backward) <- $(main '^gradients(13') (backward)"
has 14 "a thread of PyTorch's autograd"
has wait "$(main '# wait$')"

# A container may refuse process_vm_readv() (EPERM). The lines are the same.
filter=("$py" "$SRC/tests/lib/refuse.py" process_vm_readv)
trace refused A=
cmp "$T/lines" "$T/refused" || fail "lines without process_vm_readv()"
exit 0
