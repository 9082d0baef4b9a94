#!/bin/bash
# Description: the trace subcommands: help, wrong usage, unreadable input, and Flight Recorder dumps.
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
B=${B:-$src/build}
df=$B/dfshim
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

fail() {
	echo "FAIL: $*"
	bad=1
}

want() { # status, command ...
	local status=$1
	shift
	"$@" >"$tmp/out" 2>"$tmp/err"
	local got=$?
	[ $got -eq "$status" ] || fail "$* gave $got, wanted $status: $(head -2 "$tmp/err")"
}

[ -x "$df" ] || { echo "no $df"; exit 77; }
for sub in check ls show graph timeline report predict export-fr import-fr; do
	want 0 "$df" $sub --help
	grep -q "^Usage: dfshim $sub" "$tmp/out" || fail "$sub --help does not begin with its usage"
	want 2 "$df" $sub
	want 2 "$df" $sub --no-such-option "$tmp"
	want 1 "$df" $sub "$tmp/nowhere_0"
	grep -q "nowhere_0" "$tmp/err" || fail "$sub: the error does not name the file"
done
mkdir "$tmp/empty"
want 1 "$df" check "$tmp/empty"
grep -q "no trace files" "$tmp/err" || fail "check: an empty folder is not explained"
echo nonsense >"$tmp/x.dft"
want 1 "$df" check "$tmp/x.dft"
grep -q "x.dft" "$tmp/err" || fail "check: the bad file is not named"

# Dumps of two ranks, written as pickles of protocol 2. The second rank lacks the last operation.
if command -v python3 >/dev/null; then
	python3 - "$tmp" <<'PY'
import os, pickle, sys

def entry(seq, name, n, state):
    frames = [{"name": "all_reduce", "filename": "/lib/distributed_c10d.py", "line": 2696},
              {"name": "step", "filename": "/job/train.py", "line": 40 + seq}]
    return {"frames": frames, "record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "profiling_name": name,
            "time_created_ns": 1_000_000_000 + seq, "input_sizes": [[n]], "input_dtypes": ["Float"],
            "output_sizes": [[n]], "output_dtypes": ["Float"], "state": state,
            "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
            "retired": state == "completed", "timeout_ms": 600000, "is_p2p": False}

def dump(rank, entries, proto):
    d = {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
         "entries": entries}
    with open(f"{sys.argv[1]}/trace_{rank}", "wb") as f:
        pickle.dump(d, f, protocol=proto)
    os.utime(f"{sys.argv[1]}/trace_{rank}", (100, 100))

dump(0, [entry(1, "nccl:all_reduce", 8, "completed"), entry(2, "nccl:all_reduce", 8, "scheduled")], 2)
dump(1, [entry(1, "nccl:all_reduce", 8, "completed")], 5)

class Evil:
    def __reduce__(self):
        return os.system, (f"touch {sys.argv[1]}/pwned",)

pickle.dump({"version": "2.10", "entries": [Evil()]}, open(f"{sys.argv[1]}/evil_0", "wb"))
PY
	want 0 "$df" import-fr -o "$tmp/fr" "$tmp/trace_0" "$tmp/trace_1"
	want 20 "$df" check "$tmp/fr"
	head -1 "$tmp/out" | grep -q "^MISSING: pg0#2 waits for r1" || fail "imported dumps: $(head -1 "$tmp/out")"
	grep -q "distributed_c10d.py:2696!all_reduce <- train.py:42!step" "$tmp/out" || fail "imported dumps: no stack: $(cat "$tmp/out")"
	want 20 "$df" check --json "$tmp/fr"
	python3 -c "
import json
v = json.load(open('$tmp/out'))
want = ['distributed_c10d.py:2696!all_reduce', 'train.py:42!step']
assert [o['evidence']['stack'] for o in v['pending']] == [want], v['pending']
d = v['first_divergence']['evidence']
assert d[0]['stack'] == want and d[1] is None, d" || fail "check --json"
	want 1 "$df" import-fr -o "$tmp/fr2" "$tmp/evil_0"
	grep -q "refused" "$tmp/err" || fail "a pickle with code was not refused"
	[ ! -e "$tmp/pwned" ] || fail "a pickle ran its code"
	# Errors name files that are no dumps, and places where no traces can be written, with the
	# reason.
	want 1 "$df" import-fr -o "$tmp/fr" "$tmp/fr"
	grep -q "$tmp/fr: is a folder; give the dumps in it" "$tmp/err" || fail "a folder of dumps: $(cat "$tmp/err")"
	want 1 "$df" import-fr -o "$tmp/trace_0" "$tmp/trace_0"
	grep -q "$tmp/trace_0: is a file; the traces need a folder" "$tmp/err" || fail "-o names a file: $(cat "$tmp/err")"
	want 1 "$df" import-fr -o "$tmp/fr3" "$tmp/nothing_0"
	grep -q "nothing_0: No such file" "$tmp/err" || fail "no dump: $(cat "$tmp/err")"
	# PyTorch may name a communicator by a number. Every command must print such a name in the
	# same way.
	mkdir "$tmp/numbers"
	python3 -c "
