#!/bin/sh
# Runs a program of this folder with libdfhost.so preloaded: preload.sh PROGRAM [ARGS...]. A sanitizer's
# own library must come before ours.
set -eu
host=$B/libdfhost.so
if [ ! -e "$host" ]; then
	echo "skipped: built without the CUDA headers"
	exit 77
fi
san=$(ldd "$host" | awk '/lib[at]san/ { print $3 }')
program=$B/tests/hostcuda/$1
shift
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
exec env LD_PRELOAD="${san:+$san }$host" "$program" "$@"
