#!/bin/bash
# Description: DFSHIM_TIMEOUT_ACTION=abort with an NCCL that has ncclCommRevoke. A hang becomes ncclRemoteError; without ncclCommRevoke the process exits.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
rules=(DFSHIM_MODE=trace "LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so $B/tests/deadlock/no_stop.so $B/libdfnccl.so")

# run WORD: executes the program in $T/program, which must end with this verdict. A process that
# starts or arrives late must not be reported. If it is, repeat with a longer time-out.
run() {
	for ms in 500 5000 30000; do
		rm -rf "$T/tr"
		mkdir -p "$T/tr"
		env DFSHIM_TRACE="$T/tr" DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=4 DFSHIM_TIMEOUT_MS=$ms \
			DFSHIM_TIMEOUT_ACTION=abort NCCL_DEBUG=WARN "${rules[@]}" timeout -k 5 "${LIMIT:-100}" "$S" --timeout 60 "$T/program" >"$T/out" 2>&1
		rc=$?
		grep -q "^$1:" "$T/out" && return
	done
	fail "$1: the verdict is another, status $rc: $(cat "$T/out")"
}

# ended WORD: every communicator of every rank ends with an error, and all streams work, with
# threads and with processes.
ended() {
	local how
	cat >"$T/steps"
	for how in "" procs; do
		{ printf 'prog %s\nranks 2\n%s\ncomm c0 0 1\ncomm c1 0 1\nafter c0 c1\n' "$1" "$how" && cat "$T/steps"; } >"$T/program"
		run "$1"
		[ $rc = 3 ] || fail "$1 $how: status $rc: $(cat "$T/out")"
		all_ended "$1 $how" 0 1
		grep -q "dfshim ends communicators of this process: $1: " "$T/out" || fail "$1 $how: NCCL's last error lacks the verdict: $(cat "$T/out")"
		# The records say that dfshim ended the operations.
		"$B/dfshim" check "$T/tr" >"$T/check"
		grep -q "^$1:" "$T/check" || fail "$1 $how: check: $(head -1 "$T/check")"
	done
	echo "$1"
}
ended MISMATCH <<'END'
0: AR c0 nb0; AR c1 nb1; ssync nb0; ssync nb1
1: AR c0 nb0 n=9; AR c1 nb1 n=9; ssync nb0; ssync nb1
END
# Each rank has an unfinished operation on one communicator only, and continues with the other one.
ended DATA <<'END'
0: AR c0 nb0; ssync nb0; AR c1 nb1; ssync nb1
1: AR c1 nb1; ssync nb1; AR c0 nb0; ssync nb0
END
# A program that ignores errors does not exit with status 0.
mkdir "$T/tr1"
for ms in 1000 8000 30000; do
	out=$(env DFSHIM_TRACE="$T/tr1" DFSHIM_HOST_DEVICES=2 DFSHIM_TIMEOUT_MS=$ms DFSHIM_TIMEOUT_ACTION=abort "${rules[@]}" \
		timeout -k 5 "${LIMIT:-100}" "$C/differ" count 2>"$T/out")
	[ "$out" = "21 21" ] && break
done
[ "$out" = "21 21" ] || fail "ended with $out: $(cat "$T/out")"
# A set-up that blocks has no communicator yet that dfshim could revoke. The process exits with the
# verdict's status and not with 0.
cd "$T" || exit 1
cat >init.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
struct id {
	char bytes[128];
};
int main(void)
{
	int (*id)(struct id *), (*init)(void **, int, struct id, int);
	struct id i;
	void *comm;

	*(void **)&id = dlsym(RTLD_DEFAULT, "ncclGetUniqueId");
	*(void **)&init = dlsym(RTLD_DEFAULT, "ncclCommInitRank");
	return id(&i) || init(&comm, 2, i, 0);
}
END
gcc -o init init.c -ldl || fail gcc
mkdir tr2
env "${rules[@]/LD_PRELOAD=/LD_PRELOAD=${SAN_RUNTIME-}}" DFSHIM_TRACE=tr2 DFSHIM_TIMEOUT_MS=1000 DFSHIM_TIMEOUT_ACTION=abort timeout -k 5 "${LIMIT:-100}" ./init >out 2>&1
rc=$?
[ $rc = 22 ] && grep -q '^INIT: ' out || fail "set-up: status $rc: $(cat out)"
echo "INIT"
exit 0