import glob
for f in glob.glob('$tmp/fr/*.dft'):
    open(f.replace('/fr/', '/numbers/'), 'wb').write(open(f, 'rb').read().replace(b'pg0\\0', b'0\\0\\0\\0', 1))"
	[ "$("$df" ls --json "$tmp/numbers" | jq -r '.. | .name? | strings' | sort -u)" = 0 ] || fail "the name is not 0: $("$df" ls --json "$tmp/numbers")"
	want 20 "$df" check "$tmp/numbers"
	head -1 "$tmp/out" | grep -q "^MISSING: pg0#2 waits for r1" || fail "a name that is a number: $(head -1 "$tmp/out")"
	want 0 "$df" timeline -o "$tmp/n.json" "$tmp/numbers"
	grep -q "ncclDevKernel_AllReduce pg0#2 " "$tmp/n.json" || fail "timeline: a name that is a number"
	want 0 "$df" report -o "$tmp/n.html" "$tmp/numbers"
	grep -q "pg0#2 AllReduce" "$tmp/n.html" || fail "report: a name that is a number"
	# `check` reads the dumps themselves, pickles and JSON, and names those that it cannot read.
	fr=$tmp/dumps
	mkdir "$fr"
	cp "$tmp/trace_0" "$fr/nccl_trace_rank_0"
	python3 -c "
import json, pickle
d = pickle.load(open('$tmp/trace_1', 'rb'))
for e in d['entries']:
    del e['frames']
