#!/bin/bash
# Description: NCCL's RAS protocol over a socket: the answers in text and JSON. Idle clients give way to new ones. Two jobs use one port; the second answers when the first has ended.
set -u
. "$SRC/tests/lib/clients.sh"
S=$B/tests/deadlock/interpreter/script
[ -x "$S" ] || skip "the interpreter is not built here"
port=$((20000 + $$ % 12000)) # below the ports that the kernel gives out

# ask COMMANDS...: prints the server's answers until it closes the connection.
ask() {
	python3 - "$port" "$@" <<'PY'
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
s.sendall("".join(c + "\r\n" for c in sys.argv[2:]).encode())
while True:
    d = s.recv(65536)
    if not d:
        break
    sys.stdout.write(d.decode())
PY
}
# job SECONDS NAME: starts a job of two processes. One of them has issued one AllReduce more than
# the other.
job() {
	cat >"$T/$2.txt" <<-END
		ranks 2
		procs
		comm A 0 1
		0: AR A s; spoll s; AR A s; sleep ${1}000
		1: AR A s; spoll s; sleep ${1}000; AR A s
	END
	NCCL_RAS_ADDR=127.0.0.1:$port DFSHIM_TIMEOUT_MS=600000 LD_PRELOAD="$B/libdfshim.so $B/libdfhost.so" \
		DFSHIM_BACKEND=host timeout -k 2 "${LIMIT:-60}" "$S" --timeout $((50 * SLOW)) "$T/$2.txt" >"$T/$2.log" 2>&1 &
}
# Waits until a server answers.
up() {
	for _ in $(seq 200); do
		ask "client protocol 2" "status" 2>/dev/null | grep -q "^ *0 .*MISMATCH" && return
		sleep 0.1
	done
	fail "nobody answers at port $port: $(ask "client protocol 2" status 2>&1 | tail -20; cat "$T"/*.log)"
}

# Long enough for a busy machine: what follows asks this job.
job $((14 + SLOW)) first
first=$!
up
ask "CLIENT PROTOCOL 2" "TIMEOUT 5" "TIMEOUT x" "set format pictures" "nonsense" "verbose status" >"$T/text" || fail "text: $(cat "$T/text")"
for want in "^SERVER PROTOCOL 2$" "^OK$" "^ERROR: Invalid timeout value x$" "^ERROR: Invalid format pictures$" \
	"^ERROR: Unknown command nonsense$" "^ *1  *2  *1  *2  *2$" "^ *0  *1  *1  *2  *2  *2  *RUNNING  MISMATCH$" \
	"ranks have different AllReduce operation counts" "1 rank has launched up to operation 3$" \
	"Rank 1 -- GPU 1 managed by process [0-9]* on node" "^Verdict$"; do
	grep -Eq "$want" "$T/text" || fail "no \"$want\" in: $(cat "$T/text")"
done
# With a sanitizer the watchdog may answer too late. The client learns this and asks again.
for _ in $(seq "$SLOW"); do
	ask "SET FORMAT json" "STATUS" | sed 1d >"$T/json"
	grep -q "did not answer in time" "$T/json" || break
done
jq -e '.communicators_count == 1 and .communicators[0].size == 2 and .communicators[0].missing_ranks == [] and
	([.communicators[0].ranks[].collective_counts.AllReduce] | sort) == [2, 3] and .ras.timeouts_count == 0 and
	(.verdict | length) > 0' "$T/json" >/dev/null || fail "JSON: $(cat "$T/json")"
python3 "$SRC/tests/lib/json_keys.py" RAS "$T/json" || fail "not as docs/json.md says: $(cat "$T/json")"

# Clients that connect and send nothing, sixteen and more, do not keep another client out, even if
# some of them sent a command once.
python3 - "$port" <<'PY' || fail "idle clients keep others out"
import socket, sys
def connect():
    return socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10)
asked = connect()
asked.sendall(b"client protocol 2\n")
assert asked.recv(100) == b"SERVER PROTOCOL 2\n"
idle = [connect() for i in range(16)]
for i in range(2):
    late = connect()
    late.sendall(b"timeout 5\n")
    assert late.recv(100) == b"OK\n", "the new client is turned away"
    # a client that sent a command gives way only after those that sent none
    asked.sendall(b"timeout 5\n")
    assert asked.recv(100) == b"OK\n", "the client that had sent a command gave way"
    idle.append(late)
PY

# Another job with the same port has no RAS port at first. It answers when the first job has ended.
job $((24 + 2 * SLOW)) second
second=$!
wait "$first" || fail "the first job: status $?: $(cat "$T/first.log")"
up
kill -0 "$second" 2>/dev/null || fail "it was not the second job that answered: $(cat "$T/second.log")"
wait "$second" || fail "the second job: status $?: $(cat "$T/second.log")"

# NCCL's RAS has the port. The job runs without RAS, reports that, and does not disturb NCCL's
# clients until NCCL has ended.
python3 - "$port" "$T/theirs" <<'PY' &
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
open(sys.argv[2], "w").close()
while True:
    client = server.accept()[0]
    client.recv(100)
    client.sendall(b"theirs\n")
    client.close()
PY
theirs=$!
for _ in $(seq 100); do [ -e "$T/theirs" ] || sleep 0.1; done
export DFSHIM_DEBUG=info
job $((4 + SLOW)) third
third=$!
for _ in $(seq 200); do
	! grep -q "another process answers ncclras at 127.0.0.1:$port: Address already in use" "$T/third.log" || break
	sleep 0.1
done
grep -q "another process answers ncclras at" "$T/third.log" || fail "the third job does not say that the port is in use: $(cat "$T/third.log")"
[ "$(ask status)" = theirs ] || fail "the other's client gets: $(ask status)"
kill $theirs
up
wait "$third" || fail "the third job: status $?: $(cat "$T/third.log")"
# In mode trace NCCL answers, so dfshim does not listen.
NCCL_RAS_ADDR=127.0.0.1:$port timeout -k 2 "${LIMIT:-60}" env "${NCCL_RULES[@]}" DFSHIM_BACKEND=host "$S" --timeout $((50 * SLOW)) "$T/third.txt" \
	>"$T/fourth.log" 2>&1 &
fourth=$!
for _ in $(seq 30); do
	! ask status >"$T/answer" 2>/dev/null || fail "in mode trace a process answers: $(cat "$T/answer")"
	sleep 0.1
done
wait $fourth || fail "mode trace: status $?: $(cat "$T/fourth.log")"
! grep -q "ncclras" "$T/fourth.log" || fail "mode trace: $(cat "$T/fourth.log")"
exit 0
