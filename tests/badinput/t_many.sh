#!/bin/bash
# Description: 1,000 communicators; 10,000 collectives in flight; no growth of memory; allocations that fail; connections from outside the job that send garbage.
set -u
. "$SRC/tests/lib/clients.sh"
own_shm
unset DFSHIM_TRACE
many() {
	local c=$1
	shift
	MANY_CASE=$c host many "$@" --seed "$SEED"
}
case $B in */thread | */address) export MANY_AMOUNT=200 ;; esac
many comms --ranks 2
many comms --procs 4
MANY_AMOUNT=${MANY_AMOUNT:-10000} many outstanding --ranks 2
MANY_AMOUNT=${MANY_AMOUNT:-10000} many outstanding --procs 3
many garbage --ranks 3
many garbage --procs 3
case $B in
*/thread | */address) ;; # a sanitizer's own memory grows and needs address space
*)
	# The trace's ring and what the watchdog keeps of it are mapped while they fill. They must be
	# full after a third of the steps, so the ring is small. A split fills less than a cycle.
	DFSHIM_TRACE_MB=1 MANY_AMOUNT=6000 many cycles --ranks 2
	DFSHIM_TRACE_MB=1 MANY_AMOUNT=30000 many splits --procs 2
	DFSHIM_TRACE_MB=1 MANY_AMOUNT=60000 many operations --ranks 2
	many memory --ranks 2
	many memory --procs 2
	;;
esac
exit 0
