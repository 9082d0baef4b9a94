#!/bin/bash
# Description: a part of the evaluation of the checker (make eval-dl2): every 32nd job.
set -u
# A fixed seed gives the same jobs in every check.
SEED=${SEED:-1}
. "$SRC/tests/lib/clients.sh"
[ -x "$B/tests/deadlock/interpreter/script" ] || skip "the interpreter is not built here"
"$B/tests/deadlock/evaluation/eval" --every "${EVERY:-32}" --seed "$SEED" || fail "the evaluation"
exit 0
