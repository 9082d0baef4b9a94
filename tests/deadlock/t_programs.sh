#!/bin/bash
# Description: random programs, labelled by the model and executed by both sets of rules; also with every device synchronisation released.
set -u
. "$SRC/tests/lib/clients.sh"
R=$B/tests/deadlock/random
# The same programs in every check; `make stress-programs` goes on from a new seed each time.
SEED=${DF_TEST_SEED:-1}
[ -x "$B/tests/deadlock/script" ] || skip "the interpreter is not built here"
"$R" --programs 20000 --seconds "${SECONDS_EACH:-8}" --seed "$SEED" || fail "random programs"
# What a released synchronisation leaves behind is never seen: reads after it are compared as all others are.
"$R" --programs 0 --seconds "$((${SECONDS_EACH:-8} / 2))" --seed "$((SEED + 1000000))" --release device || fail "with release"
exit 0
