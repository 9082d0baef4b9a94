#!/bin/bash
# Description: conventions of all subcommands: usage, exit codes, and the table of variables as text, JSON and man page.
set -u
fail() { echo "FAILED: $*"; exit 1; }
D=$B/dfshim
cd "$T" || exit 1
unset DFSHIM_TRACE

"$D" >out 2>err && fail "no subcommand is accepted"
[ $? = 2 ] || fail "no subcommand: status"
"$D" nonsense >out 2>err; [ $? = 2 ] || fail "unknown subcommand: status"
grep -q "no subcommand 'nonsense'" err || fail "unknown subcommand is not named"
"$D" --help >out || fail "--help"
"$D" --version | grep -Eq '^dfshim [0-9]+\.[0-9]+\.[0-9]+$' || fail "--version"

# Every subcommand has --help and exits with status 2 for an unknown option.
for s in $("$D" --list); do
	grep -q "^  $s " out || fail "$s is not in the usage"
	timeout "${LIMIT:-20}" "$D" "$s" --help >help 2>&1 || fail "$s --help: status $?"
	grep -qi usage help || fail "$s --help has no usage"
	timeout "${LIMIT:-20}" "$D" "$s" --no-such-option x >o 2>e; rc=$?
	[ $rc = 2 ] || fail "$s --no-such-option: status $rc"
	[ -s e ] || fail "$s --no-such-option says nothing on standard error"
done

# --help, --usage and the completions list the same options.
for s in $("$D" --list); do
	"$D" "$s" --usage >usage || fail "$s --usage: status $?"
	for o in $("$D" "$s" --list | sed -nE 's/^(--[a-z-]+).*/\1/p'); do
		"$D" "$s" --help | grep -q -- "$o\b" && grep -q -- "$o\b" usage || fail "$s: $o is not in --help and --usage"
	done
done
. "$SRC/scripts/dfshim.bash"
completes() { # WANTED, then the words so far
	local want=$1
	shift
	COMP_WORDS=("$D" "$@") COMP_CWORD=$#
	_dfshim
	[ "${COMPREPLY[*]}" = "$want" ] || fail "completion of '$*': ${COMPREPLY[*]}, not $want"
}
completes "report replay" re
completes "--timeout" run --ti
completes "nccl" run --rules n
completes "exact" sim --semantics = e
completes "--json" algo verify x --j
# Each kind of bad value gives one line with the reason.
says() { # PATTERN, then arguments
	local pattern=$1
	shift
	"$D" "$@" >out 2>err
	[ $? = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 2 ] && head -1 err | grep -q -- "$pattern" || fail "$*: $(cat err)"
}
says '^dfshim run: -n 0: a whole number from 1 to 4096 is needed$' run -n 0 -- true
says '^dfshim run: --host 2x: a whole number from 1 to 1024 is needed$' run --host=2x -- true
says '^dfshim run: --mode sometimes: one of prevent|trace|off is needed$' run --mode sometimes -- true
says '^dfshim check: --stale 0: a number from 1e-09 to 1e+09 is needed$' check --stale 0 .
says "^dfshim check: option '--stale' requires an argument$" check --stale
says '^dfshim show: --type nothing: no such record type$' show --type nothing .
for s in $("$D" --list); do
	[ -s "$SRC/docs/man/dfshim-$s.1" ] || fail "$s has no manual page"
done
says "^dfshim env: no variable 'x'$" env DFSHIM_TRACE x
says "^dfshim env: no variable 'DFSHIM_TIMEOUT'; the nearest is DFSHIM_TIMEOUT_MS$" env DFSHIM_TIMEOUT
says "^dfshim env: no variable 'mdoe'; the nearest is DFSHIM_MODE$" env mdoe
says "^dfshim doctor: unexpected argument 'x'$" doctor x
says "^dfshim: no subcommand 'x'$" help x
says '^dfshim graph: no trace folder given$' graph

# One row of the table, and `help` as a subcommand.
[ "$("$D" env --json DFSHIM_MODE DFSHIM_TRACE | jq -r '[.[].name] | join(" ")')" = "DFSHIM_MODE DFSHIM_TRACE" ] || fail "env NAME --json"
[ "$("$D" env DFSHIM_TRACE | grep -o '^DFSHIM_[A-Z_]*')" = DFSHIM_TRACE ] || fail "env NAME"
for command in "" run env; do
	# shellcheck disable=SC2086 # none, or one word
	cmp <("$D" help $command) <("$D" $command --help) || fail "help $command"
