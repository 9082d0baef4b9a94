#!/bin/bash
# Measures gains and costs of dfshim.deft: real training of three small networks on 4 ranks, one on
# each node (a network namespace). Each node has two links, which tc's token bucket slows so that
# plain DDP has a coverage rate of 2 on the first. The second is 1.65 times slower. Each link has
# one group of gloo.
#
#   time       the time of an iteration: plain DDP, exact gating, DeFT on one and two links, and the
#              planner's expectation. The network computes, and naps of 270 ms in all stand for the
#              computation of a larger network, so that two processors are enough.
#   accuracy   the accuracy beside plain DDP's, from equal seeds, with and without the preserver, by
#              schedules of CR 2. There are no naps, and the links are not slowed. Seed 1 trains on
#              the 4 ranks. Each other seed trains on one rank with the batches of 4.
#
# SEEDS (5), ITERATIONS (mlp 2000, conv 1000, gpt 3000), NETS (mlp conv gpt), PARTS (time train),
# OPTIMIZER (adamw, or sgd, momentum, momentum_late). mlp and conv need scikit-learn, for its
# digits. gpt reads Python's help texts. All runs are in $T/runs, one line of JSON each, and
# scripts/plot_deft.py draws them. TORCH_PYTHON: a Python with PyTorch.
set -u
cd "$SRC" || exit 1
P=${TORCH_PYTHON:-$B/venv/bin/python}
[ -x "$P" ] || P=python3
"$P" -c 'import torch.distributed' 2>/dev/null || { echo "# deft: no PyTorch: TORCH_PYTHON names a Python that has it"; exit 77; }
. tests/lib/netns.sh
netns 4 2
nets=${NETS:-mlp conv gpt}
"$P" -c 'import sklearn.datasets' 2>/dev/null || {
	echo "# deft: no scikit-learn: only gpt is trained"
	nets=gpt
}
export PYTHONPATH=$SRC/interpose/python${PYTHONPATH:+:$PYTHONPATH} DFSHIM_LIB=$B OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' PYTHONDONTWRITEBYTECODE=1
rm -f "$T"/store.* "$T/runs"

# ranks WHAT NET ARGS...: runs deft.py on all nodes
ranks() {
	local rank pid=() bad=0
	for rank in 0 1 2 3; do
		start "$rank" "$P" tests/bench/deft.py "$1" "$T" "$2" "$rank" "${@:3}"
		pid+=($!)
	done
	for rank in 0 1 2 3; do
		wait "${pid[rank]}" || bad=1
	done
	return $bad
}
# slowed BIT/S: sets the rate of the links of every node. 0 removes the limit.
slowed() {
	local node
	for node in 0 1 2 3; do
		if [ "$1" = 0 ]; then
			on "$node" tc qdisc del dev eth0 root
			on "$node" tc qdisc del dev eth1 root
		else
			on "$node" tc qdisc add dev eth0 root tbf rate "$1" burst 4000 limit 1000000
			on "$node" tc qdisc add dev eth1 root tbf rate $(($1 * 100 / 165)) burst 4000 limit 1000000
		fi
	done
}
for net in $nets; do
	for part in ${PARTS:-time train}; do
		case $part in
		time)
			slowed "$("$P" tests/bench/deft.py rate "$net")"
			ranks time "$net" || exit 1
			slowed 0
			;;
		train) ranks train "$net" "${SEEDS:-5}" "${ITERATIONS:-0}" || exit 1 ;;
		esac
	done
done
"$P" tests/bench/deft.py figures "$T"
