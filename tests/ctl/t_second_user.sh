#!/bin/bash
# Description: another user of the machine, and another machine, attack the control plane of a running job: all names known, recorded greetings, wrong secrets, 1,000 idle connections, names and ports of dead processes taken. The job is right, and its memory and log are bounded.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 3 1
. "$SRC/tests/net/hosts.sh"
unset DFSHIM_TRACE
export DFSHIM_PORTS=5000-5009
CTL_VERSION=$(sed -n 's/^#define DF_CTL_VERSION //p' "$SRC/runtime/ctl/ctl.h")
export CTL_VERSION SEED

second_user() { on "$1" python3 "$SRC/tests/ctl/second_user.py" "${@:2}"; }
second_user 0 try 2>/dev/null || skip "no process of another user can be made here"

# Two processes on each of two nodes. The control plane uses unix sockets inside a node and TCP
# between nodes.
start_job() {
	local i
	pid=()
	master=$((master + 1))
	for i in 0 1 2 3; do
		RANK=$i WORLD_SIZE=4 LOCAL_RANK=$((i % 2)) MASTER_ADDR=$(ip4 0) MASTER_PORT=$master DFSHIM_DEBUG=info \
			on $((i / 2)) timeout -k 5 "${LIMIT:-200}" "$B/dfshim" run --host -- "$C/disorder" "$@" --colls 12 --comms 4 --max 4096 \
			--seed "$SEED" --timeout "${QUIET:-120}" >"$T/out$i" 2>&1 &
		pid[i]=$!
	done
}
processes() { pgrep -f "^$C/disorder " | tr '\n' ' '; }
# Prints the largest resident size of a process of the job, in kB.
rss() {
	local p
	for p in $(processes); do awk '/^VmRSS/ { print $2 }' "/proc/$p/status" 2>/dev/null; done | sort -n | tail -n 1
}

# record NAME: starts recording in the background.
record() {
	rm -f "$T/hears"
	second_user 0 record eth0 "$T/hears" >"$T/$1" &
	recorder=$!
	until [ -e "$T/hears" ]; do kill -0 $recorder || fail "nothing can be recorded"; sleep 0.05; done
}
# The greetings of a first job are recorded. They must be useless in the next job.
record first
start_job --iters 20
end_hosts || fail "alone: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
rm "$T/hears"
wait $recorder
grep -q '"flows": \[\[' "$T/first" || fail "no greeting was recorded: $(cat "$T/first")"

attackers=()
attack() { # NAME NODE FILE TARGET...
	second_user "$2" attack "${@:4}" <"$3" >"$T/$1" 2>"$T/$1.err" &
	attackers+=("$1:$!")
}
began=$SECONDS
attack stale-near 0 "$T/first" near "$(ip4 0)"
attack stale-far 2 "$T/first" "$(ip4 0)" "$(ip4 1)"
record second
start_job --iters 1000000000 --until "$T/attacked"
until issued && grep -q 'answering ncclras' "$T/out0" "$T/out1"; do kill -0 "${pid[0]}" || fail "no collective: $(tail -n 5 "$T"/out*)"; sleep 0.05; done
first=$(rss)
# shellcheck disable=SC2046 # words
second_user 0 look $(processes) >"$T/look" 2>&1 || fail "another user could read: $(cat "$T/look")"
wait $recorder
grep -q '"flows": \[\[' "$T/second" || fail "no greeting was recorded: $(tail -n 5 "$T"/out*)"
attack near 0 "$T/second" near "$(ip4 0)"
attack far 2 "$T/second" "$(ip4 0)" "$(ip4 1)"
most=0
# Each attacker makes all its attacks, or ends because an attack has succeeded.
all_attacked() {
	local a
	for a in "${attackers[@]}"; do
		[ -s "$T/${a%:*}" ] || ! kill -0 "${a#*:}" 2>/dev/null || return 1
	done
}
while [ -n "$(processes)" ]; do
	now=$(rss)
	most=$((${now:-0} > most ? now : most))
	! all_attacked || touch "$T/attacked"
	sleep 0.2
done
end_hosts || fail "the job was disturbed: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
for a in "${attackers[@]}"; do
	wait "${a#*:}" || fail "${a%:*}: $(cat "$T/${a%:*}" "$T/${a%:*}.err")"
	[ -s "$T/${a%:*}" ] || fail "${a%:*}: the job ended before all attacks were made"
	echo "${a%:*}: $(tail -n 1 "$T/${a%:*}") rounds"
done
echo "resident: $first kB, $most kB at most; RAS: $(head -n 1 "$T/look")"
# RAS's answer needs the traces of all processes, 16 MiB each. A sanitizer needs memory of its own.
[ "$SLOW" != 1 ] || [ $((most - first)) -lt 131072 ] || fail "memory grew from $first kB to $most kB"
for i in 0 1 2 3; do
	n=$(grep -c 'dropped a connection' "$T/out$i")
	[ "$n" -le $((2 + (SECONDS - began) / 60)) ] || fail "$n lines about strangers: $(grep 'dropped a' "$T/out$i")"
done
cat "$T"/out? | grep -q 'dropped a connection' || fail "no process says that it dropped a connection"

# A process dies. Another user takes its names and ports. The survivors see the death and send
# nothing to these names over a unix socket.
mkfifo "$T/end"
second_user 0 squat <"$T/end" >"$T/squat" 2>&1 &
squatter=$!
exec 5>"$T/end"
until grep -q looks "$T/squat"; do kill -0 $squatter || fail "squat: $(cat "$T/squat")"; sleep 0.05; done
SURVIVOR_HOW=kill SURVIVOR_MADE=1 SURVIVOR_PROC=1 SURVIVOR_US=500000 SURVIVOR_ROUNDS=100000 on 0 timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host \
	--grace "$(seconds 200)" -n 3 -- "$C/survivor" --ranks 6 --timeout $((40 * SLOW)) >"$T/out" 2>"$T/err"
exec 5>&-
wait $squatter || fail "squat: $(cat "$T/squat")"
read -r unix tcp told_unix told_tcp < <(tail -n 1 "$T/squat")
echo "taken: $unix names, $tcp ports; told $told_unix and $told_tcp bytes"
[ "$unix" -gt 0 ] && [ "$tcp" -gt 0 ] || fail "no name or port was taken: $(cat "$T/squat")"
[ "$told_unix" = 0 ] || fail "another user was told $told_unix bytes"
[ "$(grep -c 'rank [23] .* has died: its communicators end' "$T/err")" = 2 ] || fail "not told once by each survivor: $(cat "$T/err")"
exit 0
