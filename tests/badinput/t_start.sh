#!/bin/bash
# Description: no GPU and no CPU backend, no libnccl, a full /dev/shm. NCCL executes the job with a warning, or there is a clear error.
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
cd "$T" || exit 1
# A client that calls NCCL before CUDA.
cat >plain.c <<'EOF'
#include <nccl.h>
#include <stdio.h>
int main(void)
{
	ncclUniqueId id;
	ncclResult_t r = ncclGetUniqueId(&id);

	printf("%d %s\n", (int)r, ncclGetLastError(NULL));
	return r != ncclSuccess;
}
EOF
cuda=$("$SRC/scripts/cuda_home.sh")
gcc plain.c -o plain -isystem "$cuda/include" -L"$cuda/lib64" -L"$cuda/lib" -lnccl -Wl,-rpath,"$cuda/lib64:$cuda/lib" 2>gcc.log ||
	skip "no NCCL to link with: $(tail -1 gcc.log)"
if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
	# One warning, and then the same as with NCCL alone.
	timeout "${LIMIT:-60}" env LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so" ./plain >out 2>err
	rc=$?
	timeout "${LIMIT:-60}" ./plain >out.plain 2>/dev/null
	[ $rc = $? ] || fail "status $rc: $(cat out err)"
	[ "$(grep -c "cannot start: no usable GPU.*NCCL executes the job, which is recorded and watched" err)" = 1 ] || fail "fallback: $(cat err)"
	DFSHIM_STRICT=1 timeout "${LIMIT:-60}" env LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so" ./plain >out 2>err && fail "strict falls back"
	grep -q "cannot start: no usable GPU" out || fail "strict does not say why: $(cat out err)"
	DFSHIM_MODE=off timeout "${LIMIT:-60}" env LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so" ./plain >out 2>err
	[ ! -s err ] || fail "mode off speaks: $(cat err)"
fi
timeout "${LIMIT:-60}" env DFSHIM_MODE=off LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so $B/libdfhost.so" ./plain >out 2>&1 && fail "off on the CPU"
grep -q "DFSHIM_MODE=off under libdfhost.so" out || fail "off on the CPU: $(cat out)"

# Without libnccl.so.2 only programs that open it at run time start at all. The error names the
# missing library.
cat >open.c <<'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(void)
{
	int (*get)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "ncclGetUniqueId");
	const char *(*why)(void *) = (const char *(*)(void *))dlsym(RTLD_DEFAULT, "ncclGetLastError");
	char id[128];
	int r = get ? get(id) : -1;

	printf("%d %s\n", r, why ? why(NULL) : "");
	return r;
}
EOF
gcc open.c -o open -ldl || fail "gcc"
unshare -m true 2>/dev/null || skip "no rights for a mount namespace: libnccl and /dev/shm were not taken away"
# shellcheck disable=SC2016 # expanded inside
hide='for f in $(ldconfig -p | sed -n "s/.*libnccl\.so[^>]*=> //p" | xargs -r -n1 readlink -f | sort -u); do
	mount --bind /dev/null "$f" || exit 9; done; exec "$@"'
if ! ls /dev/nvidia[0-9]* >/dev/null 2>&1; then
	timeout "${LIMIT:-60}" unshare -m bash -c "$hide" - env -u LD_LIBRARY_PATH LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so" ./open >out 2>err
	rc=$?
	[ $rc = 2 ] || fail "without libnccl: status $rc: $(cat out err)"
	grep -q "no libnccl.so.2 found" out || fail "without libnccl: $(cat out err)"
fi
# The CPU backend needs nothing of NCCL.
timeout "${LIMIT:-60}" unshare -m bash -c "$hide" - env -u LD_LIBRARY_PATH LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so $B/libdfhost.so" ./open \
	>out 2>&1 || fail "on the CPU without libnccl: $(cat out)"

# A limit on the size of files (in blocks of 512 bytes) causes a message and an error status instead
# of a signal.
# shellcheck disable=SC2016 # expanded inside
timeout "${LIMIT:-60}" "$B/dfshim" run --host -n 2 -- sh -c 'ulimit -f 4000; exec "$@"' - "$C/disorder" --colls 2 --iters 2 --timeout 40 \
	>out 2>&1
rc=$?
[ $rc = 3 ] && grep -q "than this process may write to a file (2000 KiB): raise the limit (ulimit -f)" out || fail "ulimit -f: $rc $(cat out)"

# Shared memory does not use /dev/shm, so a full one does no harm.
for how in "--ranks 4" "--procs 4"; do
	# shellcheck disable=SC2016,SC2086 # expanded inside; words
	timeout "${LIMIT:-60}" unshare -m bash -c 'mount -t tmpfs -o size=4k none /dev/shm && dd if=/dev/zero of=/dev/shm/x bs=4k \
		2>/dev/null; "$@"; rc=$?; [ "$(ls /dev/shm)" = x ] || rc=99; exit $rc' - "$B/dfshim" run --host -- \
		"$C/disorder" $how --colls 4 --iters 5 --timeout 40 >out 2>&1 || fail "full /dev/shm, $how: $? $(cat out)"
done
exit 0
