#!/bin/bash
# Measures the cost of lanes on CPU threads: libdfnccl.so behind libdfshim.so (DFSHIM_EXECUTOR=nccl)
# beside libdfnccl.so alone, in processes.
#
#   lanes.allreduce.RANKS.SIZE   the time of an AllReduce
#   lanes.ddp.RANKS              the time of a step that reduces buckets
#   lanes.comms.2                an AllReduce on one of 64 communicators, in one order, where all
#                                fit on a device
#   lanes.held.2                 the same with room for 4, so that most operations are held
#   NAME.calls, NAME.wakes       what libdfshim.so itself adds to an operation of lanes.NAME: calls of
#                                the driver for streams, and wake-ups of threads
#
# Rounds of three runs, in changing orders: alone, lanes, alone again. value and peer are medians. The
# ratio is the median of the rounds' ratios; the brackets hold its interval, and that of the second
# run alone to the first, which shows how much this machine scatters. Intervals are those of medians,
# with a confidence of 95 % at least. Lanes may add at most 3 us plus 3 %. The verdict is that of the
# whole interval of what they add. If it contains the limit, more rounds follow, up to ROUNDS (15);
# after that the figure is UNMEASURED.
#
# The times include what libdfnccl.so and libdfhost.so do for another stream on few processors. The
# counts do not. The driver calls do not depend on the load either. The wake-ups of lanes.held do: if
# a held operation does not move for 4 ms, the ranks exchange messages about it.
set -u
[ -f "$B/libdfnccl.so" ] && [ -x "$B/clients/ddp" ] || { echo "# lanes: the clients are not built here" && exit 77; }
unset DFSHIM_TRACE DFSHIM_STATS
export LATENCY_ROUNDS=${LATENCY_ROUNDS:-9} COUNTED=$T/counted
${CC:-gcc} -shared -fPIC -O2 -I"$SRC" -I"$B/gen" -o "$T/counted.so" "$SRC/tests/bench/counted.c" -ldl || exit 1

# one HOW CLIENT ARGS...: prints the client's figure in us
one() {
	local how=$1 client=$B/clients/$2 ours=
	shift 2
	case $how in
	lanes) ours="$B/libdfshim.so " ;;
	counted) ours="$T/counted.so $B/libdfshim.so " ;;
	esac
	timeout -k 5 100 env DFSHIM_BACKEND=host ${ours:+DFSHIM_EXECUTOR=nccl} "LD_PRELOAD=$ours$B/libdfhost.so $B/libdfnccl.so" \
		"$client" "$@" --timeout 60 2>>"$T/$how.err" | figure
}

# judge NAME LAST: prints the figure of the rounds in $T/rounds. Fails if it is undecided and not LAST.
judge() {
	python3 - "$T/rounds" "lanes.$1" "$2" <<'P'
import math, statistics, sys
v = [tuple(map(float, line.split())) for line in open(sys.argv[1])]
n, k = len(v), 0
while n and sum(math.comb(n, i) for i in range(k + 1)) <= 0.025 * 2**n:
    k += 1
if not k:
    if sys.argv[3] == "1":
        print(f"BENCH {sys.argv[2]} - us target <=1.03+3us UNMEASURED")
    sys.exit(sys.argv[3] != "1")

def interval(values):
    values = sorted(values)
    return statistics.median(values), values[k - 1], values[n - k]

a, lanes = (statistics.median(x) for x in ([a for r in v for a in r[::2]], [r[1] for r in v]))
_, low, high = interval(r[1] - 1.03 * (r[0] + r[2]) / 2 for r in v)
word = "ok" if high <= 3 else "MISS" if low > 3 else "UNMEASURED"
if word == "UNMEASURED" and sys.argv[3] != "1":
    sys.exit(1)
ratio, again = interval(2 * r[1] / (r[0] + r[2]) for r in v), interval(r[2] / r[0] for r in v)
print(f"BENCH {sys.argv[2]} {lanes:.2f} us peer libdfnccl {a:.2f} ratio {ratio[0]:.3f} target <=1.03+3us {word} "
      f"({ratio[1]:.2f} to {ratio[2]:.2f}; alone again {again[1]:.2f} to {again[2]:.2f}; {n} rounds)")
P
}

# counts NAME WAKES CLIENT ARGS...: an operation may take at most 2 calls of the driver and WAKES
# wake-ups
counts() {
	local name=$1 wakes=$2
	shift 2
	: >"$COUNTED"
	one counted "$@" >/dev/null
	awk -v name="lanes.$name" -v most=2 -v wakes="$wakes" '
		{ for (i = 1; i <= 7; i++) n[i] += $i }
		END {
			for (i = 2; n[1] && i <= 7; i++) n[i] /= n[1]
			calls = n[2] + n[3] + n[4] + n[5]
			printf "BENCH %s.calls %s calls/operation target <=%s %s (%.2f writes, %.2f waits, %.2f events, %.2f queries)\n", name,
				n[1] ? sprintf("%.2f", calls) : "-", most, !n[1] ? "UNMEASURED" : calls <= most ? "ok" : "MISS", n[2], n[3], n[4], n[5]
			printf "BENCH %s.wakes %s wakes/operation target <=%s %s (%.2f sleeps and yields)\n", name,
				n[1] ? sprintf("%.3f", n[6]) : "-", wakes, !n[1] ? "UNMEASURED" : n[6] <= wakes ? "ok" : "MISS", n[7]
		}' "$COUNTED"
}

# rounds NAME WAKES CLIENT ARGS...: measures with and without lanes in turns
rounds() {
	local name=$1 wakes=$2 most=${ROUNDS:-15} i how
	local -A us
	shift 2
	: >"$T/rounds"
	for ((i = 1; i <= most; i++)); do
		case $((i % 3)) in
		0) set -- "alone lanes again" "$@" ;;
		1) set -- "lanes again alone" "$@" ;;
		2) set -- "again alone lanes" "$@" ;;
		esac
		for how in $1; do us[$how]=$(one "$how" "${@:2}"); done
		shift
		[ -n "${us[alone]}" ] && [ -n "${us[lanes]}" ] && [ -n "${us[again]}" ] && echo "${us[alone]} ${us[lanes]} ${us[again]}" >>"$T/rounds"
		((i == most || i >= 7)) && judge "$name" $((i == most)) && break
	done
	counts "$name" "$wakes" "$@"
}

figure() { sed -nE 's/^latency: [0-9]+ bytes ([0-9.]+) us.*/\1/p'; }
for ranks in 2 4; do
	for size in 8 65536 1048576 16777216; do
		export LATENCY_MIN=$size LATENCY_MAX=$size
		rounds "allreduce.$ranks.$size" 0.25 latency --ranks $ranks --procs $ranks
	done
done
figure() { sed -nE 's/^ddp: ([0-9.]+) ms a step/\1/p' | awk '{print $1 * 1000; exit}'; }
# The thread of lanes rests while the ranks compute, so each bucket may wake it.
rounds ddp.2 1 ddp --ranks 2 --procs 2
figure() { sed -nE 's/.*"seconds": *([0-9.]+).*/\1/p' | awk '{print $1 * 1e6 / (64 * 20); exit}'; }
many=(disorder --ranks 2 --procs 2 --colls 64 --comms 64 --iters 20 --inorder --warmup --no-check --json --min 1024 --max 1024)
DFSHIM_HOST_SMS=2048 rounds comms.2 0.25 "${many[@]}"
DFSHIM_HOST_SMS=64 rounds held.2 1 "${many[@]}"
