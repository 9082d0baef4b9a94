#!/bin/bash
# Description: the daemon's compiled kernel, with all its threads, under the clients on the test
# driver: operations in disorder, preempted, with the kernel quitting and being launched again;
# messages, communicators, graphs, streams.
set -u
. "$SRC/tests/cuda/dryrun.sh"
compiled
job=(--colls 8 --max 65536 --seed "$SEED" --iters $((${WHOLE:+1}0 + 4)))
for t in 64 512; do
	on_ptx DFSHIM_THREADS=$t disorder --ranks 4 "${job[@]}"
done
on_ptx DFSHIM_THREADS=64 FAKE_CUDA_WEAK=1 FAKE_CUDA_SMS=8 disorder --ranks 4 --mix --streams 3 "${job[@]}"
on_ptx DFSHIM_THREADS=64 disorder --ranks 4 --procs 4 --sync "${job[@]}"
# While an operation waits for its stream, the kernel polls the word in GPU memory and never the one
# in host memory, unless the driver has no device memory for it (DF_NEAR_BYTES).
for no in 0 32768; do
	on_ptx DFSHIM_THREADS=64 FAKE_CUDA_LOOKS="$T/looks" FAKE_CUDA_NO_BYTES=$no streamcheck
	read -r _ words _ looks <"$T/looks"
	echo "words that streams write: $words; looks of kernels at them in host memory: $looks"
	[ "$words" -gt 0 ] && [ $((looks > 0)) = $((no > 0)) ] || fail "$looks looks at $words words; no allocation of $no bytes"
done
# The kernel quits and is launched again all the time.
on_ptx DFSHIM_THREADS=96 FAKE_CUDA_WEAK=1 DFSHIM_QUIT_US=50 disorder --ranks 4 "${job[@]}"
on_ptx DFSHIM_THREADS=64 p2pcheck --ranks 3 --seed "$SEED"
on_ptx DFSHIM_THREADS=64 FAKE_CUDA_WEAK=1 p2pcheck --procs 3 --seed "$SEED"
on_ptx DFSHIM_THREADS=64 splitcheck --procs 4
on_ptx DFSHIM_THREADS=64 graphcheck --ranks 2
on_ptx DFSHIM_THREADS=64 STREAM_ONLY=elapsed streamcheck
# Aborts and destroys while operations run; more operations than places for contexts (ways and
# lines).
on_ptx DFSHIM_THREADS=64 nbcheck --ranks 2
on_ptx DFSHIM_THREADS=64 MANY_CASE=comms MANY_AMOUNT=8 many --ranks 4
on_ptx DFSHIM_THREADS=64 MANY_CASE=outstanding MANY_AMOUNT=100 many --ranks 2
if [ -n "${WHOLE-}" ]; then
	passes t_clients t_disorder t_collectives
	no_faults "the tests of a GPU"
fi
exit 0
