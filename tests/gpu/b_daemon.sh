#!/bin/bash
# Times the daemon's own steps on the GPU, and compares a large AllReduce of two ranks on one GPU
# with the copy bandwidth. For each byte of the message, a rank of the ring reads its input, the
# slots, and its input again for the sum, and writes the slots and its output. That makes 2 bytes
# read and 2 written, or 8 bytes for both ranks. The copy counts reads and writes, too.
set -u
. "$SRC/tests/gpu/lib.sh"
P=$B/tests/gpu/daemon
[ -x "$P" ] || skip "built without nvcc"
timeout 120 "$P" $((536870912 / (SLOW > 1 ? 64 : 1))) >"$T/steps" || cat "$T/steps"
value() { awk -v k="$1" '$1 == "daemon:" && $2 == k {print $3}' "$T/steps"; }
bench() { # NAME VALUE UNIT LIMIT: a value above the limit is a MISS
	awk -v n="$1" -v v="$2" -v u="$3" -v l="$4" 'BEGIN {
		if (v == "") printf "BENCH %s - %s target <=%s UNMEASURED\n", n, u, l
		else printf "BENCH %s %.3f %s target <=%s %s\n", n, v, u, l, v <= l ? "ok" : "MISS"
	}'
}
us() { awk -v a="${1:-}" -v b="${2:-0}" 'BEGIN {if (a != "") print (a + b) / 1000}'; }
bench gpu.daemon.sqe_cqe "$(us "$(value sqe)" "$(value cqe)")" us 3
bench gpu.daemon.context "$(us "$(value context)")" us 0.3
bench gpu.daemon.relaunch "$(us "$(value relaunch)")" us 10
echo "# loading a context from pinned memory: $(us "$(value cold)") us"
echo "# a look at an empty submission ring: $(us "$(value empty)") us"

size=$((268435456 / (SLOW > 1 ? 64 : 1)))
LATENCY_SMALL=1 LATENCY_ROUNDS=5 LATENCY_MAX=$size timeout 100 env "${card_env[@]}" "$C/latency" --procs 2 --timeout 60 \
	>"$T/allreduce" 2>"$T/err" || tail -3 "$T/err"
# For two ranks the bus bandwidth is the message's size divided by its time.
busbw=$(awk -v b=$size '$1 == "latency:" && $2 == b {print $6}' "$T/allreduce" | tail -1)
awk -v v="$busbw" -v c="$(value copy)" 'BEGIN {
	if (v == "" || c == "") print "BENCH gpu.allreduce.2.copyshare - ratio target >=0.5 UNMEASURED"
	else printf "BENCH gpu.allreduce.2.copyshare %.3f ratio peer copy %s ratio %.3f target >=0.5 %s\n", 8 * v / c, c, 8 * v / c, (8 * v / c >= 0.5) ? "ok" : "MISS"
}'
