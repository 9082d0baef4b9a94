#!/bin/bash
# Runs benchmarks: build/tests/AREA/b_* and tests/AREA/b_*.sh whose name (without b_) matches the
# pattern.
#
#   scripts/bench.sh [PATTERN [AREA]]      (AREA: bench, or gpu)
#
# Prints a line for each figure:
#   BENCH <name> <value> <unit> [peer <name> <value> ratio <r>] target <op><t> ok|MISS|UNMEASURED
# Never part of `make check`, because the figures depend on the machine. Exits with 1 if a benchmark
# could not run.
set -u
cd "$(dirname "$0")/.." || exit 1
export SRC=$PWD B=${B:-build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
pattern=${1:-*} area=${2:-bench}
bad=0 ran=0
echo "# $(nproc) processors, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)," \
	"$(date -u +%F)"
for f in "tests/$area"/b_*.c "tests/$area"/b_*.sh; do
	[ -e "$f" ] || continue
	name=$(basename "${f%.*}")
	# shellcheck disable=SC2053 # a pattern
	[[ ${name#b_} == $pattern || $name == $pattern ]] || continue
	ran=$((ran + 1))
	export T=$B/bench-out/$name
	mkdir -p "$T"
	if [ "${f##*.}" = sh ]; then
		command=("$f")
	else
		command=("$B/tests/$area/$name")
	fi
	timeout 900 "${command[@]}" 2>"$T/errors" | tee "$T/log"
	rc=${PIPESTATUS[0]}
	[ "$rc" = 0 ] || [ "$rc" = 77 ] || {
		echo "# $name: status $rc"
		tail -5 "$T/errors" | sed 's/^/# /'
		bad=1
	}
done
[ $ran != 0 ] || {
	echo "bench: no benchmark '$pattern' in tests/$area" >&2
	exit 2
}
exit $bad
