#!/bin/bash
# Description: random programs with threads that sleep, have ended or are late. No program hangs that a release can complete, nothing is called proved that a late thread ends, and no hang ends with status 0.
# Limit: 900 s
set -u
SEED=${SEED:-1}
. "$SRC/tests/lib/clients.sh"
[ -x "$B/tests/deadlock/interpreter/script" ] || skip "the interpreter is not built here"
# A program that hangs is ended without joining its threads.
export TSAN_OPTIONS="${TSAN_OPTIONS-} report_thread_leaks=0"
"$B/tests/deadlock/generator/threads" --programs $((${PROGRAMS:-300} / SLOW / SLOW)) --seed "$SEED" || fail "random programs with threads"
exit 0
