#!/bin/bash
# Description: DFSHIM_BACKEND=auto decides by a self-test: each fault of the driver leaves the job
# to NCCL, and none puts it on the GPU; the table of `dfshim doctor`.
# Limit: 500 s
set -u
. "$SRC/tests/lib/clients.sh"
unset DFSHIM_TRACE
. "$SRC/tests/cuda/two.sh"
self_test
export FAKE_NCCL_SLOW=1
# Each check of the self-test may take a quarter of this time. On a busy machine the replays of a
# graph take more than a quarter of the default.
long=60
auto() { # NAME CACHE "VARIABLES"...: a job of two processes that may use the GPU; CACHE is the folder of results
	local name=$1 common="LD_PRELOAD=$B/libdfshim.so:$kernel FAKE_CUDA_DEVICES=1 DFSHIM_BACKEND=auto XDG_CACHE_HOME=$T/$2"
	common+=" DFSHIM_SELF_TEST_MS=${long}000"
	mkdir -p "$T/$2"
	job "$name" single "$common ${3-}" "$common ${4-${3-}}"
	want "$name.0" "init 0" "allreduce 0 0"
	want "$name.1" "init 0" "allreduce 0 0"
}
doctor() { # NAME CACHE "VARIABLES" ARGS...: runs `dfshim doctor`; sets rc to its status
	local name=$1 cache=$2 with=$3
	shift 3
	mkdir -p "$T/$cache"
	rc=0
	# shellcheck disable=SC2086 # words
	env LD_LIBRARY_PATH="$fake" LD_PRELOAD="$kernel" FAKE_CUDA_DEVICES=1 XDG_CACHE_HOME="$T/$cache" $with \
		timeout $((100 * SLOW)) "${program:-$B/dfshim}" doctor --timeout $long "$@" >"$T/$name" 2>"$T/$name.err" || rc=$?
}
on_nccl() { # NAME: NCCL executed the job. The self-test does not destroy its communicators, the job does
	times "$1.calls" ncclCommDestroy 2
}
left() { # NAME REASON: both processes left the job to NCCL for this reason
	on_nccl "$1"
	want "$1.0.err" "$2"
	want "$1.1.err" "$2"
	want "$1.0.err" "NCCL executes the job, which is recorded and watched" "DFSHIM_BACKEND=cuda uses the GPU anyway"
}
tested() { # NAME TIMES
	local nr
	nr=$(cat "$T/$1".[01].err | grep -c "testing GPU 0, once")
	[ "$nr" = "$2" ] || fail "$1: tested $nr times: $(cat "$T/$1".[01].err)"
}

# Without a fault, one of the two processes runs the self-test, both use the GPU, and the job does
# not call NCCL.
auto fine good "" "LOCAL_RANK=1"
tested fine 1
want fine.0.err "dfshim's daemon takes the GPU: its self-test passed here; at its slowest"
times fine.1.err "takes the GPU" 0
[ ! -e "$T/fine.calls" ] || ! grep -q ncclCommDestroy "$T/fine.calls" || fail "fine: the job is on NCCL"
# The next job reads the result.
auto again good
tested again 0
want again.1.err "dfshim's daemon takes the GPU"
# Another version of NCCL may be faster, so a job with it needs a test of its own. A test with a
# setting of NCCL serves later jobs with that setting.
auto nccl good "DFSHIM_SELF_TEST_MS=0 FAKE_NCCL_VERSION=23004"
left nccl "it has not been tested here"
auto ring c-ring NCCL_ALGO=Ring
tested ring 1
want ring.0.err "dfshim's daemon takes the GPU: its self-test passed here"
auto ring2 c-ring NCCL_ALGO=Ring
tested ring2 0
# If the ranks decide differently, all of them use NCCL.
mkdir -p "$T/bad"
auto differ good "" "XDG_CACHE_HOME=$T/bad DFSHIM_SELF_TEST_MS=0"
on_nccl differ
want differ.0.err "is handed to NCCL on all its 2 ranks: dfshim cannot start on rank 1: it has not been tested here"

# A result of another build, of another setting of the driver, or a damaged one counts as none.
file=$(echo "$T"/good/dfshim/gpu-????????????????)
[ -f "$file" ] || fail "no file of evidence: $(find "$T/good")"
sed -i 's/^build .*/build 0123456789abcdef/' "$file"
auto build good DFSHIM_SELF_TEST_MS=0
left build "it has not been tested here (DFSHIM_SELF_TEST_MS=0)"
auto setting good "DFSHIM_SELF_TEST_MS=0 CUDA_DEVICE_MAX_CONNECTIONS=1"
left setting "it has not been tested here"

