#!/bin/bash
# Compares algorithms of the daemon, with a process for each rank, as the figures of GC3 do:
# all-pairs with ring for AllReduce, two-step with direct AlltoAll over emulated nodes, and the
# tuned choice with the best fixed one. All of them take turns within a job (`dfshim algo bench`). A
# ratio is the median of the ratios of neighbouring measurements. The noise is the difference
# between two equal programs that are measured in the same way. Tuned programs are measured again
# afterwards, in jobs of their own. BENCH_PART: only `pairs`, `steps`, or a tuned one
# (`allreduce.8`, ...). BENCH_TURNS: the number of jobs of each.
set -u
cd "$SRC" || exit 1
part=${BENCH_PART:-all} turns=${BENCH_TURNS:-8}
# The emulated nodes are joined by sockets of this machine. The curves cross, as those of GC3 do:
# the tuner does not choose what is a MISS at the upper end.

# bench OUT ARGS...: writes the figures of `dfshim algo bench` as JSON lines
bench() {
	local out=$1
	shift
	"$B/dfshim" algo bench --json --turns "$turns" --rounds 30 "$@" >"$out" || : >"$out"
}
# field FILE KIND BYTES ALGO NAME: prints a number of such a line
field() {
	awk -F'[:,"{}]+' -v k="$2" -v b="$3" -v a="$4" -v name="$5" '{
		for (i = 2; i < NF; i += 2) v[$i] = $(i + 1)
		if (v["kind"] == k && v["bytes"] == b && v["algo"] == a) print v[name]
	}' "$1"
}
human() { [ "$1" -ge 1048576 ] && echo "$(($1 >> 20))MiB" || echo "$(($1 >> 10))KiB"; }
# figure NAME FILE KIND BYTES ALGO PEER TARGET: prints the ratio of the algorithm to the peer
figure() {
	awk -v n="$1" -v v="$(field "$2" "$3" "$4" "$5" ns)" -v p="$6" -v pv="$(field "$2" "$3" "$4" "$6" ns)" \
		-v r="$(field "$2" "$3" "$4" "$5" ratio)" -v pr="$(field "$2" "$3" "$4" "$6" ratio)" -v t="$7" 'BEGIN {
		if (v == "" || pv == "") { printf "BENCH %s - us target <=%s UNMEASURED\n", n, t; exit }
		r = r / pr
		printf "BENCH %s %.1f us peer %s %.1f ratio %.3f target <=%s %s\n", n, v / 1000, p, pv / 1000, r, t,
			r <= t ? "ok" : "MISS"
	}'
}

sizes="1K,4K,16K,64K,256K,1M" bytes="1024 4096 16384 65536 262144 1048576"
if [ "$part" = all ] || [ "$part" = pairs ]; then
	bench "$T/pairs" --kind AllReduce --ranks 8 --sizes $sizes
	for b in $bytes; do
		figure "algo.allreduce.8.allpairs.$(human "$b")" "$T/pairs" AllReduce "$b" allpairs ring 1.0
	done
fi
if [ "$part" = all ] || [ "$part" = steps ]; then
	bench "$T/steps" --kind AlltoAll --nodes 2 --gpus 4 --sizes $sizes
	for b in $bytes; do
		figure "algo.alltoall.2x4.twostep.$(human "$b")" "$T/steps" AlltoAll "$b" hier allpairs 1.0
	done
fi
# tuned NAME KIND ARGS...: tunes, then measures the tuned choice beside each fixed one
tuned() {
	local name=$1 kind=$2 b a best noise
	shift 2
	[ "$part" = all ] || [ "$part" = "$name" ] || return
	bench "$T/$name.first" --kind "$kind" --sizes $sizes -o "$T/$name.tune" "$@"
	bench "$T/$name" --kind "$kind" --sizes $sizes --tuner "$T/$name.tune" "$@"
	for b in $bytes; do
		best=allpairs
		for a in ring tree allpairs hier; do
			[ "$(field "$T/$name" "$kind" "$b" $a ratio)" = 1.0000 ] && best=$a
		done
		figure "algo.$name.tuned.$(human "$b")" "$T/$name" "$kind" "$b" auto $best 1.1
		noise=$(field "$T/$name" "$kind" "$b" auto noise)
		echo "BENCH algo.$name.noise.$(human "$b") ${noise:--} of1 target <=0.05 $(awk -v n="$noise" \
			'BEGIN { print n == "" ? "UNMEASURED" : n <= 0.05 ? "ok" : "MISS" }')"
	done
}
tuned allreduce.8 AllReduce --ranks 8
tuned allreduce.2x4 AllReduce --nodes 2 --gpus 4
tuned alltoall.2x4 AlltoAll --nodes 2 --gpus 4
