#!/bin/bash
# Description: collectives in CUDA graphs on lanes: all forms of graphs, with room and without; two graphs in opposite orders, which hang by NCCL's rules; a group on two streams.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
# lanes VARIABLE... PROGRAM ARGS...: the program must succeed with these two variables.
lanes() {
	timeout -k 5 "${LIMIT:-100}" env "${@:1:2}" "$B/dfshim" run --host --executor nccl -- "$3" --timeout $((60 * SLOW)) "${@:4}" >"$T/out" 2>&1 ||
		fail "$*: $(cat "$T/out")"
}

for sms in 64 48 16; do
	for how in issue agree; do
		# With an agreed order operations do not wait for room.
		[ $how = issue ] || [ $sms = 64 ] || continue
		for client in "graphcheck --ranks 4" "graphcheck --ranks 1" "graphcheck --procs 2" "graphforms --ranks 2" "graphforms --ranks 3" \
			"graphforms --procs 2"; do
			# shellcheck disable=SC2086 # words
			lanes DFSHIM_HOST_SMS=$sms DFSHIM_NCCL_ORDER=$how "$C/"$client --seed "$SEED"
		done
	done
done

# opposite FILE WORK STREAM STREAM: writes a program in which the ranks launch two graphs in
# opposite orders. WORK precedes each collective in the graphs.
opposite() {
	local make="cap c g1; $2 AR A c n=64; endcap c g1; cap c g2; $2 AR B c n=64; endcap c g2;"
	printf '%s\n' "ranks 2" "comm A 0 1" "comm B 0 1" "0: $make launch g1 $3; sleep 100; launch g2 $4; dsync" \
		"1: $make launch g2 $4; sleep 100; launch g1 $3; dsync" >"$T/$1.txt"
}
opposite bare "" s s
opposite mixed "K c;" s1 s2
# A captured group with messages on two streams. NCCL connects two ranks inside the call, which
# returns after both ranks have called.
{
	printf '%s\n' "ranks 2" cold "comm A 0 1"
	for r in 0 1; do
		echo "$r: cap c g; K c; rec e1 c; wait e1 d; { ; send A $((1 - r)) c n=1000; recv A $((1 - r)) d n=1000; };" \
			"rec e2 d; wait e2 c; K c; endcap c g; launch g c; launch g c; ssync c"
	done
} >"$T/across.txt"
lanes DFSHIM_HOST_SMS=64 DFSHIM_NCCL_ORDER=issue "$S" "$T/across.txt"
for f in bare mixed; do
	# By NCCL's rules both programs hang: they use one stream, or the device has room for one
	# communicator.
	env "${NCCL_RULES[@]}" DFSHIM_HOST_SMS=16 DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort \
		timeout -k 5 "${LIMIT:-100}" "$S" --timeout 80 "$T/$f.txt" >"$T/out" 2>&1 && fail "$f: no hang by NCCL's rules"
	grep -qE "^(ORDER|RESOURCE): " "$T/out" || fail "$f: $(cat "$T/out")"
	for sms in 64 32 16; do
		lanes DFSHIM_HOST_SMS=$sms DFSHIM_NCCL_ORDER=issue "$S" "$T/$f.txt"
	done
done
exit 0
