#!/bin/bash
# Description: on emulated nodes hierarchical programs over sockets give the same results, with threads and processes.
set -u
. "$SRC/tests/lib/clients.sh"
# The default choice depends on the machine. So NCCL_ALGO requests hierarchies, and later jobs use
# the default.
export NCCL_ALGO=hier
DFSHIM_HOST_NODE_DEVICES=2 host collcheck --ranks 4 --sample $((150 / SLOW)) --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=3 host collcheck --ranks 6 --procs 6 --sample $((100 / SLOW)) --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=1 host collcheck --ranks 3 --sample $((100 / SLOW)) --seed "$SEED"
# Nodes of unequal size: 2 + 1, 5 + 3, 3 + 3 + 1.
DFSHIM_HOST_NODE_DEVICES=2 host collcheck --ranks 3 --procs 3 --sample $((100 / SLOW)) --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=5 host collcheck --ranks 8 --sample $((100 / SLOW)) --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=3 host collcheck --ranks 7 --procs 7 --sample $((50 / SLOW)) --seed "$SEED"
unset NCCL_ALGO
DFSHIM_HOST_NODE_DEVICES=3 host collcheck --ranks 6 --sample $((100 / SLOW)) --seed "$SEED"
DFSHIM_HOST_DEVICES=16 DFSHIM_HOST_NODE_DEVICES=4 host collcheck --ranks 16 --sample $((30 / SLOW)) --seed "$SEED"
DFSHIM_HOST_DEVICES=16 DFSHIM_HOST_NODE_DEVICES=8 host collcheck --ranks 16 --procs 16 --sample $((20 / SLOW)) --seed "$SEED"
for bytes in 8 1048576; do
	for per in 5 3; do
		for a in hier auto; do
			unset NCCL_ALGO
			[ $a = auto ] || export NCCL_ALGO=$a
			LATENCY_MIN=$bytes LATENCY_MAX=$bytes LATENCY_ROUNDS=2 DFSHIM_DEBUG=info DFSHIM_HOST_NODE_DEVICES=$per \
				timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -n 8 -- "$C/latency" --timeout 60 >"$T/out" 2>&1 ||
				fail "nodes of $per: $(cat "$T/out")"
			[ "$(grep -o 'program AllReduce [a-z-]*' "$T/out" | sort | uniq -c | wc -l)" = 1 ] ||
				fail "ranks differ: $(cat "$T/out")"
			[ $bytes = 8 ] && program=leaders || program=hierarchical
			[ $a = auto ] || [ "$(grep -c "program AllReduce $program" "$T/out")" -ge 8 ] ||
				fail "$bytes bytes on nodes of $per are not by the program $program: $(cat "$T/out")"
		done
	done
done
DFSHIM_HOST_NODE_DEVICES=2 host p2pcheck --ranks 4 --seed "$SEED"
DFSHIM_HOST_NODE_DEVICES=1 host disorder --ranks 2 --iters 20 --seed "$SEED"
exit 0
