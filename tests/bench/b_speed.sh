#!/bin/bash
# Measures the benefit of the choice of programs over nodes: AllReduce on nodes (network
# namespaces), to which ranks are dealt in turns. The chosen program is compared with each program
# that NCCL_ALGO can ask for, on networks of several speeds.
#
#   speed.RATE.NODESxRANKS.SIZE   the time of the chosen program. Peer: the best of the others
#
# RATES ("unlimited 1gbit 20mbit"). LAYOUTS: nodes x ranks on each ("2x3 3x1"). All take turns,
# TURNS times (3), and a figure is the median. LATENCY_MAX (4096). Each node has a processor of this
# machine for itself, as far as there are enough.
set -u
. "$SRC/tests/lib/netns.sh"
netns 3 1
cd "$SRC" || exit 1
unset DFSHIM_TRACE DFSHIM_STATS LD_PRELOAD
export LATENCY_SMALL=1 LATENCY_MAX=${LATENCY_MAX:-4096} LATENCY_ROUNDS=1 DFSHIM_DEBUG=info DFSHIM_NET=tcp
master=29700

# job NODES RANKS: prints rank 0's lines "BYTES us PROGRAM" by size
job() {
	local nodes=$1 n=$(($1 * $2)) r p=() bad=0
	master=$((master + 1))
	for ((r = 0; r < n; r++)); do
		RANK=$r WORLD_SIZE=$n LOCAL_RANK=$((r / nodes)) MASTER_ADDR=$(ip4 0) MASTER_PORT=$master \
			on $((r % nodes)) taskset -c $((r % nodes % $(nproc))) timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$B/clients/latency" --timeout 60 >"$T/rank$r" 2>&1 &
		p+=($!)
	done
	for r in "${p[@]}"; do
		wait "$r" || bad=1
	done
	[ $bad = 0 ] || { tail -n 5 "$T"/rank* && exit 1; }
	grep -o 'the slowest way.*MB/s' "$T/rank0" >"$T/way"
	sed -nE 's/.*AllReduce of ([0-9]+) elements .*program AllReduce ([^,]*),.*/program \1 \2/p; s/^latency: ([0-9]+) bytes ([0-9.]+) us.*/time \1 \2/p' "$T/rank0" |
		awk '$1 == "program" {name[$2 * 4] = $3} $1 == "time" {print $2, $3, name[$2]}'
}

for rate in ${RATES:-unlimited 1gbit 20mbit}; do
	for i in 0 1 2; do
		[ "$rate" = unlimited ] || on $i tc qdisc replace dev eth0 root tbf rate "$rate" burst 64kb latency 2s
	done
	for layout in ${LAYOUTS:-2x3 3x1}; do
		: >"$T/all"
		for ((turn = 0; turn < ${TURNS:-3}; turn++)); do
			for a in auto ring tree allpairs hier; do
				unset NCCL_ALGO
				[ $a = auto ] || export NCCL_ALGO=$a
				job "${layout%x*}" "${layout#*x}" | sed "s/^/$a /" >>"$T/all"
				[ $a != auto ] || [ $turn != 0 ] || sed "s/^/# $rate $layout: /" "$T/way"
			done
		done
		sort -k2,2n -k1,1 -k3,3n "$T/all" | awk -v net="$rate.$layout" '
			function flush() { if (n) { mid[who] = v[int((n + 1) / 2)]; if (who == "auto") chosen = prog } n = 0 }
			function line(  a, best) {
				flush()
				for (a in mid) if (a != "auto" && (best == "" || mid[a] < mid[best])) best = a
				if (best == "") return
				r = mid["auto"] / mid[best]
				printf "BENCH speed.%s.%d %.0f us peer %s %.0f ratio %.2f target <=1.2 %s (%s;", net, size, mid["auto"], best, mid[best], r, r <= 1.2 ? "ok" : "MISS", chosen
				for (a in mid) if (a != "auto") printf " %s %.0f", a, mid[a]
				print ")"
				delete mid
			}
			$2 != size { line(); size = $2; who = "" }
			$1 != who { flush(); who = $1 }
			{ v[++n] = $3; prog = $4 }
			END { line() }'
	done
	for i in 0 1 2; do
		[ "$rate" = unlimited ] || on $i tc qdisc del dev eth0 root
	done
done
