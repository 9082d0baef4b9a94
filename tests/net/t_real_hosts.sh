#!/bin/bash
# Description: two network namespaces connected by a real network plugin (NCCL_NET_PLUGIN=FILE make
# check-plugins): collectives, sends, disorder, a link that is down for a second.
# Limit: 300 s
set -u
[ -z "${REAL_PLUGIN-}" ] || . "$SRC/tests/lib/netns.sh"
[ -z "${REAL_PLUGIN-}" ] || netns 2 1
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/hosts.sh"
. "$SRC/tests/net/real.sh"

for job in "collcheck --sample 60" p2pcheck "disorder --iters 50" "disorder --iters 3 --colls 256"; do
	rm -f "$T/stats"
	echo "$job (2 namespaces)"
	# shellcheck disable=SC2086 # words
	hosts 2 $job --seed "$SEED"
	over "$T/out0" "$T/out1"
done
rm -f "$T/stats"
start_hosts 2 disorder --iters 2000 --colls 4 --seed "$SEED"
said 'over plugin$'
sleep 0.5
link_down 1
sleep 1
link_up 1
end_hosts || fail "after a link that was down for 1 s: $(tail -n 30 "$T"/out*)"
echo "a link down for 1 s"
over "$T/out0" "$T/out1"
exit 0
