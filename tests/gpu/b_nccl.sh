#!/bin/bash
# AllReduce of 2 and 4 ranks on one GPU, each in a process: dfshim compared with NCCL's own kernels
# on the same ranks. NCCL permits several ranks on a GPU from 2.30 on, with
# NCCL_MULTI_RANK_GPU_ENABLE=1. Medians; both are run alternately, twice.
set -u
. "$SRC/tests/gpu/lib.sh"
export LATENCY_SMALL=1 LATENCY_ROUNDS=${LATENCY_ROUNDS:-11} LATENCY_MAX=${LATENCY_MAX:-268435456}

# Prints version and path of the newest NCCL: the system's, or a Python package's.
newest_nccl() {
	{
		ldconfig -p | sed -n 's/.*libnccl\.so\.2 .*=> //p'
		python3 -c 'import nvidia.nccl; print(*(p + "/lib/libnccl.so.2" for p in nvidia.nccl.__path__), sep="\n")'
		find /usr/local /opt -name 'libnccl.so.2' 2>/dev/null
	} 2>/dev/null | sort -u | while read -r f; do
		v=$(strings -n 8 "$f" 2>/dev/null | grep -om1 'NCCL version [0-9.]*' | cut -d' ' -f3)
		[ -n "$v" ] && echo "$v $f"
	done | sort -V | tail -1
}
read -r version nccl < <(newest_nccl)
echo "# peer: NCCL ${version:-not found} ${nccl-}"
able=
[ -n "${version-}" ] && [ "$(printf '%s\n2.30\n' "$version" | sort -V | head -1)" = 2.30 ] && able=1

# BOUND: seconds for everything. Measurements for which no time is left are UNMEASURED. The lines
# for each number of ranks are printed as soon as they are known.
end=$((SECONDS + ${BOUND:-480}))
run() { # FILE COMMAND...: for at most BOUND / 5, or the time that is left
	local to=$1 left=$((end - SECONDS)) most=$((${BOUND:-480} / 5))
	shift
	[ "$left" -gt "$most" ] && left=$most
	[ "$left" -gt 2 ] || return 0
	timeout -k 2 "$left" "$@" >>"$to" 2>"$to.err" || tail -3 "$to.err"
}

field() { awk -v b="$2" -v f="$3" '$1 == "latency:" && $2 == b {print $f}' "$1" | sort -g | tail -1; }
for n in 2 4; do
	: >"$T/ours.$n"
	: >"$T/nccl.$n"
	for _ in 1 2; do
		run "$T/ours.$n" env "${card_env[@]}" "$C/latency" --procs $n --timeout 40
		[ -z "$able" ] || run "$T/nccl.$n" env NCCL_MULTI_RANK_GPU_ENABLE=1 \
			"LD_LIBRARY_PATH=$(dirname "$nccl"):${LD_LIBRARY_PATH-}" "$C/latency" --procs $n --timeout 40
	done
	for b in 8 64 512 4096 32768; do
		ours=$(field "$T/ours.$n" $b 4) theirs=$(field "$T/nccl.$n" $b 4)
		awk -v n="gpu.allreduce.$n.latency.${b}B" -v v="$ours" -v p="$theirs" 'BEGIN {
			if (v == "" || p == "") printf "BENCH %s %s us target <=1.0 UNMEASURED\n", n, v == "" ? "-" : v
			else printf "BENCH %s %s us peer nccl %s ratio %.3f target <=1.0 %s\n", n, v, p, v / p, v / p <= 1 ? "ok" : "MISS"
		}'
	done
	for b in 1048576 4194304 16777216 67108864 268435456; do
		ours=$(field "$T/ours.$n" $b 6) theirs=$(field "$T/nccl.$n" $b 6)
		awk -v n="gpu.allreduce.$n.busbw.$((b >> 20))MiB" -v v="$ours" -v p="$theirs" 'BEGIN {
			if (v == "" || p == "") printf "BENCH %s %s GB/s target >=1.0 UNMEASURED\n", n, v == "" ? "-" : v
			else printf "BENCH %s %s GB/s peer nccl %s ratio %.3f target >=1.0 %s\n", n, v, p, v / p, (v / p >= 1) ? "ok" : "MISS"
		}'
	done
done
