#!/bin/bash
# Description: communicators that ask for a network by name (netName), or by a rule of DFSHIM_NET,
# get it side by side in one job; a network that does not exist is reported; the environment has
# precedence.
#
# Limit: 200 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
. "$SRC/tests/net/plugin.sh"

# over NAMES...: the devices are connected by these networks, and by no other. (The end that accepts
# prints the line only if a thread waits for the connection.)
over() {
	local found
	found=$(sed -n 's/.* is joined with .* over //p' "$T/out" | sort -u | xargs)
	[ "$found" = "$*" ] || fail "joined over $found, not $*: $(grep 'is joined' "$T/out")"
	[ "$(counted net_faults)$(counted net_resent)" = 00 ] || fail "faults where there are none: $(cat "$T/stats")"
}

# Both a rank that asks by name and the endpoint's thread look for networks. This happens once for
# each device, however long it takes, and no lock is held meanwhile.
FAKE_VERBS=slow NET_NAMES=,IB job 1 netcheck --ranks 2
for device in 0 1; do
	[ "$(grep -c "device $device can use verbs" "$T/out")" = 1 ] || fail "device $device: opened more than once, or not: $(grep 'can use' "$T/out")"
done

plugin 12
for procs in 1 2; do
	NET_NAMES=Socket,IB,Fake job 1 netcheck --ranks 2 --procs $procs
	over plugin tcp verbs
	NET_NAMES=Socket,socket job 1 netcheck --ranks 2 --procs $procs
	over tcp
	# An empty name: the best network.
	NET_NAMES=,IB job 1 netcheck --ranks 2 --procs $procs
	over plugin verbs
done

# As in NCCL, the environment has precedence.
DFSHIM_NET=tcp NET_NAMES=Socket,IB,Fake job 1 netcheck --ranks 2
over tcp
NCCL_NET=IB NET_NAMES=Socket,IB,Fake job 1 netcheck --ranks 2
over verbs

# Rules for communicators precede their own netName. A word without a rule applies to the others.
DFSHIM_NET=comm=net0:tcp,comm=NET1:verbs,comm=net2:plugin NET_NAMES=,, job 1 netcheck --ranks 2
over plugin tcp verbs
DFSHIM_NET=tcp,comm=net1:verbs NET_NAMES=,,Fake job 1 netcheck --ranks 2 --procs 2
over tcp verbs
DFSHIM_NET=comm=net0:tcp NET_NAMES=IB,IB job 1 netcheck --ranks 2
over tcp verbs
DFSHIM_NET=off,comm=net0:auto NCCL_NET=IB job 1 netcheck --ranks 2
over verbs

# A network that does not exist: an error on all ranks, with the reason, and no hang.
for name in Other IB; do
	(
		[ $name = Other ] || export NCCL_IB_HCA=nothing
		NET_NAMES=$name DFSHIM_HOST_NODE_DEVICES=1 timeout -k 5 60 "$B/dfshim" run --host -- "$C/netcheck" --ranks 2 --timeout 30
		echo "status $?"
	) >"$T/out" 2>&1
	says "status 3"
	says "asks for network $name (netName), which device 0 does not have"
	says "asks for network $name (netName), which device 1 does not have"
	says "the two do not have the network that their communicator asks for"
done
not_joined() {
	DFSHIM_NET=$1 NET_NAMES=, DFSHIM_HOST_NODE_DEVICES=1 timeout -k 5 60 "$B/dfshim" run --host -- "$C/netcheck" --ranks 2 --timeout 30
	echo "status $?"
}
NCCL_IB_HCA=nothing not_joined comm=net1:verbs >"$T/out" 2>&1
says "status 3"
says "asks for network verbs (DFSHIM_NET), which device 0 does not have"
says "the two do not have the network that their communicator asks for"
not_joined comm=net1:off >"$T/out" 2>&1
says "status 3"
says "DFSHIM_NET=comm=net1:off keeps nodes apart"
# Within a node no network is needed.
NET_NAMES=Other job 2 netcheck --ranks 2
exit 0