done

# Every row of the table appears in each form, with the same name, in valid JSON.
rows=$(grep -c '^DF_ENV_' "$SRC/runtime/base/env.def")
[ "$("$D" env --json | jq length)" = "$rows" ] || fail "env --json: rows"
[ "$("$D" env --json | jq -r '.[].name' | sort -u | wc -l)" = "$rows" ] || fail "env --json: names"
"$D" env --json | jq -e 'all(.[]; .name and .type and (.help|length > 10) and has("default") and has("value"))' \
	>/dev/null || fail "env --json: keys"
for n in $("$D" env --json | jq -r '.[].name'); do
	"$D" env | grep -q "^$n " || fail "$n is not in the text"
	"$D" env --man | grep -q "^\.B $n\$" || fail "$n is not in the man rows"
done
v=$(DFSHIM_MODE=trace DFSHIM_TRACE_MB=33 "$D" env --json |
	jq -r '.[]|select(.name=="DFSHIM_MODE" or .name=="DFSHIM_TRACE_MB")|"\(.value) \(.set)"' | tr '\n' ',')
[ "$v" = "trace true,33 true," ] || fail "values: $v"

# A bad value causes one warning with the variable, the value and the allowed values. Only
# DFSHIM_STRICT makes it an error.
DFSHIM_RELEASE=maybe "$D" env >out 2>err || fail "a bad value is an error without strict"
[ "$(grep -c 'DFSHIM WARN DFSHIM_RELEASE=maybe.*safe|none|device|all' err)" = 1 ] || fail "warning: $(cat err)"
DFSHIM_STRICT=1 DFSHIM_RELEASE=maybe "$D" env >out 2>err && fail "strict accepts a bad value"
DFSHIM_RELAESE=safe "$D" env 2>&1 >/dev/null | grep -q "DFSHIM_RELAESE is not a variable of dfshim; DFSHIM_RELEASE is;" || fail "misspelt name"

# doctor prints the version of the PyTorch that python3 finds. It waits only briefly for python3,
# and goes on without it.
doctor() { # PATTERN VARIABLE=VALUE...: a line of what it prints
	local pattern=$1
	shift
	timeout 60 env "$@" "$D" doctor >out 2>err
	[ $? -le 3 ] && grep -q "$pattern" out || fail "doctor, $*: $(cat out err)"
}
doctor "^PyTorch *none: python3: No such file" PATH=/nowhere
if command -v python3 >/dev/null; then
	mkdir -p fake/torch/cuda bare
	echo "cuda = '12.8'; __version__ = '2.9.0+cu128'" >fake/torch/version.py
	echo "from . import cuda" >fake/torch/__init__.py
	echo "from . import nccl" >fake/torch/cuda/__init__.py
	printf 'def version():\n    return (2, 27, 5)\n' >fake/torch/cuda/nccl.py
	doctor "^PyTorch *2.9.0+cu128, CUDA 12.8, $T/fake/torch$" PYTHONPATH="$T/fake"
	grep -q "^its NCCL *2.27.5$" out || fail "doctor: NCCL of PyTorch: $(cat out)"
	echo "import time; time.sleep(50)" >fake/torch/__init__.py
	doctor "^its NCCL *unknown: python3 does not import torch within" PYTHONPATH="$T/fake"
	echo "raise ImportError('libcudart.so.12: cannot open')" >fake/torch/__init__.py
	doctor "^its NCCL *unknown: ImportError: libcudart.so.12: cannot open$" PYTHONPATH="$T/fake"
	echo "cuda = None; __version__ = '2.9.0+cpu'" >fake/torch/version.py
	doctor "^PyTorch *2.9.0+cpu, without CUDA: dfshim needs a build with CUDA" PYTHONPATH="$T/fake"
	# An interpreter without its packages, and a torch in the current folder, which doctor must
	# not import.
	printf '#!/bin/sh\nexec %s -I -S "$@"\n' "$(python3 -c 'import sys; print(sys.executable)')" >bare/python3
	chmod +x bare/python3
	mv fake/torch torch
	doctor "^PyTorch *none: Python without torch (/" PATH="$T/bare:$PATH"
fi
[ -e /dev/nvidiactl ] || head -1 out | grep -q "^CPU: all subcommands work here" || fail "doctor without a GPU: $(cat out)"
exit 0
