#!/bin/bash
# Description: outsiders that record the traffic and know all names, on another machine and as
# another user of the same machine, do not disturb a running job.
#
# Limit: 300 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 3 1
. "$SRC/tests/net/hosts.sh"
export DFSHIM_PORTS=5000-5009 DFSHIM_STATS=$T/stats
magic=$(sed -nE 's/^#define MAGIC[[:space:]]+([0-9a-fx]+)ull\b.*/\1/p' "$SRC/runtime/transport/net/socket/socket.h")

on 0 python3 - record eth0 "$magic" <"$SRC/tests/net/stranger.py" >"$T/greeting" &
recorder=$!
until [ -s "$T/greeting" ]; do kill -0 $recorder || fail "nothing listens to the wire"; sleep 0.05; done
start_hosts 2 disorder --iters $((20000 / SLOW)) --colls 12 --comms 4 --max 65536 --seed "$SEED"
wait $recorder || fail "no greeting was recorded: $(cat "$T"/out*)"
read -r host port hello proof < <(sed 1d "$T/greeting")
at=$((${host##*.} - 1))
p=$(process_of "$at")
rss() { awk '/^VmRSS/ { print $2 }' "/proc/$p/status"; }
sleep 1
before=$(rss)
began=$SECONDS

# On the same machine as another user, and on another machine.
attack() { on "$1" python3 - attack "$host" "$port" "$hello" "$proof" <"$SRC/tests/net/stranger.py"; }
attack "$at" >"$T/near" 2>"$T/near.err" &
near=$!
attack 2 >"$T/far" 2>"$T/far.err" &
far=$!
most=0
while now=$(rss 2>/dev/null) && [ -n "$now" ]; do
	most=$((now > most ? now : most))
	sleep 0.2
done
wait $near || fail "on the same machine: $(cat "$T/near" "$T/near.err")"
wait $far || fail "on another machine: $(cat "$T/far" "$T/far.err")"
end_hosts || fail "strangers disturbed the job: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
echo "rounds: $(cat "$T/near") near, $(cat "$T/far") far; resident: $before kB before, $most kB at most"
[ "$(cat "$T/near")" -gt 0 ] && [ "$(cat "$T/far")" -gt 0 ] || fail "the job ended before all attacks were made"
! grep -q '"net_\(faults\|resent\|dropped\|lost\)": [1-9]' "$T/stats" || fail "strangers broke a connection: $(cat "$T/stats")"
# A sanitizer uses memory of its own.
[ "$SLOW" != 1 ] || [ $((most - before)) -lt 65536 ] || fail "memory grew from $before kB to $most kB"
n=$(grep -c 'refused' "$T/out$at")
[ "$n" -ge 1 ] && [ "$n" -le $((2 + (SECONDS - began) / 60)) ] || fail "$n lines about strangers: $(grep refused "$T/out$at")"
exit 0
