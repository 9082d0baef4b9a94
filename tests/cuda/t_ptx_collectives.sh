#!/bin/bash
# Description: the daemon's compiled kernel, with all its threads, under collectives of many kinds
# on the test driver: protocols, blocks, threads, processes, devices, targets, weak memory; results
# are right and the emulator finds no fault and no race.
# Limit: 600 s
set -u
. "$SRC/tests/cuda/dryrun.sh"
compiled
n=$((${WHOLE:+30}0 + 20))
for proto in LL LL128 Simple; do
	on_ptx NCCL_PROTO=$proto DFSHIM_THREADS=64 collcheck --ranks 2 --sample $((2 * n)) --seed "$SEED"
	on_ptx NCCL_PROTO=$proto FAKE_CUDA_WEAK=1 DFSHIM_THREADS=96 DFSHIM_BLOCKS=2 FAKE_CUDA_SMS=2 collcheck --ranks 3 --sample $n --seed "$SEED"
	on_ptx NCCL_PROTO=$proto FAKE_CUDA_WEAK=1 DFSHIM_THREADS=64 DFSHIM_BLOCKS=3 collcheck --procs 3 --sample $n --seed "$SEED"
	on_ptx NCCL_PROTO=$proto DFSHIM_THREADS=512 collcheck --ranks 2 --sample $((n / 2)) --seed "$SEED"
done
# With small slots most slices go by reference, between ranks of one device and between devices.
# A sample may have no message that is large enough for that, so `disorder` has the last word.
for devices in 1 3; do
	small="NCCL_PROTO=Simple FAKE_CUDA_WEAK=1 FAKE_CUDA_DEVICES=$devices DFSHIM_THREADS=64 DFSHIM_SLOT_KB=1 DFSHIM_SLOTS=2"
	# shellcheck disable=SC2086 # settings without spaces
	on_ptx $small collcheck --ranks 3 --sample $n --seed "$SEED"
	# shellcheck disable=SC2086
	on_ptx $small disorder --ranks 3 --colls 4 --iters 1 --max 65536 --seed "$SEED"
	grep -q '"by_reference": [1-9]' "$T/stats" || fail "$devices devices: no slice by reference: $(cat "$T/stats")"
done
# Messages large enough for all blocks.
on_ptx FAKE_CUDA_SMS=16 DFSHIM_THREADS=128 disorder --ranks 2 --colls 4 --iters 1 --max 4194304 --seed "$SEED"
grep -q '"blocks": 4' "$T/stats" || fail "not four blocks: $(cat "$T/stats")"
on_ptx NCCL_ALGO=Tree DFSHIM_THREADS=64 collcheck --ranks 4 --sample $n --seed "$SEED"
# Memory of another device, of another process, and of the host.
on_ptx FAKE_CUDA_DEVICES=2 DFSHIM_THREADS=64 collcheck --ranks 2 --sample $n --seed "$SEED"
on_ptx FAKE_CUDA_DEVICES=2 FAKE_CUDA_NO_P2P=1 DFSHIM_THREADS=64 collcheck --procs 2 --sample $n --seed "$SEED"
on_ptx DFSHIM_P2P=0 DFSHIM_THREADS=64 collcheck --procs 2 --sample $n --seed "$SEED"
# The code for older and for newer devices.
on_ptx "FAKE_CUDA_PTX=$B/kernels/daemon.80.ptx" DFSHIM_THREADS=64 collcheck --ranks 2 --sample $n --seed "$SEED"
[ ! -f "$B/kernels/daemon.100.ptx" ] ||
	on_ptx "FAKE_CUDA_PTX=$B/kernels/daemon.100.ptx" DFSHIM_THREADS=64 collcheck --ranks 2 --sample $n --seed "$SEED"
exit 0
