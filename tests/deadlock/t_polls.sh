#!/bin/bash
# Description: threads that poll, in replay and predict. A loop of queries that ended counts as a wait that is over. A loop that did not end hangs in the replay as in the job.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"

# run NAME SECONDS HANG_MS: executes a program by NCCL's rules with this time-out. Its traces are in
# $T/NAME.
run() {
	rm -rf "${T:?}/$1"
	env DFSHIM_TRACE="$T/$1" "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_HOST_QUEUES=64 DFSHIM_TIMEOUT_MS=$(($3 * SLOW)) \
		DFSHIM_TIMEOUT_ACTION=abort timeout -k 2 "${LIMIT:-60}" "$S" --timeout "$2" "$T/$1.txt" >"$T/$1.out" 2>&1
}

# Two collectives on different streams. Each thread polls until the first is over, so the two never
# run at the same time. Without the polls they may, and one slot does not suffice.
for poll in "spoll s1" "rec e s1; epoll e" ""; do
	cat >"$T/polled.txt" <<-END
		ranks 2
		procs
		cold
		comm A 0 1
		comm B 0 1
		0: AR A s1 n=4000000; ${poll:-K s3}; AR B s2 n=4000000
		1: AR A s1 n=4000000; ${poll:-K s3}; AR B s2 n=4000000
	END
	run polled $((60 * SLOW)) 60000 || fail "polled: $(cat "$T/polled.out")"
	"$B/dfshim" predict "$T/polled" >"$T/said" 2>&1 || fail "$poll: predict ends with $?: $(cat "$T/said")"
	side=$(grep -c "up to 2 collectives of one rank run at once" "$T/said")
	[ -z "$poll" ] || "$B/dfshim" show "$T/polled" | grep -q " polled " || fail "$poll: its end is not in the trace"
	[ "$side" = "$([ -n "$poll" ]; echo $?)" ] || fail "'$poll': predict says: $(cat "$T/said")"
done

# A thread polls for ever for an event that no operation completes. It is missing but not silent, so
# the report names the query, as soon as another process has examined it.
pids=()
trap 'for pid in "${pids[@]}"; do kill -KILL -- "-$pid"; done 2>/dev/null' EXIT
for mode in prevent trace; do
	e=("LD_PRELOAD=$B/libdfshim.so $B/libdfhost.so")
	[ $mode = prevent ] || e=("${NCCL_RULES[@]}")
	for loop in "ncclCommGetAsyncError:awatch A" "cudaStreamQuery:stuck s2; spoll s2" "cudaEventQuery:stuck s2; rec e s2; epoll e"; do
		name=$mode-${loop%%:*}
		cat >"$T/$name.txt" <<-END
			ranks 2
			procs
			comm A 0 1
			0: AR A s1 n=64; ssync s1
			1: ${loop#*:}
		END
		rm -rf "${T:?}/$name"
		env DFSHIM_TRACE="$T/$name" "${e[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((1500 * SLOW)) setsid "$S" --timeout 100 "$T/$name.txt" >"$T/$name.out" 2>&1 &
		pids+=($!)
	done
done
for mode in prevent trace; do
	for fn in ncclCommGetAsyncError cudaStreamQuery cudaEventQuery; do
		for ((i = 0; ; i++)); do
			"$B/dfshim" check "$T/$mode-$fn" >"$T/said" 2>&1
			! grep -qE "^(MISSING|SLOW): A#[0-9]+ waits for r1, which has not issued it: r1 is in .*\ba loop of $fn\b.* and has made no other NCCL or CUDA call for" "$T/said" || break
			[ $i -lt $((200 * SLOW)) ] || fail "mode $mode, a loop of $fn: $(head -1 "$T/said"); $(cat "$T/$mode-$fn.out")"
			sleep 0.2
		done
	done
done
for pid in "${pids[@]}"; do kill -KILL -- "-$pid"; done
pids=()
wait

for p in PL-01 PL-02 PL-07; do
	cp "$SRC/tests/deadlock/catalogue/$p.txt" "$T/$p.txt"
	run $p $((12 * SLOW)) 800
	want=$("$B/dfshim" check "$T/$p" | head -1 | cut -d: -f1)
	have=$(timeout -k 2 "${LIMIT:-60}" "$B/dfshim" replay --rules nccl --timeout $((2 + SLOW / 2)) "$T/$p" 2>"$T/err" | head -1)
	[ "$want" = DATA ] || fail "$p: recorded as $want"
	[ "${have%%:*}" = "$want" ] || fail "$p: replayed as: $have $(cat "$T/err")"
done
exit 0
