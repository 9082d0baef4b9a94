#!/bin/bash
# Compares two machines (network namespaces, tests/lib/netns.sh) with 1 and 2 processes each, on CPU
# threads, over sockets, with Open MPI (btl tcp, within a machine shared memory) and Gloo
# (PyTorch's). Also measures the share of iperf3's rate that a send has, and a job through link
# flaps beside one without.
#
#   net.allreduce.*.latency.8B, .busbw.*   AllReduce. Peer: the better of the others. CPU time: of
#                                          all ranks
#   net.send.share.*                       a send of LATENCY_MAX (64 MiB) beside iperf3 with as many
#                                          streams, the second on a slow link
#   net.flaps                              the time of a job through 20 link flaps, beside none
#
# Runs that are compared take turns, PAIRS times (5), and each goes first every other time. A figure
# is the median of the pairs' ratios, followed by the smallest and the largest. RANKS: "2 4".
# TORCH_PYTHON: a Python that has PyTorch. CONGESTION: TCP's congestion control between the two, for
# all programs (default: the machine's).
set -u
. "$SRC/tests/lib/netns.sh"
netns 2 1
cd "$SRC" || exit 1
unset DFSHIM_TRACE DFSHIM_STATS LD_PRELOAD
export LATENCY_CPU=1 LATENCY_ROUNDS=${LATENCY_ROUNDS:-5} LATENCY_MAX=${LATENCY_MAX:-67108864} OMP_NUM_THREADS=1
control=/proc/sys/net/ipv4/tcp_congestion_control
for i in 0 1; do
	[ -z "${CONGESTION-}" ] || on $i tee $control <<<"$CONGESTION" >/dev/null || {
		echo "net: CONGESTION=$CONGESTION: a namespace may have $(cat /proc/sys/net/ipv4/tcp_allowed_congestion_control)"
		exit 1
	}
done
echo "# net: TCP's congestion control: $(on 0 cat $control)"
pairs=${PAIRS:-5} most=$LATENCY_MAX
py=${TORCH_PYTHON:-$B/venv/bin/python}
master=29600

