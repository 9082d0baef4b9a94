#!/bin/bash
# Description: a rank's process lacks its control plane or file descriptors. All ranks end with the reason, or the job runs.
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
export DFSHIM_STATS='' DFSHIM_TIMEOUT_MS=$((10000 * SLOW))
cd "$T" || exit 1
# epoll_create1(), which the control plane calls at its start, fails.
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

# job PROCS COMMANDS: runs a job in which rank $which executes COMMANDS first. Stores the status in
# rc and all output in ./err.
which=1
job() {
	rc=0
	# shellcheck disable=SC2016 # expanded inside
	WHICH=$which timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host -n "$1" -- bash -c '
		if [ "$RANK" = "$WHICH" ]; then eval "$0"; fi
		exec "$@" >"rank.$RANK" 2>&1' "$2" "$C/disorder" --colls 2 --iters 3 --timeout $((30 * SLOW)) >out 2>&1 || rc=$?
	cat out rank.* >err
}
# All ranks must have ended with an error before the client's time-out, and the output must contain
# the WORDS.
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
	ended "no memory, $procs processes" "dfshim cannot start on rank 1 .*control plane: Cannot allocate memory" \
		"rank 1 cannot be handed to NCCL"
done
# Too few descriptors for the control plane, for its sockets, or for its connections. (With 4 the
# client itself fails.)
for n in 5 6 7 8 9 10 11; do
	job 2 "ulimit -n $n"
	ended "$n descriptors" "rank 1 .*\(Too many open files\|no file descriptor left\)"
done
# With a few more the shortage appears when peers connect or map their memory. The job runs, or ends
# with the reason.
shortage() { # N RANK
	mkdir -p "short.$1.$2" && cd "short.$1.$2" || exit 1
	which=$2
	DFSHIM_TRACE=trace job 2 "ulimit -n $1"
	[ $rc = 0 ] || ended "$1 descriptors of rank $2" "no file descriptor left"
	# A process that cannot map memory reports this to the other side, which may be waiting for
	# it.
	grep -q "cannot be reached (this process has no file descriptor left" err || return 0
	ended "the other side, $1 descriptors of rank $2" "rank $2 .* cannot map the memory of this process (it has no file descriptor left"
	"$B/dfshim" check trace >said
	grep -q "^NET_STALL: r$2 cannot map the memory of r$((1 - $2)): Too many open files" said || fail "the verdict, $1 descriptors of rank $2: $(cat said)"
}
for rank in 0 1; do
	jobs=()
	for n in 10 12 14 15 16 18; do
		(shortage $n $rank) &
		jobs+=($!)
	done
	for j in "${jobs[@]}"; do wait "$j" || exit 1; done
done
# Two nodes in one process. Descriptors for the list of interfaces and for sockets may be missing
# too. The error must name the limit, and no address.
for n in 11 12 13 14 15 16; do
	rc=0
	(ulimit -n $n && DFSHIM_HOST_NODE_DEVICES=1 exec timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host -- "$C/disorder" --colls 2 --iters 3) \
		>err 2>&1 || rc=$?
	[ $rc = 0 ] || { [ $rc = 3 ] && grep -q "no file descriptor left ($n are allowed, see .ulimit -n.)" err; } ||
		fail "$n descriptors for two nodes: status $rc: $(cat err)"
	! grep "no address\|Cannot assign\|Too many open files" err || fail "$n descriptors for two nodes: $(cat err)"
done
# A soft limit is raised, as NCCL does, before any other function can meet it.
for n in {6..16}; do
	job 2 "ulimit -S -n $n"
	[ $rc = 0 ] || fail "soft limit of $n: status $rc: $(cat err)"
done
# Descriptors arrive when no number is free, so the kernel drops them.
cat >cut.c <<'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	static ssize_t (*real)(int, struct msghdr *, int);
	static int times;
	struct cmsghdr *c;
	ssize_t n;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "recvmsg");
	n = real(fd, m, flags);
	c = n > 0 ? CMSG_FIRSTHDR(m) : NULL;
	if (!c || c->cmsg_type != SCM_RIGHTS || times++ >= atoi(getenv("CUT")))
		return n;
	for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
		int dropped;

		memcpy(&dropped, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		close(dropped);
	}
	m->msg_controllen = 0;
	m->msg_flags |= MSG_CTRUNC;
	return n;
}
EOF
gcc -shared -fPIC cut.c -o cut.so -ldl || fail "gcc"
# shellcheck disable=SC2016 # expanded inside
job 2 'ulimit -S -n 100; export CUT=1 LD_PRELOAD="$LD_PRELOAD $PWD/cut.so"'
[ $rc = 0 ] || fail "descriptors dropped once: status $rc: $(cat err)"
# shellcheck disable=SC2016 # expanded inside
DFSHIM_TIMEOUT_MS=$((1500 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort \
	job 2 'ulimit -n 100; export CUT=1000000 LD_PRELOAD="$LD_PRELOAD $PWD/cut.so"'
[ $rc != 0 ] || fail "descriptors always dropped: it ended well"
for w in "this process has no file descriptor left (100 are allowed" "shared memory of process .*: Too many open files"; do
	grep -q "$w" err || fail "descriptors always dropped: nobody says \"$w\": $(cat err)"
done
cat err
# There is no descriptor for the memory of connectors. The limit is reported once, whatever the
# number of operations.
cat >memfd.c <<'EOF'
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int memfd_create(const char *name, unsigned flags)
{
	if (strcmp(name, "dfshim"))
		return (int)syscall(SYS_memfd_create, name, flags);
	errno = EMFILE;
	return -1;
}
EOF
gcc -shared -fPIC memfd.c -o memfd.so || fail "gcc"
rc=0
# Only libdfshim.so calls the failing function; the CPU backend needs the real one.
timeout -k 5 "${LIMIT:-60}" "$B/dfshim" run --host -- sh -c 'ulimit -n 90; LD_PRELOAD="$LD_PRELOAD $0" exec "$@"' \
	"$PWD/memfd.so" "$C/disorder" --colls 4 --iters 3 >err 2>&1 || rc=$?
[ $rc = 3 ] || fail "no memory for connectors: status $rc: $(cat err)"
[ "$(grep -c 'shared memory for connectors' err)" = 1 ] || fail "no memory for connectors: not said once: $(cat err)"
grep -q "no file descriptor left (90 are allowed, see .ulimit -n.)" err || fail "no memory for connectors: the limit is not named: $(cat err)"
exit 0
