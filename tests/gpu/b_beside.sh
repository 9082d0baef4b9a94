#!/bin/bash
# A program's own kernels beside an idle dfshim must lose nothing; beside one with small operations,
# little more than one multiprocessor's share. Runs the same program with and without the preload,
# alternately.
set -u
. "$SRC/tests/gpu/lib.sh"
P=$B/tests/gpu/beside
[ -x "$P" ] || skip "built without nvcc"
part=($((1073741824 / SLOW / 4096 * 4096)) "$(few 200000)" "$(few 40)")
for _ in 1 2 3; do
	for with in idle busy; do
		BESIDE_NCCL=$with timeout 60 env "${card_env[@]}" "$P" "${part[@]}" >>"$T/$with"
	done
	timeout 60 "$P" "${part[@]}" >>"$T/without"
done
median() { awk -v k="$2" '$2 == k {print $3}' "$1" | sort -g | awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'; }
figure() {
	awk -v n="$1" -v v="$(median "$T/$2" "$3")" -v p="$(median "$T/without" "$3")" -v most="$4" 'BEGIN {
		if (v == "" || p == "") printf "BENCH %s - us target <=%s UNMEASURED\n", n, most
		else printf "BENCH %s %s us peer alone %s ratio %.4f target <=%s %s\n", n, v, p, v / p, most, v / p <= most + 0 ? "ok" : "MISS"
	}'
}
for k in arithmetic memory; do
	figure gpu.beside.$k idle $k 1.01
	figure gpu.beside.busy.$k busy $k 1.03
done
