#!/bin/bash
# Description: random programs whose ranks are processes that exit without destroying their communicators. No rank reports an error, on one node and on several.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
R=$B/tests/deadlock/generator/random
[ -x "$S" ] && [ -x "$R" ] || skip "the interpreter is not built here"
PROGRAMS=$((60 / SLOW))
export DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=4 DFSHIM_TIMEOUT_MS=$((20000 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort
unset DFSHIM_TRACE

# exiting SEED: prints the program of the seed with an exit at the end of each rank; some ranks
# start late. Fails if the program does not complete by dfshim's rules, has several threads in a
# rank, or waits for flags.
exiting() {
	"$R" --print "$1" | awk -v seed="$1" '
		BEGIN { srand(seed) }
		NR == 1 && !/ ours 0 / { exit 1 }
		/^[0-9]+\.[1-9]/ || /(^|[ ;:])(hw|hbar|stuck|spin|destroy|fin|fork|ninit|split|shrink) / { exit 1 }
		/^#/ { next }
		/^[0-9]+\.0:/ {
			late = rand() < 0.3 ? " sleep 800;" : ""
			how = rand() < 0.5 ? "exit" : "quit"
			sub(/\.0:/, ":" late)
			$0 = $0 "; dsync; " how
		}
		{ print }
		/^ranks / { print "procs" }'
}

# one SEED FILE DEVICES: executes a program with DEVICES devices a node. Prints to
# FILE.out.DEVICES.bad if it fails.
one() {
	local out=$2.out.$3 rc
	DFSHIM_HOST_NODE_DEVICES=$3 LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
		timeout -k 5 "${LIMIT:-60}" "$S" --timeout $((15 * SLOW)) "$2" >"$out" 2>&1
	rc=$?
	if [ $rc != 0 ] || grep -v 'the exit of this process waits' "$out" | grep -qE '^[A-Z_]+: |NCCL error|hung|DFSHIM WARN'; then
		echo "program $1, $3 devices a node, status $rc:" && cat "$2" "$out"
	fi >"$out.bad"
}
seed=$((SEED % 100000)) nr=0
while [ $nr -lt $PROGRAMS ]; do
	seed=$((seed + 1))
	exiting $seed >"$T/$seed.txt" || continue
	nr=$((nr + 1))
	for devices in 4 2 1; do
		[ "$(jobs -rp | wc -l)" -lt 6 ] || wait -n
		one $seed "$T/$seed.txt" $devices &
	done
done
# Ranks 0 and 1 exit at the same time. One of them is the other's neighbour in the control plane.
# Ranks 2 and 3 go on.
cat >"$T/goodbye" <<-END
	prog goodbye
	ranks 4
	procs
	comm c0 0 1 2 3
	comm c1 0 1
	comm c2 2 3
	comm c3 1 2 3
	0: recv c1 1 nb2 n=4; recv c0 3 nb1 n=4; RS c1 nb0 n=4 in=x0 out=x0; dsync; exit
	1: send c1 0 nb2 n=4; RS c1 nb0 n=4 in=x0 out=x0; dsync; quit
	2: sleep 800; RS c2 nb0 n=1000; dsync; quit
	3: send c0 0 nb1 n=4; RS c2 nb0 n=1000; dsync; exit
	end
END
for ((i = 0; i < 60 / SLOW; i++)); do
	[ "$(jobs -rp | wc -l)" -lt 6 ] || wait -n
	cp "$T/goodbye" "$T/goodbye$i.txt"
	one "goodbye" "$T/goodbye$i.txt" 1 &
done
wait
cat "$T"/*.bad >"$T/bad"
[ ! -s "$T/bad" ] || fail "$(cat "$T/bad")"
echo "$nr programs to seed $seed, each three times"
exit 0
