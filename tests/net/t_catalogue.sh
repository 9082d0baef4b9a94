#!/bin/bash
# Description: the catalogue of deadlocks and random programs by our rules, each rank on a node of its own, over sockets.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
export DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_NET=tcp DFSHIM_STATS=$T/stats
RULES=ours "$SRC/tests/deadlock/catalogue.sh" || exit

# A process that has said goodbye and needs seconds for the rest of its end does not take the others' leaving for a fault.
mkdir "$T/stays"
printf '#include <unistd.h>\n__attribute__((destructor)) static void stay(void) { sleep(2); }\n' |
	${CC:-gcc} -shared -fPIC -o "$T/stays/library.so" -x c - || fail "a library that stays does not build"
(export T=$T/stays && BEHIND=$T/library.so ONLY="MP-03" RULES=ours "$SRC/tests/deadlock/catalogue.sh") || exit

TSAN_OPTIONS="${TSAN_OPTIONS-} report_thread_leaks=0" "$B/tests/deadlock/generator/random" --programs $((200 / SLOW / SLOW)) --seed "$SEED" ||
	fail "random programs over nodes"
# The stats are of processes that have ended.
n=$(grep -c '"net_bytes_sent": [1-9]' "$T/stats")
echo "$n of $(wc -l <"$T/stats") processes sent over the network"
[ "$n" -ge $((SLOW > 1 ? 1 : 40)) ] || fail "few programs went over the network"
exit 0
