#!/bin/bash
# Description: the wheel of `make wheel` in a new Python environment: the tool, the libraries, jobs with them, and its removal.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
wheel=$(ls "$SRC"/build/dist/dfshim-*_"$(uname -m)".whl 2>/dev/null) || skip "no wheel in build/dist: make wheel"
[ "$wheel" -nt "$B/libdfshim.so" ] || skip "the wheel is older than the libraries: make wheel"
unset LD_PRELOAD
python3 -m venv "$T/venv" || skip "no python3-venv"
"$T/venv/bin/pip" install -q --no-index --disable-pip-version-check "$wheel" >"$T/pip" 2>&1 || fail "pip: $(cat "$T/pip")"
cd "$T" || exit 1
tool=$T/venv/bin/dfshim
want=$("$B/dfshim" --version | head -1)
for how in "$tool" "$T/venv/bin/python -m dfshim"; do
	[ "$($how --version | head -1)" = "$want" ] || fail "$how --version: $($how --version 2>&1), not $want"
done
for f in libdfshim.so libdfhost.so libdfnccl.so libdfplan.so libnccl-profiler-dfshim.so dfhost/libcuda.so.1 dfhost/libcudart.so.12 dfhost/libcudart.so.13; do
	at=$("$T/venv/bin/python" -c "import dfshim; print(dfshim.library('$f'))")
	case $at in "$T/venv/"*) ;; *) fail "dfshim.library('$f') is $at" ;; esac
	[ -s "$at" ] || fail "$at is not there"
done
[ "$("$tool" lib)" = "$("$T/venv/bin/python" -c 'import dfshim, os; print(os.path.realpath(dfshim.library()))')" ] ||
	fail "dfshim lib: $("$tool" lib 2>&1)"
[ -s "$T/venv/share/man/man1/dfshim.1" ] || fail "no manual page"
# With the installed libraries: a job that completes, and a job that NCCL's rules cannot complete,
# with its call sites. The status is the program's.
env -u SRC -u B "$tool" run --host -- "$C/disorder" --ranks 2 --colls 3 --iters 3 >"$T/out" 2>&1 || fail "run: $(tail -5 "$T/out")"
grep -q OK "$T/out" || fail "run: $(cat "$T/out")"
env -u SRC -u B "$tool" run --host --rules nccl --timeout "$(seconds 20)" -- "$C/disorder" --ranks 2 --colls 4 --iters 30 >"$T/out" 2>&1 &&
	fail "by NCCL's rules: it went on: $(cat "$T/out")"
grep -q '^ORDER: ' "$T/out" || fail "by NCCL's rules: $(cat "$T/out")"
# shellcheck disable=SC2016 # for the shell below
"$tool" run --host -- sh -c 'for f in $LD_PRELOAD; do realpath $f; done' | grep -q "^$(realpath "$T")/venv/.*/libdfshim.so" ||
	fail "another libdfshim.so than the wheel's is preloaded"
# PyTorch's programs need the driver under its name, and the operators. TORCH_PYTHON names a Python
# with PyTorch.
"$tool" run --host -- python3 -c 'import ctypes, os, sys
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
name = ctypes.CDLL(None).cudaGetErrorName
name.restype = ctypes.c_char_p
assert name(2) == b"cudaErrorMemoryAllocation", name(2)
maps = open("/proc/self/maps").read()
at = sys.argv[1]
assert f"{at}/lib/dfhost/libcuda.so.1" in maps, maps
assert sys.modules["sitecustomize"].__file__.startswith(at), sys.modules["sitecustomize"]
assert "dfshim.host.start" in sys.modules' "$(dirname "$(dirname "$(realpath "$("$tool" lib)")")")" >"$T/out" 2>&1 || fail "python: $(tail -5 "$T/out")"
if [ -n "${TORCH_PYTHON-}" ]; then
	timeout -k 5 "${LIMIT:-200}" "$tool" run --host -n 2 -- "$TORCH_PYTHON" "$SRC/tests/torch/ddp.py" >"$T/out" 2>&1 ||
		fail "PyTorch: $(tail -5 "$T/out")"
	grep -q '^2 ranks on cuda: losses' "$T/out" || fail "PyTorch: $(tail -5 "$T/out")"
	timeout -k 5 "${LIMIT:-200}" "$tool" run --host -- "$(dirname "$TORCH_PYTHON")/torchrun" --standalone --nproc-per-node 2 "$SRC/tests/torch/ddp.py" \
		>"$T/out" 2>&1 || fail "torchrun: $(tail -5 "$T/out")"
	grep -q '^2 ranks on cuda: losses' "$T/out" || fail "torchrun: $(tail -5 "$T/out")"
fi
"$tool" run --host -- sh -c 'exit 7'
[ $? = 7 ] || fail "the program's status is lost"
"$T/venv/bin/pip" uninstall -q -y --disable-pip-version-check dfshim >"$T/pip" 2>&1 || fail "uninstall: $(cat "$T/pip")"
left=$(find "$T/venv" -iname '*dfshim*' -o -name 'libdf*')
[ -z "$left" ] || fail "pip uninstall leaves $left"
exit 0
