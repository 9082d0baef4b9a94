#!/bin/bash
# Runs a command on a busy machine: one busy loop for each processor runs beside it. LOOPS: the
# number of loops in all.
set -u
nr=${LOOPS:-$(nproc)}
loops=()
trap 'kill "${loops[@]}" 2>/dev/null' EXIT
trap 'exit 143' TERM INT
for ((i = 0; i < nr; i++)); do
	# A loop ends by itself if this script is killed.
	while kill -0 $$ 2>/dev/null; do
		for ((k = 0; k < 100000; k++)); do :; done
	done &
	loops+=($!)
done
"$@"
