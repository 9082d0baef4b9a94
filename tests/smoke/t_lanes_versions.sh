#!/bin/bash
# Description: NCCL 2.19 to 2.30 on lanes, by what each version has: communicators in opposite orders end, the host API is served or its absence is said, and the limit of CTAs is respected. NCCL 2.18 is refused. Two NCCLs in one process are not mixed.
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
[ -x "$C/hostcalls" ] || skip "the clients are not built here"

# Makes an NCCL of the version $1, which older.c explains.
stand_in() {
	mkdir -p "$T/$1"
	sed -f "$SRC/scripts/list_rows.sed" "$SRC/interpose/nccl/nccl_api.def" |
		awk -F'[(,]' -v most="$1" '/^NCCL_FN/ && $2 + 0 <= most && $5 !~ / (ncclGetVersion|ncclCommInitRankConfig|ncclAllGather)$/' \
			>"$T/$1/rows.def"
	${CC:-gcc} -std=gnu11 -shared -fPIC -I"$T/$1" -I"$SRC" -DVERSION="$1" -DNEWEST="\"$B/libdfnccl.so\"" -o "$T/$1/nccl.so" \
		"$SRC/tests/smoke/older.c" -ldl || fail "NCCL $1 is not built"
}
# on VERSION CLIENT ARGS...: executes a client on lanes with this NCCL.
on() {
	local nccl=$T/$1/nccl.so
	shift
	DFSHIM_EXECUTOR=nccl DFSHIM_BACKEND=host LD_PRELOAD="$SAN_RUNTIME$B/libdfshim.so $B/libdfhost.so $nccl" \
		timeout -k 5 "${LIMIT:-100}" "$C/"$* --timeout $((60 * SLOW)) >"$T/out" 2>&1
}
# right VERSION CLIENT ARGS...: the client must succeed.
right() { on "$@" || fail "NCCL $*: $(cat "$T/out")"; }
# says WORDS, silent WORDS: the last client's output has the words, or has not.
says() { grep -qF -- "$1" "$T/out" || fail "NCCL $v: not said: \"$1\": $(cat "$T/out")"; }
silent() { grep -qF -- "$1" "$T/out" && fail "NCCL $v: said: $(cat "$T/out")"; }

for v in 21903 22005 22105 22203 22304 22403 22501 22602 22707 22803 22809 22907 23007; do
	stand_in $v
	for how in "--ranks 4" "--procs 3"; do
		# shellcheck disable=SC2086 # words
		NCCL_DEBUG=VERSION right $v hostcalls $how
		says "NCCL version 2.$((v / 100 % 100)).$((v % 100))+"
		[ "$(grep -c '^did ' "$T/out")" = 14 ] || fail "NCCL $v: $(cat "$T/out")"
		says "absent ncclDevCommCreate: "
		if [ $v -lt 22800 ]; then
			says "ncclAlltoAll: the NCCL library found is version $v and has no such function"
			says "absent ncclAlltoAll: error 5" # ncclInvalidUsage
		else
			silent "absent ncclAlltoAll"
		fi
		if [ $v -lt 22400 ]; then says "absent float8"; else silent "absent float8"; fi
	done
	# Six communicators with 4 CTAs on 16 multiprocessors. With 16 CTAs each they would hang.
	DFSHIM_NCCL_CTAS=4 DFSHIM_HOST_SMS=16 right $v disorder --ranks 2 --procs 2 --colls 6 --comms 6 --iters $((20 / SLOW)) --mix --streams 3 --sync --seed "$SEED"
	DFSHIM_NCCL_ORDER=agree right $v disorder --ranks 3 --colls 4 --comms 2 --iters $((20 / SLOW)) --sync --warmup --seed "$SEED"
	# Before 2.22 an abort waits until no other thread is in NCCL.
	for case in abort abort-sync; do
		RUDE_CASE=$case right $v rude --ranks 3
	done
	# Mode trace, in which NCCL makes all communicators.
	DFSHIM_MODE=trace right $v disorder --ranks 2 --colls 2 --iters 5 --inorder --seed "$SEED"
done
# By NCCL's rules the same job hangs.
v=22203
rc=0
DFSHIM_MODE=trace DFSHIM_TIMEOUT_MS=$((1500 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort CALLS=plain on $v hostcalls --ranks 4 || rc=$?
[ $rc != 0 ] && grep -q '^\(SYNC\|ORDER\): ' "$T/out" || fail "by NCCL's rules: status $rc: $(cat "$T/out")"

v=21806
stand_in $v
on $v disorder --ranks 2 --colls 2 --iters 5 && fail "NCCL $v: not refused: $(cat "$T/out")"
says "2.19"

# The ranks of a job have different NCCLs.
i=0
for v in 21903 22809; do
	RANK=$i LOCAL_RANK=$i WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 12000)) DFSHIM_EXECUTOR=nccl DFSHIM_BACKEND=host \
		LD_PRELOAD="$SAN_RUNTIME$B/libdfshim.so $B/libdfhost.so $T/$v/nccl.so" timeout -k 5 $((30 * SLOW)) "$C/disorder" --iters 1 --timeout $((20 * SLOW)) >"$T/out.$i" 2>&1 &
	i=$((i + 1))
done
wait
for i in 0 1; do
	grep -q "its NCCL is of another version" "$T/out.$i" || fail "different versions: $(cat "$T/out.$i")"
done
exit 0
