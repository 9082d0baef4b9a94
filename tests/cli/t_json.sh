#!/bin/bash
# Description: the JSON of every subcommand has the keys and types that docs/json.md lists, and every key of docs/json.md appears.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
D=$B/dfshim
cd "$T" || exit 1
unset DFSHIM_TRACE
bad=0
wrong() {
	echo "FAILED: $*"
	bad=1
}
keys() { python3 "$SRC/tests/lib/json_keys.py" "$@"; }

# hang NAME: executes the job on standard input by NCCL's rules until dfshim ends it. Its traces are
# in NAME.
hang() {
	cat >"$1.txt"
	mkdir -p "$1"
	env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host DFSHIM_TIMEOUT_MS=$((800 * SLOW)) DFSHIM_TIMEOUT_ACTION=abort DFSHIM_TRACE="$T/$1" \
		timeout -k 2 "${LIMIT:-100}" "$S" --timeout $((20 * SLOW)) "$1.txt" >"$1.log" 2>&1
	ls "$1"/*.dft >/dev/null || fail "$1: no trace: $(cat "$1.log")"
}
printf 'ranks 2\ncomm A 0 1\n0: AR A s; K s; ssync s; AR A s\n1: AR A s; K s; ssync s; AR A s\n' >job.txt
mkdir ok
DFSHIM_STATS=$T/stats DFSHIM_TRACE=$T/ok DFSHIM_BACKEND=host LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
	timeout "${LIMIT:-60}" "$S" job.txt >log 2>&1 || fail "the job: status $?: $(cat log)"
hang order <<'END'
ranks 2
comm A 0 1
comm B 0 1
0: AR A s; AR B s; ssync s; AR A s n=64; AR B s n=64; ssync s
1: AR A s; AR B s; ssync s; AR B s n=64; AR A s n=64; ssync s
END
hang cold <<'END'
cold
ranks 2
comm A 0 1
comm B 0 1
0: AR A s1 n=64; AR B s2 n=128
1: BC B s2 n=128; AR A s1 n=64
END
hang message <<'END'
cold
ranks 2
comm A 0 1
comm B 0 1
0: send A 1 s1 n=64; AR B s2 n=128
1: AR B s2 n=128; recv A 0 s1 n=64
END
hang root <<'END'
ranks 2
comm A 0 1
0: AR A s; ssync s; BC A s n=10; ssync s
1: AR A s; ssync s; BC A s n=20; ssync s
END
hang sends <<'END'
ranks 2
comm A 0 1
0: AR A s; ssync s; send A 1 s n=4000000; ssync s
1: AR A s; ssync s; recv A 0 s n=3000000; ssync s
END

# say SECTION STATUS COMMAND...: checks that the command's output has the keys of the section. Keeps
# the output for the last check.
files=()
say() {
	local section=$1 status=$2 rc file
	shift 2
	file="out.${#files[@]}"
	timeout "${LIMIT:-60}" "$@" >"$file" 2>err
	rc=$?
	[[ " $status " == *" $rc "* ]] || wrong "$*: status $rc: $(head -3 err)"
	keys "$section" "$file" || wrong "$*: not as docs/json.md says"
	files+=("$section:$file")
}
for d in ok order cold message root sends; do
	say check "0 10 13 20 21 50" "$D" check --json $d
	say show 0 "$D" show --json $d
	say ls 0 "$D" ls --json $d
	say graph 0 "$D" graph --json $d
	say timeline 0 "$D" timeline $d
	say report 0 "$D" report --json -o r.html $d
	say predict "0 14" "$D" predict --json $d
	say predict "0 14" "$D" predict --executor nccl --sms 16 --json $d
	say predict "0 14" "$D" predict --executor nccl --sms 1024 --json $d
done
for f in "$SRC"/tests/trace/golden/*.json; do
	keys check "$f" || wrong "$f: not as docs/json.md says"
	files+=("check:$f")
done
gzip -dc "$SRC/tests/trace/released/1/every/rank0.dft.gz" >every.dft
say show 0 "$D" show --json every.dft
say replay 0 "$D" replay --host --json ok
say env 0 "$D" env --json
say net 0 "$D" net --json
say doctor "0 3" "$D" doctor --json
config=$SRC/docs/sim/sync_3d_444_d0.004_s0.004.json
say sim 0 "$D" sim "$config" --json --rounds 20
say sim 0 "$D" sim --from-trace ok --json --rounds 20
say "sim --rules" 0 "$D" sim "$config" --json --rounds 20 --rules --set resource_limit=3
say "sim --sweep" 0 "$D" sim "$config" --json --rounds 20 --sweep disorder_prob=1e-4:1e-2:log:2 --sweep pp_group_size=1,2
say plan 0 "$D" plan --json "$SRC/docs/plan/gpt2.json"
say "algo ls" 0 "$D" algo ls --json
say "algo verify" 3 "$D" algo verify --json "$SRC"/tests/program/own_input/* "$SRC"/tests/program/defects/*
say "algo run" 0 "$D" algo run AllReduce/tree --ranks 4 --json
say "algo bench" 0 "$D" algo bench --kind AllReduce --nodes 1 --gpus 2 --sizes 1K --rounds 2 --turns 1 --json
files+=("DFSHIM_STATS:stats")
keys DFSHIM_STATS stats || wrong "DFSHIM_STATS: not as docs/json.md says"

# A field's type does not depend on its value: sets the highest byte of the fields of all record
# types to several values. The offsets are those of struct df_trace_header and struct df_rec
# (trace/record/format.h).
for top in 00 1f 7f 80 ff; do
	python3 - every.dft "$top" >"top.$top.dft" <<'END' || fail "every.dft: status $?"
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
nr, = struct.unpack_from("<Q", data, 24)
at, = struct.unpack_from("<Q", data, 56)
for rec in range(at, min(at + 64 * nr, len(data)), 64):
    for field in (24, 32, 40, 48):
        data[rec + field + 7] = int(sys.argv[2], 16)
sys.stdout.buffer.write(data)
END
	say show 0 "$D" show --json "top.$top.dft"
done

# Every subcommand with --json is called in this test.
for s in $("$D" --list); do
	! "$D" "$s" --list 2>/dev/null | grep -q -- '--json' || [[ " ${files[*]} " == *" $s"* ]] || wrong "$s --json is not in this test"
done
# Every key of docs/json.md appears. Exceptions: keys that need another machine, an RDMA port, a GPU
# or a peer (t_found, t_pairs and t_doctor check them), Python threads (t_python), a recorded
# training (t_plan_trace), and the keys that only `sim --rules` and `sim --sweep` add.
for section in check show ls graph timeline report predict env sim "sim --rules" "sim --sweep" plan "algo ls" "algo verify" "algo run" \
	"algo bench" DFSHIM_STATS; do
	of=()
	for f in "${files[@]}"; do
		[ "${f%%:*}" != "$section" ] || of+=("${f#*:}")
	done
	unseen=$(keys --unseen "$section" "${of[@]}" | grep -vE '^(scripts|recorded|preserver|name$|\*)' | tr '\n' ' ')
	[ -z "$unseen" ] || wrong "$section: no output has $unseen"
done
exit $bad