json.dump(d, open('$fr/rank_1.json', 'w'))
json.dump({'traceEvents': []}, open('$fr/timeline_7.json', 'w'))"
	touch -d @100 "$fr"/*
	want 20 "$df" check "$fr"
	head -1 "$tmp/out" | grep -q "^MISSING: pg0#2 waits for r1" || fail "a folder of dumps: $(head -1 "$tmp/out")"
	grep -q "train.py:42!step" "$tmp/out" || fail "a folder of dumps: no stack"
	grep -q "do not show streams" "$tmp/err" && grep -q "LD_PRELOAD=libdfshim.so" "$tmp/err" ||
		fail "dumps: what they lack is not said: $(cat "$tmp/err")"
	want 20 "$df" check "$fr/nccl_trace_rank_0" "$fr/rank_1.json"
	want 20 "$df" check --json "$fr"
	python3 -m json.tool <"$tmp/out" >/dev/null || fail "check --json of dumps is not JSON"
	# A group that has a description is named by it, too.
	mkdir "$tmp/described"
	python3 -c "
import pickle
for r in range(2):
    d = pickle.load(open(f'$tmp/trace_{r}', 'rb'))
    d['pg_config']['0']['desc'] = 'mesh_tp'
    pickle.dump(d, open(f'$tmp/described/trace_rank_{r}', 'wb'))"
	want 20 "$df" check "$tmp/described"
	head -1 "$tmp/out" | grep -q "^MISSING: pg0(mesh_tp)#2 waits for r1" || fail "a group's description: $(head -1 "$tmp/out")"
	cp "$tmp/trace_1" "$fr/other_1"
	want 1 "$df" check "$fr"
	grep -q "rank 1, as $fr/" "$tmp/err" || fail "two dumps of one rank: $(cat "$tmp/err")"
	head -c 90 "$tmp/trace_1" >"$fr/nccl_trace_rank_1"
	rm "$fr/other_1" "$fr/rank_1.json"
	want 1 "$df" check "$fr"
	grep -q "$fr/nccl_trace_rank_1: cut off at byte 90" "$tmp/err" || fail "a dump that is cut off: $(cat "$tmp/err")"
	echo '{"pg_config": {"0": }' >"$fr/nccl_trace_rank_1"
	want 1 "$df" check "$fr"
	grep -q "$fr/nccl_trace_rank_1: line 1: " "$tmp/err" || fail "JSON that is broken: $(cat "$tmp/err")"
	# A pickle is never executed, and a pickle that only contains calls is no dump.
	cp "$tmp/evil_0" "$fr/nccl_trace_rank_1"
	want 1 "$df" check "$fr"
	[ ! -e "$tmp/pwned" ] || fail "check ran a pickle's code"
	# gloo lists its group without a name, and does not update the state of operations that have
	# ended.
	python3 -c "
import pickle
for r in range(2):
    def entry(i, op, size):
        return {'process_group': ('0', 'default_pg'), 'collective_seq_id': i, 'p2p_seq_id': 0, 'profiling_name': 'gloo:' + op,
                'time_created_ns': 10 ** 9 + i, 'input_sizes': [[size]], 'input_dtypes': ['Float'], 'output_sizes': [[size]],
                'output_dtypes': ['Float'], 'state': 'scheduled', 'retired': i == 1, 'is_p2p': False, 'frames': []}
    pickle.dump({'version': '2.10', 'pg_config': {'': {'name': '', 'desc': '', 'ranks': '[0, 1]'}},
                 'entries': [entry(1, 'all_reduce', 8), entry(2, 'all_reduce', 8 + r)]}, open(f'$fr/nccl_trace_rank_{r}', 'wb'))
    pickle.dump({'version': '2.10', 'pg_config': {}, 'entries': []}, open(f'$fr/empty_{r}', 'wb'))"
	mkdir "$fr.empty" && mv "$fr"/empty_* "$fr.empty"
	want 21 "$df" check "$fr"
	head -1 "$tmp/out" | grep -q "^MISMATCH: pg0#2" || fail "dumps of gloo: $(head -1 "$tmp/out")"
	grep -q "nccl_trace_rank_0: 1 operations count as ended, but may have failed" "$tmp/err" || fail "dumps of gloo: $(cat "$tmp/err")"
	want 1 "$df" check "$fr.empty"
	grep -q "hold no operations .*TORCH_FR_BUFFER_SIZE=2000" "$tmp/err" || fail "dumps without operations: $(cat "$tmp/err")"
	cp "$tmp/fr/rank0.dft" "$fr"
	want 1 "$df" check "$fr"
	grep -q "$fr/nccl_trace_rank_[01]: a Flight Recorder dump beside a trace ($fr/rank0.dft)" "$tmp/err" ||
		fail "dumps beside traces: $(cat "$tmp/err")"
	ls -d /tmp/dfshim-check-* 2>/dev/null && fail "check left a folder"
	want 0 "$df" export-fr -o "$tmp/again_" "$tmp/fr"
	python3 -c "
import pickle, sys
d = pickle.load(open('$tmp/again_0', 'rb'))
e = d['entries']
assert len(e) == 2 and e[1]['state'] == 'scheduled' and e[0]['profiling_name'] == 'nccl:all_reduce', e
f = e[1]['frames']
assert f[1] == {'name': 'step', 'filename': 'train.py', 'line': 42} and f[0]['line'] == 2696 and len(f) == 2, f
assert d['pg_config']['0']['ranks'] == '[0, 1]', d['pg_config']" || fail "exported dump"
	want 0 "$df" timeline -o "$tmp/t.json" "$tmp/fr"
	python3 -m json.tool <"$tmp/t.json" >/dev/null || fail "timeline is not JSON"
	grep -q "never" "$tmp/t.json" || fail "timeline: the open operation is not marked"
	python3 -c "
import json
e = [x['args'] for x in json.load(open('$tmp/t.json'))['traceEvents'] if 'Seq' in x.get('args', {})]
assert [x['Call stack'] for x in e if x['Seq'] == 2] == ['distributed_c10d.py:2696!all_reduce <- train.py:42!step'], e" ||
		fail "timeline: no call stack"
	want 0 "$df" graph -o "$tmp/g.svg" "$tmp/fr"
	python3 -c "import xml.dom.minidom as m; m.parse('$tmp/g.svg')" || fail "graph: SVG is not XML"
	want 0 "$df" graph --json "$tmp/fr"
	python3 -m json.tool <"$tmp/out" >/dev/null || fail "graph --json is not JSON"
	want 0 "$df" report -o "$tmp/r.html" "$tmp/fr"
	grep -q "MISSING: pg0#2" "$tmp/r.html" || fail "report without verdict"
	grep -q "train.py:42!step" "$tmp/r.html" || fail "report without the open operation's call stack"
	grep -Eq "(src|href)=.?https?:" "$tmp/r.html" && fail "report loads something from the network"
	want 0 "$df" show --json --type op "$tmp/fr"
	[ "$(wc -l <"$tmp/out")" -eq 3 ] || fail "show --type op: $(wc -l <"$tmp/out") lines"
	python3 -c "
import json
at = sorted(json.loads(l)['stack'][1] for l in open('$tmp/out'))
assert at == ['train.py:41!step'] * 2 + ['train.py:42!step'], at" || fail "show --json: no NDJSON with call stacks"
	want 0 "$df" show --json --at train.py:42 "$tmp/fr"
	python3 -c "
import json
r = [json.loads(l) for l in open('$tmp/out')]
assert r and all('train.py:42!step' in x['stack'] for x in r) and 'op' in [x['type'] for x in r], r" || fail "show --at"
	want 0 "$df" show --type op "$tmp/fr"
	grep -q "train.py" "$tmp/out" && fail "show: stacks that nobody asked for"
	want 0 "$df" show --type op --stacks "$tmp/fr"
	[ "$(grep -A1 " op .* AllReduce " "$tmp/out" | grep -c "^ *at distributed_c10d.py:2696!all_reduce <- train.py:4[12]!step$")" -eq 3 ] ||
		fail "show --stacks: $(cat "$tmp/out")"
	want 0 "$df" ls --json "$tmp/fr"
	python3 -m json.tool <"$tmp/out" >/dev/null || fail "ls --json is not JSON"
fi
exit $bad
