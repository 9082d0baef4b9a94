#!/bin/bash
# Description: random programs with threads that sleep, have ended or are late: none that a release helps hangs, nothing that a late thread ends is called proved, no hang ends with status 0.
# Limit: 900 s
set -u
SEED=${SEED:-1}
. "$SRC/tests/lib/clients.sh"
[ -x "$B/tests/deadlock/interpreter/script" ] || skip "the interpreter is not built here"
# A program that hangs is broken off, with threads that are not joined.
export TSAN_OPTIONS="${TSAN_OPTIONS-} report_thread_leaks=0"
"$B/tests/deadlock/generator/threads" --programs $((${PROGRAMS:-300} / SLOW / SLOW)) --seed "$SEED" || fail "random programs with threads"
exit 0
