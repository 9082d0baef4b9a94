#!/bin/bash
# Description: a rank whose process has no control plane, no file descriptors: all ranks end, with the reason, or run.
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
export DFSHIM_STATS='' DFSHIM_TIMEOUT_MS=$((10000 * SLOW))
cd "$T" || exit 1
# What the control plane begins with can be had no more.
cat >lack.c <<'EOF'
#include <errno.h>
int epoll_create1(int flags)
{
	(void)flags;
	errno = ENOMEM;
	return -1;
}
EOF
gcc -shared -fPIC lack.c -o lack.so || fail "gcc"

# job PROCS "COMMANDS OF RANK 1": the job's status in rc, what all have said in ./err.
job() {
	rc=0
	# shellcheck disable=SC2016 # expanded inside
	timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host -n "$1" -- bash -c '
		if [ "$RANK" = 1 ]; then eval "$0"; fi
		exec "$@" >"rank.$RANK" 2>&1' "$2" "$C/disorder" --colls 2 --iters 3 --timeout $((30 * SLOW)) >out 2>&1 || rc=$?
	cat out rank.* >err
}
# All have ended, none by the clock, and what was wrong was said.
ended() { # NAME WORDS...
	local name=$1 w
	shift
	[ $rc = 3 ] || fail "$name: status $rc: $(cat err)"
	grep -q "no progress" err && fail "$name: a rank waited: $(cat err)"
	for w; do
		grep -q -- "$w" err || fail "$name: nobody says \"$w\": $(cat err)"
	done
}

for procs in 2 4; do
	# shellcheck disable=SC2016 # expanded inside
	job "$procs" 'export LD_PRELOAD="$LD_PRELOAD $PWD/lack.so"'
	ended "no memory, $procs processes" "dfshim can't start on rank 1 .*control plane: Cannot allocate memory" \
		"rank 1 can't go over to NCCL"
done
# Without descriptors for the control plane itself, for its sockets, for its connections. (With 4 the client has none.)
for n in 5 6 7 8 9 10 11; do
	job 2 "ulimit -n $n"
	ended "$n descriptors" "rank 1 .*\(Too many open files\|no file descriptor left\)"
done
# A soft limit is raised, as NCCL's root does.
for n in 6 9 12 14; do
	job 2 "ulimit -S -n $n"
	[ $rc = 0 ] || fail "soft limit of $n: status $rc: $(cat err)"
done
exit 0
