#!/bin/bash
# Description: the choice of a program: NCCL_ALGO, a tuner file, the measured model; all ranks choose the same; bench on the daemon.
set -u
. "$SRC/tests/lib/clients.sh"
export LATENCY_MAX=8 LATENCY_ROUNDS=1 DFSHIM_DEBUG=info
unset DFSHIM_TRACE
# job N: runs N ranks. The output is in $T/out, the status in `rc`.
job() {
	rc=0
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -n "$1" -- "$C/latency" --timeout 60 >"$T/out" 2>&1 || rc=$?
}
# chose PROGRAM RANKS: RANKS ranks must have chosen the program.
chose() {
	[ "$(grep -c "program AllReduce $1," "$T/out")" = "$2" ] || fail "not $1 on $2 ranks: $(cat "$T/out")"
}
for a in ring tree; do
	NCCL_ALGO=$a DFSHIM_TRACE=$T/trace job 3
	[ $rc = 0 ] || fail "NCCL_ALGO=$a: status $rc: $(cat "$T/out")"
	chose $a 3
	# The traces name the program too.
	"$B/dfshim" show "$T/trace" | grep -E " op .*AllReduce" | grep -vq " program AllReduce $a" && fail "NCCL_ALGO=$a: not in the trace of an operation"
	"$B/dfshim" show --json "$T/trace" | grep -q "\"program\": *\"AllReduce $a" || fail "NCCL_ALGO=$a: not in the records"
	"$B/dfshim" timeline -o "$T/timeline" "$T/trace" && grep -q "\"Program\": *\"AllReduce $a" "$T/timeline" || fail "NCCL_ALGO=$a: not in the timeline"
	rm -rf "$T/trace"
done
NCCL_ALGO='ring;allreduce:^ring,allpairs,hier' job 2
chose tree 2
# The log and the trace show the protocol that the lists allow.
while read -r var want; do
	NCCL_PROTO=$var DFSHIM_TRACE=$T/trace job 2
	[ $rc = 0 ] || fail "NCCL_PROTO=$var: status $rc: $(cat "$T/out")"
	[ "$(grep -c "slices a block, $want$" "$T/out")" = 2 ] || fail "NCCL_PROTO=$var is not $want: $(cat "$T/out")"
	"$B/dfshim" show "$T/trace" | grep AllReduce | grep -qE " by $want( |$)" || fail "NCCL_PROTO=$var: the trace does not say $want"
	rm -rf "$T/trace"
done <<'END'
LL LL
ll128,ll128 LL128
^LL,LL128 Simple
LL;allreduce:Simple Simple
Simple;allreduce:^Simple,LL128 LL
END
# Each process prints its measurements once. All ranks choose the same program.
job 3
[ "$(grep -c 'measured in' "$T/out")" = 3 ] || fail "not measured once: $(cat "$T/out")"
[ "$(grep -o 'program AllReduce [a-z-]*' "$T/out" | sort | uniq -c | wc -l)" = 1 ] || fail "ranks differ: $(cat "$T/out")"

# Each communicator has one set of costs, which is the same on all ranks. A communicator that is
# created after some work includes measured times.
LATENCY_AGAIN=1 job 3
[ $rc = 0 ] || fail "split: status $rc: $(cat "$T/out")"
grep -o 'agreed costs:.*' "$T/out" | sort | uniq -c | sort -k3 >"$T/costs"
[ "$(awk '{print $1}' "$T/costs" | tr '\n' ' ')" = "3 3 " ] || fail "ranks have different costs: $(cat "$T/costs")"
[ "$(grep -c 'factors ring 0.00 tree 0.00 allpairs 0.00 hier 0.00' "$T/costs")" = 1 ] ||
	fail "the second communicator has no factors, or the first has: $(cat "$T/costs")"

# An invalid value causes one warning with the variable, the value and the allowed values. With
# DFSHIM_STRICT it is an error.
for v in NCCL_ALGO=stars NCCL_PROTO=LL129; do
	export "${v%%=*}=${v#*=}"
	job 1
	[ $rc = 0 ] || fail "$v: status $rc: $(cat "$T/out")"
	[ "$(grep -c "WARN $v: .*allowed are " "$T/out")" = 1 ] || fail "$v: $(cat "$T/out")"
	DFSHIM_STRICT=1 job 1
	[ $rc != 0 ] || fail "$v is taken under DFSHIM_STRICT=1"
	unset "${v%%=*}"
done
NCCL_ALGO=nvls,ring job 2
grep -q 'nothing here for nvls' "$T/out" || fail "nvls: $(cat "$T/out")"
chose ring 2

# The rows of a file decide. Ranks with different files cannot form a communicator.
printf 'dftune 2\nAllReduce ranks 2 nodes 1 from 0 use tree blocks 1\n' >"$T/tree"
printf 'dftune 2\nAllReduce ranks 2 nodes 1 from 0 use ring blocks 1\n' >"$T/ring"
DFSHIM_TUNER=$T/tree job 2
chose tree 2
cat >"$T/differ" <<'END'
#!/bin/sh
[ "$RANK" = 0 ] && DFSHIM_TUNER=$T/tree || DFSHIM_TUNER=$T/ring
export DFSHIM_TUNER
exec "$@"
END
chmod +x "$T/differ"
export T
timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -n 2 -- "$T/differ" "$C/latency" --timeout $((20 * SLOW)) >"$T/out" 2>&1 &&
	fail "two tuner files in one job: $(cat "$T/out")"
grep -q 'different settings' "$T/out" || fail "two tuner files: $(cat "$T/out")"
printf 'dftune 1\n' >"$T/old"
DFSHIM_TUNER=$T/old job 1
grep -q "DFSHIM_TUNER=$T/old: .*version 1" "$T/out" || fail "an old file: $(cat "$T/out")"

# Bench runs every algorithm and the automatic choice on the daemon. The file that it writes can be
# read again.
unset DFSHIM_DEBUG
"$B/dfshim" algo bench --kind AllReduce,AlltoAll --nodes 2 --gpus 2 --sizes 1K,64K --rounds 2 --turns 1 --json \
	-o "$T/tune" >"$T/json" || fail "bench: status $?"
for a in ring tree allpairs hier auto; do
	[ "$(grep -c "\"kind\":\"AllReduce\",\"ranks\":4,\"nodes\":2,.*\"algo\":\"$a\"" "$T/json")" = 2 ] ||
		fail "bench of $a: $(cat "$T/json")"
done
[ "$(grep -c '"kind":"AlltoAll"' "$T/json")" = 6 ] || fail "bench of AlltoAll: $(cat "$T/json")"
grep -q '^AllReduce ranks 4 nodes 2 from 0 use ' "$T/tune" || fail "no row: $(cat "$T/tune")"
best=$(sed -n 's/^AllReduce ranks 4 nodes 2 from 0 use \([a-z]*\) .*/\1/p' "$T/tune")
case $best in allpairs) best='one-step' ;; hier) best=leaders ;; esac
DFSHIM_DEBUG=info DFSHIM_TUNER=$T/tune DFSHIM_HOST_NODE_DEVICES=2 job 4
chose "$best" 4
exit 0
