#!/bin/bash
# Description: DFSHIM_ALGO: text and XML files are executed with the right results. If a file is not used, the log says why. Ranks with different lists cannot form a communicator.
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
D="$B/dfshim algo"
$D compile allreduce-hierarchical --nodes 2 --gpus 2 -o "$T/a.dfp" || fail "compile a"
$D compile allgather-ring --ranks 4 --blocks peer --format rccl -o "$T/b.xml" || fail "compile b"
$D compile reducescatter-ring --ranks 4 --blocks peer --format msccl -o "$T/c.xml" || fail "compile c"
$D compile alltoall-three-step --nodes 2 --gpus 2 -o "$T/d.dfp" || fail "compile d"
$D compile alltonext --nodes 2 --gpus 2 -o "$T/next.dfp" || fail "compile next"
$D run "$T/next.dfp" --rounds 10 --seed "$SEED" | grep -q '10 runs right' || fail "AllToNext does not run"

# run ONLY ARGS...: runs collcheck with the list. The output is in $T/out.
run() {
	local only=$1
	shift
	DFSHIM_DEBUG=info timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/collcheck" --only "$only" \
		--sample $((150 / SLOW)) --seed "$SEED" --timeout 60 "$@" >"$T/out" 2>&1 || fail "$only $*: $(tail -5 "$T/out")"
}
used() { grep -q "program $1" "$T/out" || fail "$1 is not used: $(grep -m3 program "$T/out")"; }
export DFSHIM_ALGO=$T/a.dfp:$T/b.xml:$T/c.xml:$T/d.dfp
run AllReduce --ranks 4
used "allreduce-hierarchical"
run AllGather --ranks 4 --procs 4
used "allgather-ring"
run ReduceScatter --ranks 4
used "reducescatter-ring"
run AlltoAll --ranks 4
used "alltoall-three-step"
# If the file is for another number of ranks, the built-in program is used, and the reason is
# logged.
run AllReduce --ranks 3
grep -q 'no file for AllReduce .*another number of ranks' "$T/out" || fail "no reason: $(head -5 "$T/out")"
used "AllReduce "
# A wrong file is named and not used. The other files of the list are used.
sed '0,/recvReduceCopySend o0 o0/s/recvReduceCopySend o0 o0/recvReduceCopySend o1 o0/' "$T/a.dfp" >"$T/wrong.dfp"
cmp -s "$T/a.dfp" "$T/wrong.dfp" && fail "nothing was damaged"
DFSHIM_ALGO=$T/wrong.dfp:$T/next.dfp:$T/a.dfp run AllReduce --ranks 4
grep -q "DFSHIM_ALGO: $T/wrong.dfp:[0-9]*: rank [0-9]* block [0-9]* step [0-9]*: " "$T/out" || fail "not named: $(head -5 "$T/out")"
grep -q "DFSHIM_ALGO: $T/next.dfp.*custom collective" "$T/out" || fail "custom: $(head -5 "$T/out")"
used "allreduce-hierarchical"
# A program that is right only out of place copies its input first, and so is right in place too.
cat >"$T/early.dfp" <<'END'
dfprog 1
name early
kind AllReduce
ranks 2
chunks 1
in_place no
rank 0 in 1 out 1 scratch 0
block 0
send i0 to 1
block 1
recvReduceCopy i0 o0 from 1
rank 1 in 1 out 1 scratch 0
block 0
send i0 to 0
recvReduceCopy i0 o0 from 0
END
$D verify "$T/early.dfp" | grep -q 'copies its input first' || fail "verify: $($D verify "$T/early.dfp")"
DFSHIM_ALGO=$T/early.dfp run AllReduce --ranks 2
used "early.*copies its input first"
# A program that works in its input buffer works on a copy of it, in place and out of place.
own=$SRC/tests/program/own_input
for one in ReduceScatter:rs.xml:3 AllGather:ag.xml:2 AllReduce:ar.dfp:2 AlltoAll:a2a.dfp:2 Broadcast:bc.xml:3 Reduce:red.dfp:3; do
	IFS=: read -r kind file ranks <<<"$one"
	DFSHIM_ALGO=$own/$file run "$kind" --ranks "$ranks"
	used "[a-z0-9]*-in-input.*copies its input first"
done
# Ranks with different lists fail to join, and do not hang.
cat >"$T/differ" <<'END'
#!/bin/sh
[ "$RANK" = 0 ] || unset DFSHIM_ALGO
exec "$@"
END
chmod +x "$T/differ"
timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -n 2 -- "$T/differ" "$C/latency" --timeout $((20 * SLOW)) >"$T/out" 2>&1 &&
	fail "two lists in one job: $(cat "$T/out")"
grep -q 'different settings' "$T/out" || fail "two lists: $(cat "$T/out")"
exit 0
