#!/bin/bash
# Description: in mode trace an outsider that records the network and connects to every port cannot block, end or accuse a job, and cannot hide its hang.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
command -v python3 >/dev/null || skip "no python3"
nodes=4
netns $nodes 1
ip addr add 10.77.0.200/24 dev lan0
master=29500
S=$SRC/tests/watch/stranger.py
export DFSHIM_TIMEOUT_MS=600000 DFSHIM_DEBUG=info

# rank R HANGS: starts the rank on its node.
rank() {
	HANGS=$2 GO=$T/go RANK=$1 WORLD_SIZE=$nodes LOCAL_RANK=0 MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
		on "$1" env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host timeout -k 5 "${LIMIT:-100}" "$C/hangs" --timeout "${QUIET:-60}" \
		>"$T/out.$1" 2>&1 &
	pid+=($!)
}
begin() {
	master=$((master + 1)) pid=()
	rm -f "$T"/out* "$T/go"
}
# ports: prints the ports at which the job's processes listen, except the client's own.
ports() {
	local i
	for ((i = 0; i < nodes; i++)); do
		on "$i" ss -Hltn | awk -v own=":$master" '{ print $4 }' | grep -v ":$master\$" | grep -F "$(ip4 "$i"):"
	done
}
# stands CASE R: waits until the rank has printed that it waits.
stands() {
	until grep -qs "^rank $2 stands" "$T/out.$2"; do
		kill -0 "${pid[$2]}" 2>/dev/null || fail "$1: rank $2: $(tail -n 20 "$T/out.$2")"
		sleep 0.05
	done
}
# Starts the outsider with these arguments. Its first line, in $line, says that it works.
stranger() {
	coproc STRANGER { python3 "$S" "$@"; }
	read -r line <&"${STRANGER[0]}"
}
# gone: ends the outsider. Stores its last line in $line and returns its status.
gone() {
	local p=$STRANGER_PID out=${STRANGER[0]} in=${STRANGER[1]}
	echo >&"$in"
	read -r line <&"$out"
	wait "$p"
}

# Record an undisturbed job.
begin
stranger record n0.0 "$T/heard"
[ "$line" = listens ] || skip "$line"
touch "$T/go"
for ((i = 0; i < nodes; i++)); do rank $i none; done
for p in "${pid[@]}"; do wait "$p" || fail "alone: status $?: $(tail -n 20 "$T"/out.*)"; done
gone

# Attacks while the job starts. The last rank joins during the attacks, and the job completes.
begin
for ((i = 0; i < nodes; i++)); do rank $i missing; done
for ((i = 0; i < nodes; i++)); do stands missing $i; done
# shellcheck disable=SC2046 # a list
stranger attack "$T/heard" $(ports)
[ "$line" = attacks ] || fail "start: the stranger: $line"
touch "$T/go"
for p in "${pid[@]}"; do wait "$p" || fail "start: status $?: $(tail -n 20 "$T"/out.*)"; done
gone || fail "start: the stranger: $line"
echo "at the start: $line; the job ended well"
! cat "$T"/out.* | grep -E '^[A-Z_]+: ' || fail "start: a verdict: $(tail -n 40 "$T"/out.*)"

# Attacks while the job runs and hangs. The hang is reported, and nothing else.
begin
for ((i = 0; i < nodes; i++)); do rank $i mismatch; done
for ((i = 0; i < nodes - 1; i++)); do stands hang $i; done
[ "$(ports | wc -l)" -ge $nodes ] || fail "hang: the processes listen at $(ports)"
# shellcheck disable=SC2046
stranger attack "$T/heard" $(ports)
[ "$line" = attacks ] || fail "hang: the stranger: $line"
touch "$T/go"
for ((i = 0; i < nodes; i++)); do
	until grep -q "^MISMATCH: .* differs in count" "$T/out.$i"; do
		kill -0 "${pid[i]}" 2>/dev/null || fail "hang: not named on node $i: $(tail -n 40 "$T"/out.*)"
		sleep 0.05
	done
done
gone || fail "hang: the stranger: $line"
echo "in a hang: $line; it was named on every node"
[ "$(cat "$T"/out.* | grep -cE '^[A-Z_]+: ' )" = $nodes ] || fail "hang: other verdicts: $(cat "$T"/out.*)"
kill "${pid[@]}" 2>/dev/null
wait
exit 0
