#!/bin/bash
# Description: the catalogue of deadlocks and random programs under dfshim, each rank on an emulated
# node of its own, over sockets.
# Limit: 400 s
set -u
. "$SRC/tests/lib/clients.sh"
export DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_NET=tcp DFSHIM_STATS=$T/stats
RULES=ours "$SRC/tests/deadlock/catalogue.sh" || exit

# A process that has ended its communication and still needs seconds to exit must not take the
# others' exit for a fault.
mkdir "$T/stays"
printf '#include <unistd.h>\n__attribute__((destructor)) static void stay(void) { sleep(2); }\n' |
	${CC:-gcc} -shared -fPIC -o "$T/stays/library.so" -x c - || fail "a library that stays does not build"
(export T=$T/stays && BEHIND=$T/library.so ONLY="MP-03" RULES=ours "$SRC/tests/deadlock/catalogue.sh") || exit

TSAN_OPTIONS="${TSAN_OPTIONS-} report_thread_leaks=0" "$B/tests/deadlock/generator/random" --programs $((200 / SLOW / SLOW)) --seed "$SEED" ||
	fail "random programs over nodes"
# A process writes its stats when it ends.
n=$(grep -c '"net_bytes_sent": [1-9]' "$T/stats")
echo "$n of $(wc -l <"$T/stats") processes sent over the network"
[ "$n" -ge $((SLOW > 1 ? 1 : 40)) ] || fail "few programs went over the network"
exit 0
