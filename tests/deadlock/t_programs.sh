#!/bin/bash
# Description: 5,000 random programs, each executed by both sets of rules: they end as the model
# says, and the verdicts of those that hang are true; also with every device synchronisation
# released.
#
# Limit: 1500 s
set -u
# The same programs in every check; `make stress-programs` executes 20,000 new ones (docs/deadlock-suite.md says what those find).
SEED=${SEED:-1}
. "$SRC/tests/lib/clients.sh"
R=$B/tests/deadlock/generator/random
[ -x "$B/tests/deadlock/interpreter/script" ] || skip "the interpreter is not built here"
# A program that hangs is broken off, with threads that are not joined.
export TSAN_OPTIONS="${TSAN_OPTIONS-} report_thread_leaks=0"
# A sanitizer's build is slower than its factor where threads are made and end all the time.
N=$((${PROGRAMS:-5000} / SLOW / SLOW))
"$R" --programs $N --seed "$SEED" || fail "random programs"
# The first that needs the search for the first thread in a hardware queue that two threads share.
"$R" --programs 1 --seed 9974 || fail "two threads on one queue"
# The first in which a receive from rank 0 and a later collective shared a key in a reduced trace.
"$R" --programs 1 --seed 842632749 || fail "a receive from rank 0 before a collective"
# Values behind a released synchronisation are never seen too early: reads after it are compared as
# all others are.
"$R" --programs $((N / 20)) --seed "$((SEED + 1000000))" --release device || fail "with release"
exit 0
