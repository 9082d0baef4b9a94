#!/bin/bash
# Description: the speed between nodes is measured when a communicator is created, all ranks agree
# on it, and it decides which programs are used; a slow network and a fast one, on all nodes and on
# one; nodes of unequal size, ranks assigned in turns, children; a path that delivers nothing.
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 3 1
. "$SRC/tests/net/hosts.sh"
export DFSHIM_DEBUG=info DFSHIM_NET=tcp

# deal NODES RANKS CLIENT ARGS...: runs a process for each rank, assigned to the nodes in turns.
# Rank r prints to $T/out<r>.
deal() {
	local nodes=$1 n=$2 r client=$3
	shift 3
	rm -f "$T"/out*
	pid=()
	master=$((master + 1))
	for ((r = 0; r < n; r++)); do
		RANK=$r WORLD_SIZE=$n LOCAL_RANK=$((r / nodes)) MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
			on $((r % nodes)) timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/$client" "$@" \
			--timeout "${QUIET:-60}" >"$T/out$r" 2>&1 &
		pid[r]=$!
	done
	end_hosts || fail "$client on $n ranks: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
}
# Prints each measured path of the log once, with its count. All ranks of a communicator must have
# the same figures.
ways() { sed -nE 's/.*(the slowest way between .* MB\/s).*/\1/p' "$T"/out* | sort | uniq -c; }
# speed N: prints the MB/s of the only communicator, which has N ranks.
speed() {
	[ "$(ways | wc -l)" = 1 ] && [ "$(ways | awk '{ print $1 }')" = "$1" ] || fail "ranks have not agreed: $(ways)"
	ways | sed -E 's/.* ([0-9]+) MB\/s$/\1/'
}
# programs FILE: writes the programs of a job, in the order of their first use, to $T/FILE. All
# ranks must have the same.
programs() {
	local r
	for r in "$T"/out*; do
		sed -nE 's/.* ([A-Za-z]+ of [0-9]+ elements on [0-9]+ ranks: program [^,]*),.*/\1/p' "$r" >"$T/chosen"
		[ "$r" = "$T/out0" ] && cp "$T/chosen" "$T/$1"
		cmp "$T/$1" "$T/chosen" || fail "ranks have chosen different programs: $(diff "$T/$1" "$T/chosen")"
	done
	[ -s "$T/$1" ] || fail "nothing was chosen: $(cat "$T/out0")"
}
slow() { on "$1" tc qdisc replace dev eth0 root tbf rate "$2" burst 4kb latency 2s; }
check() { deal "$1" "$2" collcheck --sample $((60 / SLOW + 8)) --only AllReduce --seed "$SEED"; }

# unless_busy TEXT: fails, or skips on a busy machine, where every network is slow and a short
# measurement shows little.
unless_busy() {
	local load
	read -r load _ </proc/loadavg
	[ "${load%.*}" -lt $((3 * $(nproc))) ] || skip "$1: at a load of $load nobody can tell"
	fail "$1"
}
# measured NODES RANKS FROM TO: runs jobs until one has measured between FROM and TO MB/s. Every job
# must be right, and its ranks must agree. Sets mb.
measured() {
	local try
	for ((try = 0; try < 8; try++)); do
		check "$1" "$2"
		mb=$(speed "$2") || { echo "$mb" && exit 1; }
		[ "$mb" -lt "$3" ] || [ "$mb" -gt "$4" ] || return 0
		echo "try $try: $mb MB/s, not $3 to $4"
		sleep 0.5
	done
	unless_busy "$mb MB/s were measured, not $3 to $4"
}

# At this machine's speed; at 2 MB/s on all nodes; at 2 MB/s on one of three nodes, which decides.
# Different figures may give the same programs if the first measurement included a wait for a
# processor, so this is repeated.
for ((n = 0; n < 5; n++)); do
	measured 2 6 10 1000000
	fast=$mb
	programs fast
	for i in 0 1; do slow $i 16mbit; done
	measured 2 6 1 4
	programs slow
	echo "MB/s: $fast, with 2 $mb"
	cmp -s "$T/fast" "$T/slow" || break
	for i in 0 1; do on $i tc qdisc del dev eth0 root; done
done
[ $n -lt 5 ] || unless_busy "the programs are the same: $(sort "$T/fast" | uniq -c)"
grep -q 'program AllReduce hierarchical' "$T/slow" || fail "no hierarchy over a slow network: $(cat "$T/slow")"
on 0 tc qdisc del dev eth0 root
measured 3 5 1 4
programs unequal
on 1 tc qdisc del dev eth0 root

# With figures set by the user nothing is measured, and the programs follow the figures.
DFSHIM_NET_SPEED=20:2 check 2 6
ways | grep -q . && fail "measured in spite of figures: $(ways)"
programs by_hand
DFSHIM_NET_SPEED=1:50000:0.2 check 2 6
programs by_hand_fast
cmp -s "$T/by_hand" "$T/by_hand_fast" && fail "figures by hand change nothing: $(cat "$T/by_hand")"

# Child communicators do not measure known paths again, unless the machine was too busy before. All
# ranks agree.
for ((n = 0; n < 5; n++)); do
	LATENCY_AGAIN=1 LATENCY_MAX=8 LATENCY_ROUNDS=1 deal 2 4 latency
	[ "$(ways | awk '$1 % 4' | wc -l)" = 0 ] || fail "ranks have not agreed: $(ways)"
	[ "$(grep -ho '; 0 ways measured' "$T"/out* | wc -l)" != 4 ] || break
done
[ $n -lt 5 ] || fail "what is known is measured again: $(grep -h 'ways measured' "$T"/out*)"
deal 3 6 splitcheck --seed "$SEED"

# While the communicator is created, a path lets only small frames through. The measurement ends
# soon and counts the path as slow. When the path is restored, the job uses it. Slices of the
# measurement that arrive later are not counted.
rm "$T"/out*
for i in 0 1; do net_drop_larger $i 0 1000; done
DFSHIM_STATS=$T/stats start_hosts 2 collcheck --sample 5 --seed "$SEED"
said 'the slowest way between 2 nodes'
for i in 0 1; do net_heal $i; done
end_hosts || fail "a way that was healed: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
[ "$(speed 2)" -le 1 ] || fail "nothing large came through, and yet: $(ways)"
ms=$(sed -nE 's/.*the slowest way .* measured in ([0-9]+)\..*/\1/p' "$T/out0")
[ "$ms" -lt $((10000 * SLOW)) ] || fail "took $ms ms"
[ "$(grep -c '"net_dropped": 0,' "$T/stats")" = 2 ] || fail "slices arrived twice: $(cat "$T/stats")"
exit 0