peers=()
if command -v mpicc >/dev/null && command -v mpirun >/dev/null && mpicc -O2 -o "$T/mpi_allreduce" tests/bench/mpi_allreduce.c; then
	peers+=(openmpi)
	# mpirun runs this script in place of a login to another machine: the script enters the
	# namespace. Each namespace gets a host name of its own. Otherwise Open MPI takes them for
	# one machine.
	cat >"$T/agent" <<-'END'
		#!/bin/bash
		node=node$((${1##*.} - 1))
		shift
		exec ip netns exec "$node" unshare -u bash -c 'hostname "$0" && eval "$*"' "$node" "$@"
	END
	chmod +x "$T/agent"
else
	echo "# net: no Open MPI"
fi
if "$py" -c 'import torch.distributed as d; raise SystemExit(not d.is_gloo_available())' 2>/dev/null; then
	peers+=(gloo)
else
	echo "# net: no Gloo: TORCH_PYTHON names a Python with PyTorch"
fi

# each RANKS CMD...: starts a process for each rank, half of them on each node, and prints their
# output
each() {
	local n=$1 i p=() bad=0
	shift
	master=$((master + 1))
	for ((i = 0; i < n; i++)); do
		RANK=$i WORLD_SIZE=$n LOCAL_RANK=$((i % (n / 2))) MASTER_ADDR=$(ip4 0) MASTER_PORT=$master GLOO_SOCKET_IFNAME=eth0 \
			on $((i / (n / 2))) timeout -k 5 "${LIMIT:-100}" "$@" 2>>"$T/err" &
		p+=($!)
	done
	for i in "${p[@]}"; do
		wait "$i" || bad=1
	done
	return $bad
}
ours() { each "$1" "$B/dfshim" run --host -- "$B/clients/latency" --timeout 60; }
gloo() { each "$1" "$py" tests/bench/gloo_allreduce.py; }
openmpi() {
	# Processes of the other node use this machine's processors, too. Open MPI cannot know that.
	OMPI_MCA_mpi_yield_when_idle=$(($1 > $(nproc))) OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 on 0 timeout -k 5 "${LIMIT:-100}" mpirun --bind-to none --mca pml ob1 \
		--mca btl tcp,vader,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca orte_keep_fqdn_hostnames 1 \
		--mca plm_rsh_agent "$T/agent" -x OMPI_MCA_mpi_yield_when_idle -x LATENCY_CPU -x LATENCY_ROUNDS -x LATENCY_MAX \
		--host "$(ip4 0):$(($1 / 2)),$(ip4 1):$(($1 / 2))" -n "$1" "$T/mpi_allreduce" 2>>"$T/err"
}
# run WHO RANKS PAIR: prints lines WHO PAIR BYTES us GB/s, and lines WHO.cpu PAIR BYTES us us with
# the CPU time of all ranks
run() {
	"$1" "$2" | awk -v who="$1" -v i="$3" '
		$1 == "latency:" && $3 == "bytes" {print who, i, $2, $4, $6}
		$1 == "cpu:" {cpu[$2] += $4}
		END {for (b in cpu) print who ".cpu", i, b, cpu[b], cpu[b]}'
}
# series FILE RANKS: runs all programs in turns. The order is reversed every time.
series() {
	local i all=(ours "${peers[@]}") k
	: >"$1"
	for ((i = 0; i < pairs; i++)); do
		for ((k = 0; k < ${#all[@]}; k++)); do
			run "${all[$((i % 2 ? ${#all[@]} - 1 - k : k))]}" "$2" $i >>"$1"
		done
	done
}
# figure NAME FILE BYTES COLUMN UNIT OP TARGET [PEERS]: compares with the one of PEERS that has the
# best median
figure() {
	local name=$1 file=$2 bytes=$3 column=$4 unit=$5 op=$6 target=$7 suffix=${8-} best=none
	best=$(for p in "${peers[@]}"; do
		awk -v p="$p$suffix" -v b="$bytes" -v c="$column" '$1 == p && $3 == b {print $c}' "$file" | sort -g |
			awk -v p="$p" '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)], p}'
	done | sort -g | if [ "$op" = ">=" ]; then tail -n 1; else head -n 1; fi)
	best=${best#* }
	[ "$name" = "${name%latency.8B}" ] || [[ " ${peers[*]} " != *" openmpi "* ]] || best=openmpi
	awk -v ours="ours$suffix" -v p="${best:-none}$suffix" -v b="$bytes" -v c="$column" '
		$3 == b && ($1 == ours || $1 == p) {v[$1, $2] = $c; n = $2 > n ? $2 : n}
		END {for (i = 0; i <= n; i++) if (((ours, i) in v) && v[p, i] > 0) print v[ours, i] / v[p, i], v[ours, i], v[p, i]}' "$file" |
		sort -g | ratios "$name" "$unit" "$op" "$target" "${best:-none}"
}
# ratios NAME UNIT OP TARGET PEER: prints the median of sorted lines RATIO OURS THEIRS
ratios() {
	awk -v n="$1" -v u="$2" -v op="$3" -v t="$4" -v p="$5" -v pairs="$pairs" '{r[NR] = $1; a[NR] = $2; b[NR] = $3}
		END {
			if (NR < pairs) { printf "BENCH %s - %s target %s%s UNMEASURED\n", n, u, op, t; exit }
			m = int((NR + 1) / 2)
			ok = t == "-" || (op == "<=" ? r[m] <= t : r[m] >= t)
			printf "BENCH %s %s %s peer %s %s ratio %.3f target %s%s %s (%.2f to %.2f)\n",
				n, a[m], u, p, b[m], r[m], t == "-" ? "" : op, t, ok ? "ok" : "MISS", r[1], r[NR]
		}'
}
for n in ${RANKS:-2 4}; do
	LATENCY_MAX=8 LATENCY_ROUNDS=41 series "$T/small$n" "$n"
	figure "net.allreduce.$n.latency.8B" "$T/small$n" 8 4 us "<=" 1.0
	[ "$most" -ge 1048576 ] || continue
	series "$T/large$n" "$n"
	for b in 1048576 4194304 16777216 67108864; do
		[ $b -le "$most" ] || continue
		figure "net.allreduce.$n.busbw.$((b >> 20))MiB" "$T/large$n" $b 5 GB/s ">=" 1.0
		figure "net.allreduce.$n.cpu.$((b >> 20))MiB" "$T/large$n" $b 4 us "<=" - .cpu
	done
done

# A send is measured beside iperf3, which has a stream for each slice: at full speed, and with a
# link that limits both.
iperf() {
	start 1 timeout 60 iperf3 -s -1 -p 5201 >/dev/null
	until [ -n "$(on 1 ss -Htln 'sport = :5201')" ]; do sleep 0.02; done
	on 0 timeout 60 iperf3 -c "$(ip4 1)" -p 5201 -t 2 -J | jq '.end.sum_received.bits_per_second / 8e9'
	wait $!
}
sends() { LATENCY_SEND=1 LATENCY_ROUNDS=3 ours 2 | awk '$1 == "latency:" && $3 == "bytes" {v = $6} END {print v}'; }
share() {
	local i a b
	for ((i = 0; i < pairs; i++)); do
		if [ $((i % 2)) = 0 ]; then a=$(sends) b=$(iperf); else b=$(iperf) a=$(sends); fi
		awk -v a="$a" -v b="$b" 'BEGIN {if (a > 0 && b > 0) printf "%.4f %.4f %.4f\n", a / b, a, b}'
	done | sort -g | ratios "net.send.share.$1" GB/s ">=" 0.9 iperf3
}
if [ "$most" -ge 1048576 ] && command -v iperf3 >/dev/null; then
	share unlimited
	for i in 0 1; do on $i tc qdisc add dev eth0 root tbf rate 2gbit burst 1mb latency 20ms; done
	share 2Gbit
	for i in 0 1; do on $i tc qdisc del dev eth0 root; done
fi

# A job whose results are checked runs through link flaps of 50 ms, and without them.
job() {
	local t0=$EPOCHREALTIME i
	each 2 "$B/dfshim" run --host -- "$B/clients/disorder" --iters "${ITERS:-1500}" --colls 4 --max 262144 --seed 1 \
		--timeout 60 >>"$T/job" || return
	echo "$EPOCHREALTIME $t0" | awk '{print $1 - $2}'
}
flaps() {
	local i
	for ((i = 0; i < 20; i++)); do
		sleep 0.2
		link_down 1
		sleep 0.05
		link_up 1
	done
}
for ((i = 0; i < pairs; i++)); do
	for k in 0 1; do
		if [ $(((i + k) % 2)) = 0 ]; then
			without=$(job)
		else
			flaps &
			f=$!
			through=$(job)
			wait $f
		fi
	done
	awk -v a="$through" -v b="$without" 'BEGIN {if (a > 0 && b > 0) printf "%.4f %.4f %.4f\n", a / b, a, b}'
done | sort -g | ratios net.flaps s "<=" - none
