#!/bin/bash
# Description: under mpirun: the client finds its rank in Open MPI's variables.
set -u
. "$SRC/tests/lib/clients.sh"
command -v mpirun >/dev/null || skip "no mpirun here"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 MASTER_PORT=$((20000 + $$ % 20000))
preload=$("$B/dfshim" run --host --dry-run -- x 2>/dev/null | sed -n 's/^LD_PRELOAD=//p')
timeout -k 5 "${LIMIT:-100}" mpirun --oversubscribe --bind-to none -n 4 -x LD_PRELOAD="$preload" -x DFSHIM_BACKEND=host \
	"$C/disorder" --iters 10 --timeout 60 >"$T/out" || fail "status $?: $(tail -5 "$T/out")"
grep -q '^disorder: OK: 4 ranks in 4 processes' "$T/out" || fail "$(cat "$T/out")"
exit 0
