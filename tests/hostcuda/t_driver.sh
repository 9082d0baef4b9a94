#!/bin/bash
# Runs p_driver.c with libdfhost.so preloaded, and without a preload, where libdfhost.so is found
# under NVIDIA's names.
set -eu
out=$(tests/hostcuda/preload.sh p_driver 2>&1) || {
	rc=$?
	echo "$out"
	exit $rc
}
[ "$(grep -c 'cuTexObjectDestroy is not served' <<<"$out")" = 1 ] || { echo "$out"; exit 1; }
DFSHIM_HOST_STUB=1 tests/hostcuda/preload.sh p_driver
for program in p_driver p_stream; do
	env LD_LIBRARY_PATH="$B/dfhost" ${SAN_RUNTIME:+LD_PRELOAD="${SAN_RUNTIME%:}"} "$B/tests/hostcuda/programs/$program"
done
