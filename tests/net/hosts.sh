# Runs a job with one process on each node of tests/lib/netns.sh. Sourced after netns.
# shellcheck shell=bash
master=29500

# start_hosts N CLIENT ARGS...: starts the job in the background. Node i prints to $T/out<i>; its
# process id is in pid[i].
start_hosts() {
	local n=$1 client=$2 i
	shift 2
	pid=()
	master=$((master + 1))
	# Remove the last job's output now, before the new processes create theirs.
	rm -f "$T"/out*
	for ((i = 0; i < n; i++)); do
		RANK=$i WORLD_SIZE=$n LOCAL_RANK=0 MASTER_ADDR=$(ip4 0) MASTER_PORT=$master DFSHIM_DEBUG=info \
			on "$i" timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/$client" "$@" \
			--timeout "${QUIET:-60}" >"$T/out$i" 2>&1 &
		pid[i]=$!
	done
}
# Waits for all processes. Returns 0 if all succeeded. Their statuses are in rcs.
end_hosts() {
	local i worst=0
	rcs=()
	for i in "${!pid[@]}"; do
		wait "${pid[i]}"
		rcs[i]=$?
		[ "${rcs[i]}" = 0 ] || worst=1
	done
	return $worst
}
hosts() {
	start_hosts "$@"
	end_hosts || fail "$*: status ${rcs[*]}: $(tail -n 30 "$T"/out*)"
}

# data_port: waits until a job of two nodes has connections for data. Sets `at` to the node that
# accepted them, `port` to their port, nr_data to their number. Each node's log names the port of
# the other one, and one of the two has accepted the connections. Then both nodes have issued a
# collective. (A rank that waits in ncclCommInitRank gets an error for a fault, and no verdict.)
data_port() {
	local n
	for ((n = 0; n < 600; n++)); do
		for at in 0 1; do
			port=$(sed -nE 's/.* device 0 is joined with device 0 of .*, [^ ]*:([0-9]+)\) over .*/\1/p' "$T/out$((1 - at))" | tail -1)
			nr_data=$([ -z "$port" ] || on "$at" ss -Htn state established "sport = :$port" | wc -l)
			[ "${nr_data:-0}" = 0 ] || ! issued || return
		done
		sleep 0.05
	done
	fail "nobody takes data: $(cat "$T"/out*)"
}
issued() { grep -q ': program ' "$T/out0" && grep -q ': program ' "$T/out1"; }
# process_of NODE: prints the id of the process of disorder on that node.
process_of() {
	local p
	for p in $(pgrep -f "^$C/disorder "); do
		[ "$(ip netns identify "$p")" != "node$1" ] || echo "$p"
	done | head -n 1
}
# Resets the connections that carry data, if there are any.
cut_data() { on "$at" ss -K state established "sport = :$port" >/dev/null 2>&1; }
# said PATTERN: waits until both nodes of a job have printed it, at most a minute.
said() {
	local n
	for ((n = 0; n < 1200; n++)); do
		grep -q "$1" "$T/out0" && grep -q "$1" "$T/out1" && return
		sleep 0.05
	done
}
