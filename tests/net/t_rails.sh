#!/bin/bash
# Description: several RDMA ports for each device, on the tests' libibverbs: all are used; ports and
# devices that fail while a job runs, that recover, that deliver nothing; relaxed ordering, ECE,
# NCCL_IB_QPS_PER_CONNECTION.
#
# Limit: 200 s
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
export DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info DFSHIM_HOST_NODE_DEVICES=1 DFSHIM_NET=auto NCCL_NET_PLUGIN=none
export NCCL_IB_HCA=railx FAKE_VERBS_RAILS=3 FAKE_VERBS_SEEN=$T/seen

job() {
	rm -f "$T/stats" "$T/seen"
	(host "$@") >"$T/out" 2>&1 || {
		tail -n 30 "$T/out"
		fail "$*"
	}
}
lines() { grep -cF -- "$1" "$T/out"; }
says() { [ "$(lines "$1")" -gt 0 ] || fail "nobody says '$1': $(grep -i 'verbs\|rdma' "$T/out" | tail -n 20)"; }
silent() { [ "$(lines "$1")" = 0 ] || fail "somebody says '$1': $(grep -F -- "$1" "$T/out" | head -n 5)"; }
seen() { grep -qxF -- "$1" "$T/seen" || fail "not seen: $1: $(sort -u "$T/seen")"; }
unseen() { ! grep -qxF -- "$1" "$T/seen" || fail "seen: $1"; }
used() { grep -c ' writes$' <(sort -u "$T/seen"); }
# Slices are so large that one port cannot carry them alone.
large() { job disorder --ranks 2 --procs "${procs:-1}" --iters "$1" --colls 4 --max 262144 --seed "$SEED"; }

# Without a fault all ports are used, among them two of one device.
job collcheck --ranks 3 --sample $((40 / SLOW)) --seed "$SEED"
large 20
silent 'over tcp'
[ "$(used)" -ge 3 ] || fail "ports that were used: $(sort -u "$T/seen")"
[ "$(counted net_faults)" = 0 ] || fail "faults where there are none: $(cat "$T/stats")"
seen "relaxed ordering"
seen "ECE 15b3 107"
unseen "ECE 0 0"
procs=2 NCCL_IB_HCA='=railx0:1,railx1:2' large 20
seen "railx0:1 writes"
seen "railx1:2 writes"
[ "$(used)" = 2 ] || fail "ports that were used: $(sort -u "$T/seen")"
NCCL_IB_HCA=railx0 NCCL_IB_QPS_PER_CONNECTION=4 NCCL_IB_ECE_ENABLE=0 NCCL_IB_PCI_RELAXED_ORDERING=0 large 10
[ "$(lines ': verbs from railx0:1')" = 8 ] || fail "queue pairs: $(lines ': verbs from railx0:1')"
unseen "relaxed ordering"
seen "ECE 0 0"
FAKE_VERBS=strict large 5
unseen "relaxed ordering"

# A port that is slower than the other gets less work, whichever of them it is, so the job is faster
# than the slow port.
wrote() { awk -v d="$1" '$1 == d && $2 == "wrote" { n += $3 } END { print int(n / 1024) }' "$T/seen"; }
for slow in 0 2; do
	from=$(date +%s%N)
	NCCL_IB_HCA=railx0,railx2 FAKE_VERBS_SLOW=railx$slow:2 large $((40 / SLOW))
	ms=$((($(date +%s%N) - from) / 1000000))
	few=$(wrote railx$slow) many=$(wrote railx$((2 - slow)))
	echo "railx$slow has 2 MB/s: $few KiB over it, $many KiB over the other one, $ms ms"
	[ "$few" -gt 0 ] && [ "$many" -gt $((4 * few)) ] || fail "railx$slow is slow and has $few KiB, the other one $many KiB"
done

# A port is down for a while: the other one continues. Each side prints one line when it goes down
# and one when it is back.
export NCCL_IB_HCA=railx0,railx2
FAKE_VERBS_DOWN=railx0:$((100 / SLOW)):$((400 / SLOW)) large $((800 / SLOW))
seen "a port was down"
silent 'over tcp'
says 'was broken (railx'
for text in 'the port is down; 1 of 2 queue pairs are left' 'are back: 2 of 2 queue pairs'; do
	n=$(lines "$text")
	[ "$n" -ge 1 ] && [ "$n" -le 4 ] || fail "'$text' is said $n times"
done
echo "port down: healed $(counted net_healed), slices sent again $(counted net_resent)"

# A device fails for good. Then the only device fails, and sockets take over.
procs=2 FAKE_VERBS_FATAL=railx0:$((80 / SLOW)) large $((160 / SLOW))
says 'the RDMA device railx0 has failed'
silent 'over tcp'
NCCL_IB_HCA=railx0 FAKE_VERBS_FATAL=railx0:$((80 / SLOW)) large $((160 / SLOW))
says 'over tcp'

# A port that delivers nothing is not used, and is named. The job must still run when dfshim gives
# the port up.
way='nothing arrives through the queue pair; 1 of 2 queue pairs are left'
for ((n = 1000 / SLOW; n <= 64000; n *= 4)); do
	FAKE_VERBS_MUTE=railx2 DFSHIM_NET_TIMEOUT_MS=4000 large $n
	[ "$(lines "$way")" = 0 ] || break
done
says "$way"
says 'over verbs'
silent 'over tcp'
unseen "railx2:1 writes"

# Faults of any kind on either port.
FAKE_VERBS_FAULTS=$((40 / SLOW)) procs=2 large $((80 / SLOW))
[ "$(counted net_healed)" -gt 0 ] || fail "nothing healed: $(cat "$T/stats")"
echo "faults: healed $(counted net_healed), slices sent again $(counted net_resent), dropped $(counted net_dropped)"
exit 0
