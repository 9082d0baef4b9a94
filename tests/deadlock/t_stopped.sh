#!/bin/bash
# Description: a process is alive but does not answer when a hang is judged. The verdict waits for its answer, but not for ever.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
export DFSHIM_TRACE=$T/tr DFSHIM_BACKEND=host DFSHIM_HOST_DEVICES=4 DFSHIM_TIMEOUT_ACTION=abort
# The cycle passes through rank 2. Without its answer the others must not report another cause.
cat >"$T/program" <<'END_OF_PROGRAM'
prog DATA
ranks 3
procs
comm c0 0 1 2
comm c1 0 1 2
0: AR c0 nb0; ssync nb0; AR c1 nb1; ssync nb1
1: AR c0 nb0; ssync nb0; AR c1 nb1; ssync nb1
2: AR c1 nb1; ssync nb1; AR c0 nb0; ssync nb0
END_OF_PROGRAM
verdict() { grep -m1 -oE '^[A-Z_]+: r.*|^[A-Z_]+: .*' "$T/out"; }

# start SECONDS: runs the job with this time-out until it hangs, and stops the process of rank 2
# ($stopped). Returns 1 if the verdict was printed before that.
start() {
	local i
	rm -rf "$T/tr"
	mkdir "$T/tr"
	DFSHIM_TIMEOUT_MS=$(($1 * 1000)) LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
		timeout -k 5 "${LIMIT:-150}" "$S" --timeout 120 "$T/program" >"$T/out" 2>&1 &
	job=$!
	for ((i = 0; i < 600; i++)); do
		"$B/dfshim" check "$T/tr" 2>"$T/err" | grep -q '^DATA: r' && break
		sleep 0.1
	done
	[ $i -lt 600 ] || fail "no circle: $(cat "$T/out" "$T/err")"
	stopped=$(grep -lzxF "DFSHIM_TRACE=$T/tr" /proc/[0-9]*/environ 2>/dev/null | xargs grep -slzx "RANK=2" | cut -d/ -f3)
	kill -STOP "$stopped" || fail "no process of rank 2: $(cat "$T/out")"
	[ -z "$(verdict)" ]
}
# Rank 2 stays silent for the time-out and three seconds, which is less than the other processes
# wait.
for ms in 4 8 16 32; do
	start $((ms * SLOW))
	early=$?
	SECONDS=0
	sleep $((ms * SLOW + 3))
	said=$(verdict)
	late=$((SECONDS > ms * SLOW + 7))
	kill -CONT "$stopped"
	wait $job
	rc=$?
	[ $early = 0 ] && [ $late = 0 ] && break
done
[ $early = 0 ] && [ $late = 0 ] || fail "this machine is too busy for a time-out of $ms s"
[ -z "$said" ] || fail "said while a process that knows better is stopped: $said"
[ $rc = 3 ] || fail "status $rc: $(cat "$T/out")"
[[ $(verdict) == DATA:* ]] || fail "and then: $(cat "$T/out")"
echo "waited for: $(verdict)"

# If rank 2 never continues, the others end nevertheless.
for ms in 4 8 16 32; do
	start $((ms * SLOW)) && break
	kill -KILL "$stopped"
	wait $job
	[ $ms != 32 ] || fail "this machine is too busy for a time-out of $ms s"
done
for ((i = 0; i < 800; i++)); do
	[ -z "$(verdict)" ] || break
	sleep 0.1
done
said=$(verdict)
for ((i = 0; i < 300 && $(grep -c '^--- DATA hung' "$T/out") < 2; i++)); do
	sleep 0.1
done
kill -KILL "$stopped"
wait $job
[ -n "$said" ] || fail "nothing is said while a process is stopped for ever: $(cat "$T/out")"
[[ $said != DATA:* ]] || fail "known without asking: $said"
grep -q "the process of rank 2 (pid $stopped) is alive, but does not answer" "$T/out" || fail "not named: $(cat "$T/out")"
echo "not for ever: $said"
exit 0
