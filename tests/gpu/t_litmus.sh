#!/bin/bash
# The litmus programs: what the design relies on, as facts of this machine's GPU and driver. Results, one JSON line a
# fact, go to $RESULTS/litmus.jsonl.
set -u
export RESULTS=${RESULTS:-$SRC/build/results}
case $RESULTS in /*) ;; *) RESULTS=$SRC/$RESULTS ;; esac
mkdir -p "$RESULTS"
bad=0 ran=0
: >"$RESULTS/litmus.jsonl"
for p in "$B"/tests/gpu/litmus_*; do
	case $p in *.*) continue ;; esac
	[ -x "$p" ] || continue
	timeout 290 "$p"
	rc=$?
	[ $rc = 77 ] && continue
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
