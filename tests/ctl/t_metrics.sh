#!/bin/bash
# Description: DFSHIM_METRICS: files and HTTP, read by a strict parser and by prometheus_client; counts; the verdict of a hang; bad settings; other users' access to the port and the file; the names in the dashboard.
set -u
. "$SRC/tests/lib/clients.sh"
om() { python3 "$SRC/tests/ctl/openmetrics.py" "$@"; }
get() { om get "$@" || fail "get $*"; }
M=$T/metrics
mkdir "$M"
# run ARGS...: runs a job on the CPU backend.
run() { timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host "$@" >"$T/out" 2>&1; }

# One file for each rank and no other file. The counts equal those of DFSHIM_STATS and of the
# program.
umask 022
DFSHIM_STATS=$T/stats DFSHIM_METRICS=$M/dfshim.prom run -n 2 -- "$C/disorder" --colls 4 --iters 50 || fail "$(cat "$T/out")"
[ "$(ls "$M")" = "dfshim-0.prom
dfshim-1.prom" ] || fail "files: $(ls "$M")"
for f in "$M"/*; do
	om check "$f" || fail "$(cat "$f")"
	[ "$(stat -c %a "$f")" = 644 ] || fail "mode of $f: $(stat -c %a "$f")"
	[ "$(get "$f" dfshim_operations_total kind=AllReduce)" = 200 ] && [ "$(get "$f" dfshim_operations_finished_total)" = 200 ] &&
		[ "$(get "$f" dfshim_running)" = 0 ] && [ "$(get "$f" dfshim_operation_seconds_count)" = 200 ] &&
		[ "$(get "$f" dfshim_oldest_operation_seconds)" = 0 ] || fail "$(cat "$f")"
done
sum=$(jq -s 'map(.preemptions) | add' "$T/stats")
[ "$sum" -gt 0 ] || fail "no preemptions"
[ "$(($(get "$M/dfshim-0.prom" dfshim_preemptions_total) + $(get "$M/dfshim-1.prom" dfshim_preemptions_total)))" = "$sum" ] ||
	fail "preemptions differ from DFSHIM_STATS: $sum"
om dashboard "$SRC/docs/grafana/dfshim.json" "$M/dfshim-0.prom" || fail "docs/grafana/dfshim.json"

# Mode trace, and %r in a name.
DFSHIM_METRICS=$M/%r.of.%h run -n 2 --rules nccl -- "$C/disorder" --colls 2 --iters 20 --inorder || fail "$(cat "$T/out")"
f=$M/1.of.$(hostname -s)
om check "$f" && [ "$(get "$f" dfshim_operations_total)" = 40 ] && [ "$(get "$f" dfshim_running mode=trace)" = 0 ] ||
	fail "mode trace: $(cat "$f"; ls "$M")"

# A wait that is released.
DFSHIM_METRICS=$M/r.prom run -n 2 -- "$C/disorder" --iters 2 --colls 2 --sync || fail "$(cat "$T/out")"
[ "$(($(get "$M/r-0.prom" dfshim_releases_total) + $(get "$M/r-1.prom" dfshim_releases_total)))" -gt 0 ] || fail "no release: $(cat "$T/out")"

# hang RULES RANKS CLIENT ARGS...: after a hang the file of the process that reports it has the
# verdict, even in mode trace, where the process ends without destructors. Files are named by
# process, because one of the clients starts its ranks itself.
hang() {
	local rules=$1 ranks=$2 word f
	shift 2
	rm -f "$M"/*
	DFSHIM_TIMEOUT_MS=$((1500 * SLOW)) DFSHIM_TIMEOUT_ACTION=exit DFSHIM_METRICS=$M/%p.prom run -n "$ranks" --rules "$rules" -- "$@" && fail "$1 ends"
	word=$(grep -oE '^[A-Z_]+: ' "$T/out" | head -n 1)
	for f in "$M"/*; do om check "$f" || fail "$rules: $(cat "$f")"; done
	cat "$M"/* | grep -q "^dfshim_verdict{.*word=\"${word%: }\"} 1$" || fail "$rules: no file has the verdict $word: $(cat "$T/out")"
	[ "$(cat "$M"/* | grep -c '^dfshim_verdict{.* 1$')" -le 2 ] || fail "$rules: $(grep verdict "$M"/*)"
}
hang dfshim 1 "$C/differ" count
hang nccl 2 "$C/disorder" --colls 2 --iters 2 --sync

# bad SETTING PATTERN: a bad setting causes one line that matches PATTERN, and the job goes on.
bad() {
	DFSHIM_METRICS=$1 timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/disorder" --colls 2 --iters 2 >"$T/out" 2>&1 || fail "$1: $(cat "$T/out")"
	[ "$(grep -c "DFSHIM_METRICS=${1:0:60}" "$T/out")" = 1 ] && grep -q "$2" "$T/out" || fail "${1:0:60}: not one line with \"$2\": $(cat "$T/out")"
}
bad metrics.prom "neither a port (1 to 65535) nor an absolute path"
bad 0 "neither a port"
bad 70000 "neither a port"
bad "$T/absent/m.prom" "No such file or directory"
bad "/$(printf 'x%.0s' $(seq 5000))" "too long"

# HTTP while the job runs; an occupied port; clients that send nothing, too much, or nonsense.
python3 - "$B" "$C" "$T" <<'PY' || fail "HTTP: $(cat "$T/http.log")"
import http.client, os, signal, socket, subprocess, sys, time
B, C, T = sys.argv[1:4]
holder = socket.socket()
# The kernel gives out the ports from 32768 on.
base = 20000 + os.getpid() % 12000
while True:
    try:
        with socket.socket() as free:
            free.bind(("127.0.0.1", base))
        holder.bind(("127.0.0.1", base + 1))
        break
    except OSError:
        base += 2
log = open(T + "/http.log", "wb")
job = subprocess.Popen([B + "/dfshim", "run", "--host", "-n", "2", "--", C + "/disorder", "--colls", "2", "--iters", "100000000",
                        "--until", T + "/stop"], env=dict(os.environ, DFSHIM_METRICS=str(base), NCCL_RAS_ENABLE="0"),
                       stdout=log, stderr=log)
def page(path="/metrics", headers={}):
    c = http.client.HTTPConnection("127.0.0.1", base)
    c.request("GET", path, headers=headers)
    return c.getresponse()
def operations(text):
    return sum(int(l.split()[-1]) for l in text.splitlines() if l.startswith(b"dfshim_operations_total{"))
try:
    while True:
        try:
            r = page()
            break
        except ConnectionRefusedError:
            assert job.poll() is None
            time.sleep(0.1)
    assert r.status == 200 and r.getheader("Content-Type").startswith("application/openmetrics-text"), r.getheaders()
    first = r.read()
    open(T + "/first", "wb").write(first)
    idle = [socket.create_connection(("127.0.0.1", base)) for _ in range(40)]
    for s in idle[:10]:
        s.sendall(b"GET /metrics HT")
    for what in (b"\0\xff" * 2000, b"x" * 100000, b"\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n"):
        s = socket.create_connection(("127.0.0.1", base))
        try:
            s.sendall(what)
        except OSError:
            pass
        idle.append(s)
    second = first
    while operations(second) <= operations(first):
        r = page("/?x=1", {"Accept": "x" * 3000, "X": "y"})
        assert r.status == 200
        second = r.read()
    open(T + "/second", "wb").write(second)
    assert page("/other").status == 404
    listening = [l.split()[1] for f in ("tcp", "tcp6") for l in open("/proc/net/" + f).readlines()[1:] if l.split()[3] == "0A"]
    assert [a for a in listening if a.endswith(f":{base:04X}")] == [f"0100007F:{base:04X}"], listening
finally:
    open(T + "/stop", "w")
    assert job.wait() == 0
PY
grep -q "DFSHIM_METRICS=.*: cannot listen at 127.0.0.1:[0-9]*: Address already in use" "$T/http.log" || fail "no line for the port in use: $(cat "$T/http.log")"
om check "$T/first" && om check "$T/second" || fail "$(cat "$T/second")"
first=$(get "$T/first" dfshim_operations_total)
[ "$(get "$T/second" dfshim_operations_total)" -gt "${first:-0}" ] && [ "$(get "$T/second" dfshim_running)" = 1 ] ||
	fail "nothing moves: $(cat "$T/second")"

# A symbolic link of another user in place of the file is replaced and not followed. A link in a
# folder to which all users may write remains.
mkdir -m 777 "$T/common"
ln -s "$T/victim" "$T/common/m.prom"
DFSHIM_METRICS=$T/common/m.prom timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- "$C/disorder" --colls 2 --iters 2 >"$T/out" 2>&1 || fail "$(cat "$T/out")"
[ ! -e "$T/victim" ] && [ -f "$T/common/m.prom" ] && [ ! -L "$T/common/m.prom" ] || fail "a planted link: $(ls -l "$T/common")"
