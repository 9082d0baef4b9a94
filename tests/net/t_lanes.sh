#!/bin/bash
# Description: NCCL's own kernels on lanes, on two and three machines (network namespaces):
# disorder, too many communicators, a rank that dies, is stopped, aborts while operations are held.
#
# Limit: 400 s
#
# The control NCCL itself uses memory shared between the namespaces. Only dfshim's control plane
# uses the network.
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
[ -f "$B/libdfnccl.so" ] || skip "libdfnccl.so is not built here"
netns 3 1
. "$SRC/tests/net/hosts.sh"
export DFSHIM_EXECUTOR=nccl
unset DFSHIM_TRACE

# Communicators in opposite orders, with and without synchronisation; with room for all, for one
# beside the reserve, and for none.
for sms in 64 32 16; do
	DFSHIM_HOST_SMS=$sms hosts 2 disorder --ranks 2 --colls 4 --comms 4 --iters $((20 / SLOW)) --sync --seed "$SEED"
	DFSHIM_HOST_SMS=$sms hosts 3 disorder --ranks 6 --colls 6 --comms 6 --iters $((10 / SLOW)) --mix --streams 3 --seed "$SEED"
done
hosts 2 p2pcheck --ranks 4 --seed "$SEED"
hosts 2 collcheck --ranks 4 --sample $((60 / SLOW)) --seed "$SEED"

for sms in 64 16; do
	export DFSHIM_HOST_SMS=$sms
	# The others wait for a stopped process.
	start_hosts 2 disorder --colls 4 --comms 4 --iters $((2000 / SLOW)) --seed "$SEED"
	until p=$(process_of 1) && [ -n "$p" ]; do sleep 0.05; done
	sleep 0.3
	kill -STOP "$p" && sleep 2 && kill -CONT "$p"
	end_hosts || fail "$sms: stopped for 2 s: status ${rcs[*]}: $(tail -n 20 "$T"/out*)"
	# A process that dies ends the others, with the reason.
	start_hosts 3 disorder --colls 4 --comms 4 --iters 100000000 --seed "$SEED"
	until p=$(process_of 1) && [ -n "$p" ]; do sleep 0.05; done
	sleep 1
	kill -KILL "$p"
	end_hosts && fail "$sms: a death: status 0"
	for i in 0 2; do
		grep -q 'rank 1 .* has died' "$T/out$i" || fail "$sms: a death: node $i: $(cat "$T/out$i")"
	done
done
# A communicator is aborted while its own operations and others' are held.
for case in abort abort-sync leave busy; do
	: >"$T/until"
	RUDE_UNTIL=$T/until RUDE_CASE=$case hosts 3 rude --ranks 3
done
exit 0
