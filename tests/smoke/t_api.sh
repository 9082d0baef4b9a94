#!/bin/bash
# Description: the rest of the host API, with threads and processes; any number of ranks; the lines of NCCL_DEBUG.
set -u
. "$SRC/tests/lib/clients.sh"
host apicheck --ranks 4
host apicheck --ranks 7
host apicheck --procs 3
host newcalls --ranks 3
host newcalls --procs 2
# A number of ranks that no other test has.
host collcheck --ranks $((5 + SEED % 11)) --sample $((200 / SLOW)) --largest 1023 --seed "$SEED"

# Lines that users search for in NCCL's log, in its format: host:pid:tid [device] NCCL INFO text.
NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL NCCL_DEBUG_FILE=$T/log.%h.%p host apicheck --ranks 2
line='^[^ :]+:[0-9]+:[0-9]+ \[[0-9]+\] NCCL INFO '
ptr='(0x[0-9a-f]+|\(nil\))'
while read -r what; do
	cat "$T"/log.* | grep -qE "$line$what" || fail "no line of NCCL_DEBUG like: $what"
done <<E2
ncclCommInitRank comm $ptr rank [0-9]+ nranks 2 cudaDev [0-9]+ nvmlDev [0-9]+ busId [0-9a-f]+ commId 0x[0-9a-f]+ - Init START
ncclCommInitRank comm $ptr rank [0-9]+ nranks 2 cudaDev [0-9]+ nvmlDev [0-9]+ busId [0-9a-f]+ commId 0x[0-9a-f]+ - Init COMPLETE
AllReduce: opCount [0-9a-f]+ sendbuff $ptr recvbuff $ptr count 3000 datatype 7 op 0 root 0 comm $ptr \[nranks=2\] stream $ptr
comm $ptr rank [0-9]+ nranks 2 cudaDev [0-9]+ busId [0-9a-f]+ - Destroy COMPLETE
comm $ptr rank [0-9]+ nranks 2 cudaDev [0-9]+ busId [0-9a-f]+ - Abort COMPLETE
E2
exit 0
