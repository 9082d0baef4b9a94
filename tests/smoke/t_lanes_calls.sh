#!/bin/bash
# Description: NCCL's host API on lanes: configuration, registration, windows, splits, shrinks, revokes, aborts, growth, device communicators, each with the communicators in opposite orders; also where multiprocessors are short, in an agreed order, and over two nodes.
# Limit: 200 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
# calls ARGS...: the client must do all cases, with the call that needs a GPU's memory absent.
calls() {
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --executor nccl "$@" --timeout $((60 * SLOW)) >"$T/out" 2>&1 || fail "$*: $(cat "$T/out")"
	[ "$(grep -c '^did ' "$T/out")" = 14 ] || fail "$*: not all: $(cat "$T/out")"
	[ "$(grep -o '^absent [A-Za-z0-9]*' "$T/out" | sort | tr '\n' ' ')" = "absent ncclDevCommCreate " ] ||
		fail "$*: $(cat "$T/out")"
	grep -q 'NCCL refuses' "$T/out" && fail "$*: $(cat "$T/out")"
}
for sms in 64 32 16; do
	for order in issue agree; do
		DFSHIM_HOST_SMS=$sms DFSHIM_NCCL_ORDER=$order calls -- "$C/hostcalls" --ranks 5
		DFSHIM_HOST_SMS=$sms DFSHIM_NCCL_ORDER=$order calls -- "$C/hostcalls" --procs 4
	done
	DFSHIM_HOST_SMS=$sms DFSHIM_HOST_NODE_DEVICES=2 DFSHIM_NET=tcp calls -- "$C/hostcalls" --procs 4
done
# The control: by NCCL's rules the first case hangs.
rc=0
DFSHIM_TIMEOUT_ACTION=abort CALLS=plain timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host --rules nccl --timeout "$(seconds 15)" -- "$C/hostcalls" --ranks 4 >"$T/out" 2>&1 || rc=$?
grep -qE '^(SYNC|ORDER): ' "$T/out" || fail "by NCCL's rules: status $rc: $(cat "$T/out")"
exit 0