# Each fault: the check that finds it, and the job on NCCL. The second job reads the result.
for f in "stale:words " "queue:queues " "relaunch:no end within" "sums:sums " "crash:signal 11" "hang:no end within"; do
	name=${f%%:*}
	# Two of them are found by the time that a check takes.
	[[ $f == *:"no end"* ]] && long=20 || long=60
	auto "$name" "c-$name" "FAKE_CUDA_FAULT=$name"
	tested "$name" 1
	left "$name" "GPU 0: its self-test failed: "
	want "$name.0.err" "${f#*:}"
	auto "$name-2" "c-$name" "FAKE_CUDA_FAULT=$name"
	tested "$name-2" 0
	left "$name-2" "GPU 0: its self-test failed: "
done
long=60
# The daemon works, but is slower than NCCL.
auto slow c-slow FAKE_NCCL_SLOW=
left slow "it works here, but is slower than NCCL"
# A measurement that says slower is repeated, because the machine may have been busy.
# LD_PRELOAD would split the path of this program's library.
mkdir -p "$T/a b"
ln -f "$B/dfshim" "$B/libdfshim.so" "$T/a b"
program="$T/a b/dfshim" doctor once c-once "FAKE_NCCL_FAST=$T/once.made" --json
[ $rc = 0 ] || fail "once: status $rc: $(cat "$T/once" "$T/once.err")"
[ -e "$T/once.made" ] || fail "once: NCCL was never fast"
[ "$(jq '.speed[0].pairs' "$T/once")" -ge 3 ] || fail "once: $(jq -c .speed "$T/once")"
# A result is not kept if the test could not run.
doctor busy c-busy FAKE_CUDA_FAULT=busy
[ $rc = 3 ] || fail "busy: status $rc: $(cat "$T/busy")"
want busy "it cannot be tested now: no context on GPU 0"
[ -z "$(find "$T/c-busy" -name 'gpu-????????????????')" ] || fail "busy: kept"
# These are refused without a test.
auto blocking c-none CUDA_LAUNCH_BLOCKING=1
left blocking "CUDA_LAUNCH_BLOCKING is set"
tested blocking 0
auto tool c-none CUDA_INJECTION64_PATH=/tool.so
left tool "a tool is inside the driver"
auto mig c-none FAKE_CUDA_MIG=1
left mig "MIG: this GPU is divided"
auto later c-none FAKE_CUDA_VERSION=14020
left later "a driver for CUDA 14.2, which this version of dfshim does not know"
# The program dfshim is missing beside the library.
mkdir -p "$T/alone"
cp "$B/libdfshim.so" "$T/alone/"
auto alone c-none "LD_PRELOAD=$T/alone/libdfshim.so:$kernel"
left alone "no program dfshim beside the library"

# `dfshim doctor` by hand: the verdict first, every check, the versions; and as JSON.
doctor text c-text "FAKE_CUDA_FULL=$T/full"
[ ! -e "$T/full" ] || fail "a stream had no room for what was put on it"
[ $rc = 0 ] || fail "doctor: status $rc: $(cat "$T/text" "$T/text.err")"
head -1 "$T/text" | grep -q "^TAKE: the daemon may take the GPU: " || fail "no verdict: $(head -1 "$T/text")"
for c in start sums words queues relaunch graph disorder; do
	grep -qE "^0 +$c +ok " "$T/text" || fail "no line of $c: $(cat "$T/text")"
done
want text "NCCL       2.28.9" "driver 13000" "GPU 0      uuid 6466686f7374" "16 MiB"
doctor json c-json FAKE_CUDA_FAULT=sums --json
[ $rc = 3 ] || fail "doctor --json: status $rc"
python3 "$SRC/tests/lib/json_keys.py" doctor "$T/json" "$T/once" || fail "not as docs/json.md says"
python3 - "$T/json" <<'END' || fail "not the JSON that was meant: $(cat "$T/json")"
import json, sys
d = json.load(open(sys.argv[1]))
g = d["gpus"][0]
assert d["verdict"] == "leave" and g["result"] == "leave" and "sums" in d["reason"], d
assert [c["ok"] for c in g["checks"] if c["check"] in ("start", "sums")] == [True, False] and g["checks"][1]["follows"], g
assert "words" not in [c["check"] for c in g["checks"]], g
assert d["versions"]["NCCL"].startswith("2.28.9"), d
END
doctor none c-none FAKE_CUDA_DEVICES=0
[ $rc = 3 ] || fail "no GPU: status $rc"
grep -q "^CPU: .*the CUDA driver" "$T/none" || fail "no GPU: $(head -1 "$T/none")"
doctor late c-late FAKE_CUDA_FAULT=late --timeout 2
[ $rc = 3 ] || fail "late: status $rc"
grep -q "does not answer within 2 s" "$T/late" || fail "late: $(head -1 "$T/late")"
exit 0
