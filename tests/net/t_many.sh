#!/bin/bash
# Description: 16 nodes of 8 ranks, as 128 processes, 16 and one: right results, with bounded
# numbers of descriptors, threads and megabytes for each rank.
set -u
. "$SRC/tests/lib/clients.sh"
[ "$SLOW" = 1 ] || skip "128 processes of a sanitizer's build need more memory than most machines have"
RANKS=128
export DFSHIM_HOST_DEVICES=$RANKS DFSHIM_HOST_NODE_DEVICES=8
LIMIT=200 QUIET=100

# look SESSION: updates fds, threads and mb, the maxima over the processes of the session.
look() {
	local pid open key value _
	for pid in $(pgrep -s "$1" -f -- "--ranks $RANKS"); do
		open=("/proc/$pid/fd"/*)
		[ ${#open[@]} -le $fds ] || fds=${#open[@]}
		while read -r key value _; do
			case $key in
			Threads:) [ "$value" -le $threads ] || threads=$value ;;
			VmHWM:) [ $((value / 1024)) -le $mb ] || mb=$((value / 1024)) ;;
			esac
		done 2>/dev/null <"/proc/$pid/status"
	done
}

# many PROCESSES SAMPLE: runs collcheck in this number of processes.
many() {
	local here=$((RANKS / $1)) fds=0 threads=0 mb=0 job
	(
		ulimit -Sn $((1024 + here * 64)) 2>/dev/null || exit 77
		exec setsid timeout -k 5 "$LIMIT" "$B/dfshim" run --host -- "$C/collcheck" --ranks $RANKS --procs "$1" \
			--sample "$2" --largest 10000 --seed "$SEED" --timeout "$QUIET"
	) >"$T/out.$1" 2>&1 &
	job=$!
	while kill -0 $job 2>/dev/null; do
		look $job
		sleep 0.5
	done
	wait $job
	case $? in
	0) ;;
	77) echo "$1 processes: not so many descriptors here" && return ;;
	*) fail "$1 processes: $(tail -n 40 "$T/out.$1")" ;;
	esac
	grep '^collcheck: OK' "$T/out.$1" || fail "$1 processes: $(cat "$T/out.$1")"
	echo "$1 processes, $here ranks each: at most $fds descriptors, $threads threads, $mb MB"
	# Two descriptors for each peer of each rank, and some of the process's own.
	[ $fds -gt 0 ] && [ $fds -le $((64 + here * 2 * RANKS)) ] || fail "$1 processes: $fds descriptors"
	[ $mb -le $((64 + here * 64)) ] || fail "$1 processes: $mb MB"
	[ $threads -le $((16 + here * 8)) ] || fail "$1 processes: $threads threads"
}
many 128 3
many 16 8
many 1 3
exit 0
