#!/bin/bash
# Description: a job's keys appear in none of its logs, traces, statistics and RAS answers, and in none of its processes' names, environments and command lines.
# Limit: 200 s
set -u
. "$SRC/tests/lib/clients.sh"
[ -z "${SAN_RUNTIME-}" ] || skip "a sanitizer's runtime has to be the first library"
cc=$(command -v cc || command -v gcc || command -v clang) || skip "no C compiler"
$cc -shared -fPIC -O1 -o "$T/keys.so" "$SRC/tests/ctl/keys.c" || fail "keys.c cannot be built"
mkdir "$T/said"
export KEYS=$T/keys DFSHIM_DEBUG=trace NCCL_DEBUG=TRACE NCCL_DEBUG_SUBSYS=ALL DFSHIM_STATS=$T/said/stats DFSHIM_TRACE_MB=1 DFSHIM_TIMEOUT_MS=$((1500 * SLOW))
unset DFSHIM_TRACE
# Other jobs of this machine answer RAS at the default address.
ras=127.77.$(($$ >> 8 & 255)).$(($$ & 255))
export NCCL_RAS_ADDR=$ras:28028
# run NAME DFSHIM-RUN-OPTIONS... -- CLIENT ARGS...: runs a job with keys.so preloaded.
run() {
	local name=$1 opts=()
	shift
	while [ "$1" != -- ]; do opts+=("$1") && shift; done
	shift
	# shellcheck disable=SC2016 # expanded in each process
	timeout -k 5 "${LIMIT:-150}" "$B/dfshim" run --host "${opts[@]}" --trace "$T/said/$name" -- \
		bash -c 'LD_PRELOAD="$0/keys.so $LD_PRELOAD" exec "$@"' "$T" "$@" >"$T/said/$name.out" 2>&1
}
run right -n 3 -- "$C/disorder" --ranks 6 --colls 4 --iters 400 --seed "$SEED" &
job=$!
until p=$(pgrep -f "^$C/disorder .*--seed $SEED" | head -n 1) && [ -n "$p" ] && grep -q dfshim- /proc/net/unix; do
	kill -0 $job 2>/dev/null || break
	sleep 0.02
done
for p in $(pgrep -f "^$C/disorder .*--seed $SEED"); do
	cat "/proc/$p/environ" "/proc/$p/cmdline" "/proc/$p/comm" "/proc/$p/maps" >>"$T/said/processes"
	ls -l "/proc/$p/fd" >>"$T/said/processes"
done 2>/dev/null
cat /proc/net/unix >"$T/said/unix"
timeout 20 python3 - "$ras" >"$T/said/ras" 2>&1 <<'PY'
import socket
import sys
import time


def connect():
    while True:
        try:
            return socket.create_connection((sys.argv[1], 28028), 10)
        except ConnectionRefusedError:
            time.sleep(0.02)


for form in ("text", "json"):
    s = connect()
    s.sendall(f"SET FORMAT {form}\nVERBOSE STATUS\n".encode())
    while data := s.recv(65536):
        print(data.decode())
PY
wait $job || fail "disorder: status $?: $(tail -n 5 "$T/said/right.out")"
# Ranks that fail in the rendezvous, a process that dies, and a hang with its verdict.
RUDE_UNTIL=/dev/null RUDE_CASE=same-rank run same -- "$C/rude" --procs 3 --timeout 40
DFSHIM_HOST_FAULT=kill:rank=1,op=20 run death -n 3 -- "$C/disorder" --colls 4 --iters 2000 --timeout 20
DFSHIM_TIMEOUT_ACTION=abort RUDE_UNTIL=/dev/null RUDE_CASE=missing run missing -- "$C/rude" --procs 3 --timeout 40
for dir in death missing; do
	"$B/dfshim" show "$T/said/$dir" >"$T/said/$dir.show" 2>&1
	"$B/dfshim" check --json "$T/said/$dir" >"$T/said/$dir.check" 2>&1
done
grep -q 'program' "$T/said/right.out" && [ -s "$T/said/stats" ] && [ -s "$T/said/death.show" ] && [ -s "$T/said/processes" ] && grep -q 'Job summary' "$T/said/ras" ||
	fail "the job said too little: $(ls -l "$T/said")"
python3 - "$T/keys" "$T/said" <<'PY' || fail "a key is where strangers can read it"
import os
import re
import struct
import sys

drawn = open(sys.argv[1], "rb").read()
keys = [drawn[i:i + 16] for i in range(0, len(drawn), 16)]
assert len(keys) > 10, len(keys)
raw, text = {}, {}
for key in keys:
    for half in (key[:8], key[8:]):
        word, = struct.unpack("<Q", half)
        raw[half] = key
        for form in (half.hex(), f"{word:016x}", str(word), str(struct.unpack("<q", half)[0])):
            text[form.encode()] = key
        text[key.hex().encode()] = key
files = [os.path.join(d, f) for d, _, fs in os.walk(sys.argv[2]) for f in fs]
found = 0
for path in files:
    data = open(path, "rb").read()
    words = {w.lower() for w in re.findall(rb"[0-9a-fA-F]{16,}|-?[0-9]{15,}", data)}
    for form in [half for half in raw if half in data] + [w for w in text if w in words]:
        print(f"{path} has {form!r}")
        found = 1
print(f"{len(keys)} keys and challenges, {len(files)} files of {sum(map(os.path.getsize, files))} bytes")
sys.exit(found)
PY
exit 0
