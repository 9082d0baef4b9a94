#!/bin/bash
# Runs the whole evaluation of the checker and writes its tables into docs/evaluation.md, between
# the markers. SEED: selects other jobs (default 1). JOBS: parallel jobs (10). An empty TRUTH=
# leaves out the further executions of jobs that hang.
set -u
cd "$(dirname "$0")/.." || exit 1
export B=${B:-$PWD/build}
case $B in /*) ;; *) B=$PWD/$B ;; esac
T=$(mktemp -d) || exit 1
export T
trap 'rm -rf "$T"' EXIT
"$B/tests/deadlock/evaluation/eval" --seed "${SEED:-1}" ${TRUTH---truth} --jobs "${JOBS:-10}" \
	--markdown "$T/table" | tee "$T/log"
rc=${PIPESTATUS[0]}
[ -s "$T/table" ] || exit 1
{
	echo "Measured $(date -u +%F)" \
		"at $(git rev-parse --short HEAD 2>/dev/null || echo unknown)," \
		"CPU backend on $(nproc) processors" \
		"($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1))," \
		"seed ${SEED:-1}: $(tail -1 "$T/log")."
	echo
	cat "$T/table"
} >"$T/text"
scripts/insert.sh docs/evaluation.md eval-dl2 "$T/text"
exit "$rc"
