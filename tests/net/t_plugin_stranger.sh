#!/bin/bash
# Description: an outsider connects to a network plugin's listener before the other rank does, and
# sends messages that are right except for their mark: dfshim ignores them.
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/plugin.sh"
plugin 12

# Connects first to the first listener of each of two processes.
stranger() {
	exec python3 - "$FAKE_PLUGIN_DIR" <<'END'
import os, socket, struct, sys, time
def message(number, frame):
    data = struct.pack("<II16s", 24 + 96, number, os.urandom(16)) + struct.pack("<I92x", frame)
    return struct.pack("<I", len(data)) + data
ACK, BYE = 3, 4
kept = {}
while len(kept) < 2:
    for name in os.listdir(sys.argv[1]):
        process = name.split(".")[0]
        s = socket.socket(socket.AF_UNIX)
        try:
            if process not in kept:
                s.connect(os.path.join(sys.argv[1], name))
                s.sendall(message(0, ACK) + message(1, BYE))
                kept[process] = s
        except OSError:
            pass
    time.sleep(0.01)
time.sleep(300)
END
}
# The first session may also end because the other rank's connection breaks, so there are ten tries.
for _ in $(seq 10); do
	rm -f "$FAKE_PLUGIN_DIR"/*
	stranger &
	at=$!
	DFSHIM_NET=plugin FAKE_PLUGIN=awaits job 1 collcheck --ranks 2 --procs 2 --sample $((20 / SLOW)) --seed "$SEED"
	kill $at
	wait $at 2>/dev/null
	says "over plugin"
	! grep -qF " of another connection, of 120 bytes" "$T/out" || exit 0
done
fail "no message of a stranger was refused: $(tail -n 20 "$T/out")"
