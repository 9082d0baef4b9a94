#!/bin/bash
# The litmus programs: assumptions of the design, as facts of this machine's GPU and driver.
# Results, one JSON line for each fact, go to $RESULTS/litmus.jsonl.
set -u
export RESULTS=${RESULTS:-$SRC/build/results}
case $RESULTS in /*) ;; *) RESULTS=$SRC/$RESULTS ;; esac
mkdir -p "$RESULTS"
bad=0 ran=0
: >"$RESULTS/litmus.jsonl"
for p in "$B"/tests/gpu/litmus_*; do
	case $p in *.*) continue ;; esac
	[ -x "$p" ] || continue
	# A program that hangs is killed together with its context, and the next ones are run.
	# litmus_sync and litmus_queues take the longest.
	timeout -k 5 "${EACH:-110}" "$p"
	rc=$?
	[ $rc = 77 ] && continue
	echo "{\"test\":\"ended\",\"program\":\"$(basename "$p" | sed s/litmus_//)\",\"status\":$rc}" >>"$RESULTS/litmus.jsonl"
	ran=$((ran + 1))
	[ $rc = 0 ] || {
		echo "$(basename "$p"): status $rc"
		bad=1
	}
done
if [ $ran = 0 ]; then
	echo "skipped: no GPU, or built without nvcc"
	exit 77
fi
exit $bad
