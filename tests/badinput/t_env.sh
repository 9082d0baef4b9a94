#!/bin/bash
# Description: bad values of every variable cause one warning and the default, and with DFSHIM_STRICT an error.
# Limit: 600 s
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
cd "$T" || exit 1
job() {
	timeout -k 5 "${LIMIT:-60}" env LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so $B/libdfhost.so" "$@" "$C/disorder" --ranks 2 \
		--colls 2 --iters 2 --timeout 30 >out 2>err
}
# Numbers and lists have bad values. Texts are checked where they are used.
"$B/dfshim" env --json | jq -r '.[] | select(.type != "text" and .type != "string") | .name' | grep DFSHIM_ >names
[ "$(wc -l <names)" -ge 20 ] || fail "only $(wc -l <names) variables with a range"
values=(nonsense -77 99999999999999999999 "1 2") at=0
while read -r n; do
	# All values for each variable; with a sanitizer one value, a different one for each
	# variable.
	for v in "${values[@]:at % 4 * (SLOW > 1):SLOW > 1 ? 1 : 4}"; do
		job "$n=$v" || fail "$n=$v: status $?: $(cat out err)"
		[ "$(grep -cF "$n=$v cannot be used: allowed is" err)" = 1 ] || fail "$n=$v: $(cat err)"
		[ "$n" != DFSHIM_STRICT ] || continue
	done
	at=$((at + 1))
	[ "$n" != DFSHIM_STRICT ] && [ $((at % 4 * (SLOW > 1))) = 0 ] || continue
	job DFSHIM_STRICT=1 "$n=nonsense" && fail "$n=nonsense is accepted although strict"
	grep -q "dfshim cannot start: .* cannot be used" out || fail "strict $n: $(cat out)"
	[ "$(grep -cF "$n=nonsense cannot be used: allowed is" err)" = 1 ] || fail "strict $n: $(cat err)"
done <names
# On lanes, libdfnccl.so reads the variables as well.
job LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so" DFSHIM_EXECUTOR=nccl DFSHIM_NCCL_CTAS=nonsense DFSHIM_HOST_SMS=nonsense
for n in DFSHIM_NCCL_CTAS DFSHIM_HOST_SMS; do
	[ "$(grep -cF "$n=nonsense cannot be used: allowed is" err)" = 1 ] || fail "on lanes: $n: $(cat out err)"
done
# A job of several processes ends too.
timeout "${LIMIT:-60}" env LD_PRELOAD="${SAN_RUNTIME-}$B/libdfshim.so $B/libdfhost.so" DFSHIM_STRICT=1 DFSHIM_BLOCKS=none "$C/disorder" --procs 3 \
	--timeout 40 >out 2>err
[ $? = 3 ] || fail "three processes: $(cat out err)"
# Variables with texts.
for nv in DFSHIM_PRIORITY=nonsense:: DFSHIM_NET_SPEED=20:0 DFSHIM_ALGO=/no/such/file DFSHIM_TUNER=/no/such/file DFSHIM_NET=carrier-pigeon \
	DFSHIM_STATS=/no/such/folder/x DFSHIM_TRACE=/proc/no DFSHIM_HOST_FAULT=nonsense NCCL_SOCKET_IFNAME=nonsense0 \
	DFSHIM_RELAESE=x; do
	job "$nv"
	rc=$?
	[ $rc = 0 ] || [ $rc = 3 ] || fail "$nv: status $rc: $(cat out err)"
	LC_ALL=C grep -q '[^ -~]' err && fail "$nv: not text: $(cat -v err)"
	grep -qF "${nv%%=*}" out err || fail "$nv: nothing names the variable: $(cat out err)"
done
exit 0
