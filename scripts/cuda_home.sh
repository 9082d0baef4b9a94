#!/bin/sh
# Prints the folder of CUDA: CUDA_HOME, or the first folder with the headers of its runtime,
# including build/cuda, into which scripts/prereqs.sh installs the wheels.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
for d in "${CUDA_HOME-}" /usr/local/cuda /opt/cuda "$here/build/cuda"; do
	if [ -n "$d" ] && { [ "$d" = "${CUDA_HOME-}" ] ||
		[ -e "$d/include/cuda_runtime_api.h" ]; }; then
		echo "$d"
		exit 0
	fi
done
echo /usr/local/cuda
