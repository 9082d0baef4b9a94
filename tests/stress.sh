#!/bin/bash
# `make stress`: the main job again and again, with new seeds and shapes, until MINUTES (default 10) are over.
# Every failure is printed with the command that repeats it.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build} minutes=${MINUTES:-10}
end=$(($(date +%s) + minutes * 60)) n=0 bad=0
seed=${SEED:-$(date +%s)}
echo "stress: SEED=$seed, $minutes minutes"
while [ "$(date +%s)" -lt $end ]; do
	RANDOM=$((seed + n))
	ranks=$((RANDOM % 7 + 2)) colls=$((RANDOM % 20 + 1)) streams=$((RANDOM % 8 + 1)) comms=$((RANDOM % colls + 1))
	args=(--ranks "$ranks" --colls "$colls" --streams "$streams" --comms "$comms" --iters $((RANDOM % 40 + 5))
		--min $((4 << RANDOM % 10)) --max $((4096 << RANDOM % 10)) --seed $((seed + n)) --timeout 60)
	[ $((RANDOM % 2)) = 0 ] && args+=(--mix)
	[ $((RANDOM % 4)) = 0 ] && args+=("--sync=$((RANDOM % 4 + 1))")
	[ $((RANDOM % 3)) = 0 ] && args+=(--wait sync)
	[ $((RANDOM % 3)) = 0 ] && args+=(--procs "$ranks")
	if ! out=$(timeout 180 "$B/dfshim" run --host -- "$B/clients/disorder" "${args[@]}" 2>&1); then
		bad=$((bad + 1))
		echo "stress: FAILED: $B/dfshim run --host -- $B/clients/disorder ${args[*]}"
		echo "$out" | tail -20
	fi
	n=$((n + 1))
done
echo "$((n - bad)) passed, $bad failed, 0 skipped"
[ $bad = 0 ]
