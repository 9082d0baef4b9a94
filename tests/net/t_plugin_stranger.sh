#!/bin/bash
# Description: a stranger connects to a network plugin's listener before the other rank does, and sends what would be right messages but for their mark: they are not believed.
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/plugin.sh"
plugin 12

# The first listener of a job has it as its first connection, if it is quick enough. Prints when it is connected.
stranger() {
	python3 - "$FAKE_PLUGIN_DIR" <<'END'
import os, socket, struct, sys, time
def message(number, frame):
    data = struct.pack("<II16s", 24 + 96, number, os.urandom(16)) + struct.pack("<I92x", frame)
    return struct.pack("<I", len(data)) + data
ACK, BYE = 3, 4
old, end = set(os.listdir(sys.argv[1])), time.time() + 60
while time.time() < end:
    for name in set(os.listdir(sys.argv[1])) - old:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(os.path.join(sys.argv[1], name))
            s.sendall(message(0, ACK) + message(1, BYE))
        except OSError:
            continue
        print("connected", flush=True)
        time.sleep(30)
        sys.exit()
END
}

export DFSHIM_NET=plugin FAKE_PLUGIN=nulls
for try in $(seq 20); do
	stranger >"$T/stranger" &
	at=$!
	job 1 collcheck --ranks 2 --procs 2 --sample $((20 / SLOW)) --seed "$SEED"
	says "over plugin"
	kill $at
	wait $at 2>/dev/null
	grep -q ' of another connection, of 120 bytes' "$T/out" || continue
	[ -s "$T/stranger" ] || fail "a message of another connection, and no stranger"
	echo "refused at try $try"
	exit 0
done
fail "no message of a stranger was refused: $(grep -i plugin "$T/out" | tail -n 20)"
