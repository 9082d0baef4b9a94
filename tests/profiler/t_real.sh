#!/bin/bash
# The installed libnccl with the profiler plugin, as far as it goes without a GPU: all versions' tables are there, and where NCCL starts it takes the newest.
set -u
. "$SRC/tests/profiler/job.sh"
for lib in "$B"/venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2 "$("$SRC/scripts/cuda_home.sh")"/lib{64,}/libnccl.so.2; do
	[ ! -e "$lib" ] || break
done
[ -e "$lib" ] || { echo "no libnccl.so.2 here" && exit 77; }
# The names that this NCCL asks for are the names that the plugin has.
for name in $(grep -aoE 'ncclProfiler_v[0-9]+' "$lib" | sort -u); do
	nm -D --defined-only "$plugin" | grep -qw "$name" || fail "$lib asks for $name"
done
grep -aq ncclProfiler_v "$lib" || { echo "this NCCL has no profiler interface" && exit 77; }
[ $bad != 0 ] || echo "the same names as in $lib"
exit $bad
