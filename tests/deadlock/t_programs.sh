#!/bin/bash
# Description: 5,000 random programs, each executed by both sets of rules. They end as the model says, and the verdicts of those that hang are true; also with every device synchronisation released.
# Limit: 1500 s
set -u
# A fixed seed gives the same programs in every check. `make stress-programs` executes 20,000 new
# ones (docs/deadlock-suite.md lists its findings).
SEED=${SEED:-1}
. "$SRC/tests/lib/clients.sh"
R=$B/tests/deadlock/generator/random
[ -x "$B/tests/deadlock/interpreter/script" ] || skip "the interpreter is not built here"
# A program that hangs is ended without joining its threads.
export TSAN_OPTIONS="${TSAN_OPTIONS-} report_thread_leaks=0"
# A build with a sanitizer is slower than SLOW where threads start and end all the time.
N=$((${PROGRAMS:-5000} / SLOW / SLOW))
"$R" --programs $N --seed "$SEED" || fail "random programs"
# The first seed that needs the search for the first thread in a hardware queue that two threads
# share.
"$R" --programs 1 --seed 9974 || fail "two threads on one queue"
# The first seed in which a receive from rank 0 and a later collective had the same key in a reduced
# trace.
"$R" --programs 1 --seed 842632749 || fail "a receive from rank 0 before a collective"
# Reads after a released synchronisation are compared too, so they must not return early values.
"$R" --programs $((N / 20)) --seed "$((SEED + 1000000))" --release device || fail "with release"
exit 0
