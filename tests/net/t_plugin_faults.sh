#!/bin/bash
# Description: a network plugin that fails or reports wrong results, at start and while jobs run:
# results are right, one line names the plugin, and another network takes over where permitted.
# Limit: 300 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/plugin.sh"
plugin 12

# Errors of each call, and wrong sizes: new connections repair them.
export DFSHIM_NET=plugin DFSHIM_NET_TIMEOUT_MS=$((30000 * SLOW))
for try in FAIL=isend:150 FAIL=irecv:150 FAIL=test:3000 LIE=$((150 / SLOW)); do
	export "FAKE_PLUGIN_$try" FAKE_PLUGIN=nulls,late,haunts
	job 1 disorder --ranks 2 --procs 2 --iters $((200 / SLOW)) --colls 4 --max 65536 --seed "$SEED"
	echo "$try: $(sort "$T/plugin" | tr '\n' ' ') healed $(counted net_healed), sent again $(counted net_resent)"
	[ $(($(figure failures) + $(figure lies))) -gt 0 ] && [ "$(counted net_healed)" -gt 0 ] ||
		fail "$try: nothing failed and healed: $(cat "$T/plugin" "$T/stats")"
	case $try in
	LIE*) says "the network plugin Fake reports " ;;
	*) says "of the network plugin Fake returned 2, system error: NET/Fake: " ;;
	esac
	unset FAKE_PLUGIN_FAIL FAKE_PLUGIN_LIE
done
# Messages that are reported as sent but lost; messages that arrive on another connection.
FAKE_PLUGIN_LOSE=30 DFSHIM_NET_TIMEOUT_MS=$((1500 * SLOW)) job 1 disorder --ranks 2 --procs 2 --iters 20 --colls 4 --max 65536 --seed "$SEED"
[ "$(figure lies)" -gt 0 ] && [ "$(counted net_healed)" -gt 0 ] || fail "nothing was lost and healed: $(cat "$T/plugin" "$T/stats")"
echo "lost $(figure lies), healed $(counted net_healed)"
FAKE_PLUGIN_MIX=4 job 1 collcheck --ranks 4 --sample $((60 / SLOW)) --seed "$SEED"
[ "$(figure lies)" -gt 0 ] && [ "$(counted net_healed)" -gt 0 ] || fail "nothing was mixed up and healed: $(cat "$T/plugin" "$T/stats")"
says " of another connection, of "
echo "mixed up $(figure lies), healed $(counted net_healed)"
for try in connect:1:1 accept:2:1 listen:1:1 regMr:2:1; do
	FAKE_PLUGIN_FAIL=$try job 1 collcheck --ranks 2 --sample 5 --seed "$SEED"
	[ "$(figure failures)" = 1 ] || fail "$try: $(cat "$T/plugin")"
	says "over plugin"
done

# A plugin that never works: dfshim uses sockets, where permitted. Without isend() the third session
# may also end because the peer's end closes the connection, so any function of the plugin may be
# named.
export DFSHIM_NET=auto NCCL_IB_DISABLE=1
for try in '_FAIL=listen:1 listen() of the network plugin Fake returned 2' '_FAIL=isend:1 () of the network plugin Fake returned ' \
	'=refuse connect() of the network plugin Fake returned 6, remote error: NET/Fake: cannot connect'; do
	export "FAKE_PLUGIN${try%% *}"
	job 1 collcheck --ranks 2 --sample 5 --seed "$SEED"
	says "network plugin Fake does not connect to device "
	says "${try#* }"
	says "dfshim uses sockets (NCCL_NET_PLUGIN names other plugins, or none)"
	says "over tcp"
	unset FAKE_PLUGIN_FAIL FAKE_PLUGIN
done
FAKE_PLUGIN=deaf DFSHIM_NET_TIMEOUT_MS=2000 job 1 collcheck --ranks 2 --sample 5 --seed "$SEED"
says "nothing arrives through its connections"
says "over tcp"

# A plugin that cannot be started: one line with name, file, version, reason, and the variable to
# set.
for try in 'init init() returned 2 (system error): NET/Fake: has no hardware' 'devices devices() returned 2 (system error)' \
	'none it has no device' 'missing it has no function isend' 'gpu fake0 does not accept host memory (ptrSupport 0x2)' \
	'unpack fake0 needs code of its own on the GPU (netDeviceType 1)' \
	'tiny fake0 says that a message has 0 bytes at most (maxP2pBytes)' "hang $NCCL_NET_PLUGIN did not return within 10 s"; do
	export FAKE_PLUGIN=${try%% *}
	job 1 collcheck --ranks 2 --sample 5 --seed "$SEED"
	case $FAKE_PLUGIN in
	hang) says "no network plugin can be used: ${try#* }" ;;
	*) says "no network plugin can be used: Fake of $NCCL_NET_PLUGIN (v12): ${try#* }" ;;
	esac
	says "NCCL_NET_PLUGIN names others, or none"
	says "over tcp"
done
# The next plugin of the list is used.
export FAKE_PLUGIN=''
plugin 6
six=$NCCL_NET_PLUGIN
plugin 9
NCCL_NET_PLUGIN=nosuch,$six,$NCCL_NET_PLUGIN job 1 collcheck --ranks 2 --sample 5 --seed "$SEED"
says "network plugin Fake (v9, "
says "over plugin"
# No other network is permitted.
wrong() {
	DFSHIM_NET=plugin DFSHIM_HOST_NODE_DEVICES=1 timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host -- \
		"$C/collcheck" --ranks 2 --sample 5 --timeout "${QUIET:-60}" >"$T/out" 2>&1 && fail "a job without a network ended well"
}
NCCL_NET_PLUGIN=nosuch wrong
says "DFSHIM_NET=plugin, but no network plugin can be used: nosuch not loaded: libnccl-net-nosuch.so: cannot open"
FAKE_PLUGIN=refuse DFSHIM_NET_TIMEOUT_MS=2000 wrong
says "cannot connect; no other network may be used"
says "NET_STALL: "
exit 0
