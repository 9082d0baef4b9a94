#!/bin/bash
# `make demo`: the main job, twice. Eight ranks issue the same eight all-reduces, each rank in
# another order. By NCCL's rules they block one another; under libdfshim.so they finish, with
# checked results. ITERS, RANKS, COLLS: the size of the job. TIMEOUT: seconds without progress until
# the control run is stopped.
set -u
cd "$(dirname "$0")/.." || exit 1
B=${B:-build}
ranks=${RANKS:-8} colls=${COLLS:-8} iters=${ITERS:-200} wait=${TIMEOUT:-3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for f in "$B/dfshim" "$B/libdfshim.so" "$B/libdfhost.so" "$B/libdfnccl.so" "$B/clients/disorder"; do
	[ -e "$f" ] || {
		echo "demo: $f was not built (see what 'make' says it left out)" >&2
		exit 1
	}
done
gpus=0
[ -e /dev/nvidiactl ] && gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
host=--host
where="$ranks CPU-thread devices (no GPU is needed)"
if [ "$gpus" -ge "$ranks" ]; then
	host=
	where="$ranks GPUs"
fi
job="clients/disorder --ranks $ranks --colls $colls --iters $iters --min 256 --max 1048576 --warmup"

cat <<EOT

  $ranks ranks, $colls all-reduces of 256 B to 1 MiB, $iters times. After a warm-up in the same
  order, every rank issues them in its own random order, on one stream:

      rank 0:  A  B  C  D ...        rank 0 runs A and waits for rank 1;
      rank 1:  B  A  D  C ...        rank 1 runs B and waits for rank 0: a cycle.

  1. By NCCL's rules (collectives run one after the other and cannot be preempted), on $where:

EOT
env -u DFSHIM_TRACE timeout -k 5 120 "$B/dfshim" run --host="$ranks" --rules nccl --timeout \
	"$wait" -- \
	"$B"/$job --json >"$out/nccl.json" 2>"$out/nccl.err"
nccl_rc=$?
grep -vE 'no GPU here' "$out/nccl.err" | sed '/^Unfinished operations/,$d' | head -30 |
	cut -c1-150 | sed 's/^/      /'
echo
echo "  2. The same program with the same orders, with libdfshim.so:"
echo
# shellcheck disable=SC2086 # empty or one word
env -u DFSHIM_TRACE DFSHIM_STATS="$out/stats" timeout -k 5 300 "$B/dfshim" run \
	${host:+--host=$ranks} -- \
	"$B"/$job --json >"$out/ours.json" 2>"$out/ours.err"
ours_rc=$?
cut -c1-160 "$out/ours.err" | grep -v 'no GPU here' | head -20 | sed 's/^/      /'
value() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^,\"}]*\).*/\1/p" "$2" 2>/dev/null | tail -1; }
sum() { # COUNTER: adds it up over all processes and ranks
	if command -v jq >/dev/null; then
		jq -s "[.[] | .$1 // 0] | add" "$out/stats" 2>/dev/null
	else
		value "$1" "$out/stats"
	fi
}

case $nccl_rc in
0) nccl_word="finished" ;;
1[0-3]) nccl_word="DEADLOCK" ;; # the verdict's status: ORDER, RESOURCE, SYNC, DATA
*) nccl_word="status $nccl_rc" ;;
esac
[ $ours_rc = 0 ] && ours_word="finished" || ours_word="FAILED ($ours_rc)"
verdict=$(grep -ohE '\b(ORDER|RESOURCE|SYNC|DATA|UNKNOWN)\b' "$out/nccl.err" | head -1)
seconds=$(value seconds "$out/ours.json") wrong=$(value wrong "$out/ours.json")
total=$((ranks * colls * iters))
cat <<EOT
                          NCCL's rules             dfshim
      ------------------  -----------------------  ---------------------------------------
EOT
row() { printf '      %-18s  %-23s  %s\n' "$1" "$2" "$3"; }
row "the job" "$nccl_word" "$ours_word"
row "verdict" "${verdict:--}" "-"
# A job that was stopped for a hang prints no results.
finished=$(value "done" "$out/nccl.json")
row "collectives done" "${finished:--}" \
	"$(value "done" "$out/ours.json") of $total, ${wrong:-?} wrong values"
row "time" "stopped at $wait s" "${seconds:-?} s"
row "preemptions" "-" "$(sum preemptions)"
row "daemon quits" "-" "$(sum quits)"
echo
if [ $ours_rc = 0 ] && [ "$nccl_word" = DEADLOCK ]; then
	echo "  Your own job:   $B/dfshim run -n 8 --trace /tmp/trace -- python train.py"
	echo
	exit 0
fi
echo "  The demonstration failed: the run by NCCL's rules ended with status $nccl_rc," \
	"the run with dfshim with $ours_rc."
sed 's/^/      /' "$out/nccl.json" "$out/ours.json"
exit 1
