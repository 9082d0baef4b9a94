#!/bin/bash
# A program's own kernels beside an idle dfshim lose nothing: the same program with and without the preload, in turns.
set -u
. "$SRC/tests/gpu/lib.sh"
P=$B/tests/gpu/beside
[ -x "$P" ] || skip "built without nvcc"
part=($((1073741824 / SLOW / 4096 * 4096)) "$(few 200000)" "$(few 40)")
: >"$T/with"
: >"$T/without"
for _ in 1 2 3; do
	BESIDE_NCCL=1 timeout 60 env "${card_env[@]}" "$P" "${part[@]}" >>"$T/with"
	timeout 60 "$P" "${part[@]}" >>"$T/without"
done
median() { awk -v k="$2" '$2 == k {print $3}' "$1" | sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }
for k in arithmetic memory; do
	awk -v n="gpu.beside.$k" -v v="$(median "$T/with" $k)" -v p="$(median "$T/without" $k)" 'BEGIN {
		if (v == "" || p == "") printf "BENCH %s - us target <=1.01 UNMEASURED\n", n
		else printf "BENCH %s %s us peer alone %s ratio %.4f target <=1.01 %s\n", n, v, p, v / p, v / p <= 1.01 ? "ok" : "MISS"
	}'
done
