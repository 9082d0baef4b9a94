#!/bin/sh
# preload.sh PROGRAM [ARGS...]: runs a program of programs/ with libdfhost.so preloaded. NCCL=1:
# also with libdfnccl.so, so that streams share hardware queues.
set -eu
host=$B/libdfhost.so
if [ ! -e "$host" ]; then
	echo "skipped: built without the CUDA headers"
	exit 77
fi
program=$B/tests/hostcuda/programs/$1
shift
exec env LD_PRELOAD="${SAN_RUNTIME-}$host${NCCL:+ $B/libdfnccl.so}" "$program" "$@"
