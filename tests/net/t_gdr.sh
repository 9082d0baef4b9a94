#!/bin/bash
# Description: slots of connectors between nodes in GPU memory, on the test driver and the tests'
# libibverbs: right results where the GPU sees RDMA writes late, and wrong ones where they are not
# read back; faults; each missing feature leads to host memory and is named; slices that cannot be
# delivered are lost, not waited for.
#
# Limit: 400 s
set -u
. "$SRC/tests/cuda/dryrun.sh"
SLOW=1
. "$SRC/tests/net/verbs.sh"
export DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 DFSHIM_STATS=$T/stats DFSHIM_DEBUG=info DFSHIM_HOST_NODE_DEVICES=1 NCCL_NET_PLUGIN=none
export DFSHIM_NET=verbs DFSHIM_NET_GDR=1 FAKE_CUDA_GDR=dmabuf FAKE_CUDA_DEVICES=4 FAKE_VERBS_RAILS=3 FAKE_VERBS_SEEN=$T/seen

# run CLIENT ARGS...: runs the client; sets rc, output in $T/out.
run() {
	local c=$1
	shift
	rc=0
	rm -f "$T/stats" "$T/seen"
	timeout -k 5 "${LIMIT:-100}" env "LD_PRELOAD=$B/libdfshim.so" "$C/$c" "$@" --timeout "${QUIET:-40}" >"$T/out" 2>&1 || rc=$?
}
job() {
	run "$@"
	[ $rc = 0 ] || fail "$*: status $rc: $(grep -v 'INFO' "$T/out" | tail -n 20)"
}
says() { grep -qF -- "$1" "$T/out" || fail "nobody says '$1': $(grep 'slots for\|WARN' "$T/out" | tail -n 10)"; }
silent() { ! grep -F -- "$1" "$T/out" || fail "somebody says '$1'"; }
in_gpu() { says "slots for other nodes lie in GPU memory (${1:-dma-buf, arriving data are read back})"; }
large() { job disorder --ranks 2 --procs 2 --iters "$1" --colls 4 --max 262144 --seed "$SEED"; }

# Collectives and messages, with nodes of one device and of two.
job collcheck --ranks 3 --sample 20 --seed "$SEED"
in_gpu
DFSHIM_HOST_NODE_DEVICES=2 job collcheck --ranks 4 --procs 4 --sample 20 --seed "$SEED"
in_gpu
job p2pcheck --ranks 3 --seed "$SEED"
in_gpu
[ "$(counted net_reads_back)" -gt 0 ] || fail "nothing was read back: $(cat "$T/stats")"
job disorder --ranks 2 --iters 10 --seed "$SEED"
[ "$(counted net_faults)$(counted net_resent)" = 00 ] || fail "faults where there are none: $(cat "$T/stats")"
grep -qx "dma-buf" "$T/seen" || fail "no dma-buf was registered: $(cat "$T/seen")"
# The compiled kernel, in weakly ordered memory.
if [ -f "$B/kernels/daemon.90.ptx" ]; then
	FAKE_CUDA_PTX=$B/kernels/daemon.90.ptx FAKE_CUDA_FAULTS=$T/faults FAKE_CUDA_WEAK=1 DFSHIM_THREADS=64 \
		job collcheck --ranks 2 --sample 10 --seed "$SEED"
	in_gpu
	no_faults "collcheck over GPU memory"
fi
# GPU memory is used only if it is asked for.
DFSHIM_NET_GDR=0 job collcheck --ranks 2 --sample 5
silent "slots for other nodes"
! grep -qx "dma-buf" "$T/seen" || fail "a dma-buf was registered that nobody asked for"

# The control: without reading back, results are wrong. On a GPU that orders writes they are right.
NCCL_GDR_FLUSH_DISABLE=1 run collcheck --ranks 2 --sample 10 --seed "$SEED"
in_gpu "dma-buf, NCCL_GDR_FLUSH_DISABLE=1"
[ $rc != 0 ] && grep -q ': wrong$' "$T/out" || fail "right without reading back: status $rc"
FAKE_CUDA_GDR=ordered job collcheck --ranks 3 --sample 10 --seed "$SEED"
in_gpu "dma-buf, the GPU orders writes"
[ "$(counted net_reads_back)" = 0 ] || fail "read back without need: $(cat "$T/stats")"
# The senders' slots are in host memory.
NCCL_NET_GDR_READ=0 job collcheck --ranks 3 --sample 10 --seed "$SEED"
in_gpu

# The missing feature is named, and slots are in host memory.
missing() { # NAME=VALUE TEXT
	(
		export "${1?}"
		job collcheck --ranks 2 --sample 3
		says "slots for other nodes lie in host memory: $2"
		[ "$(counted net_reads_back)" = 0 ] || fail "$1: read back: $(cat "$T/stats")"
	) || exit 1
}
none='and the module nvidia_peermem is not loaded'
has=
[ ! -e /sys/module/nvidia_peermem/version ] || has=1
missing FAKE_CUDA_WITHOUT=cuMemGetHandleForAddressRange "the driver lacks cuMemGetHandleForAddressRange"
missing FAKE_CUDA_GDR=plain "the driver has no dma-buf for the GPU"
missing NCCL_DMABUF_ENABLE=0 "NCCL_DMABUF_ENABLE=0"
missing FAKE_VERBS_DMABUF=no "the kernel or the RDMA device takes no dma-buf"
missing FAKE_VERBS_DMABUF=full "Cannot allocate memory"
[ -n "$has" ] || says "$none"
missing NCCL_NET_GDR_LEVEL=LOC "NCCL_NET_GDR_LEVEL"
missing DFSHIM_NET=auto "sockets or a plugin may connect them"
(
	unset FAKE_CUDA_GDR
	missing X=1 "the GPU has no GPUDirect RDMA"
) || exit 1
$CC -DNO_DMABUF -shared -fPIC -Wall -Werror -O1 -pthread -o "$T/libold_verbs.so" "$SRC/tests/net/fake/fake_verbs.c" "$SRC/tests/net/fake/fake_nic.c" ||
	fail "an older libibverbs of ours does not build"
missing "NCCL_IBVERBS_LIB=$T/libold_verbs.so" "libibverbs has no ibv_reg_dmabuf_mr"

# `dfshim net` reports the same in advance.
net() { # WANTED VARIABLES...
	env "${@:2}" "$B/dfshim" net --json >"$T/net.json" 2>"$T/err" || fail "dfshim net, ${*:2}: status $?: $(cat "$T/err")"
	is=$(jq -r '.dfshim.gpus | .[] | "\(.gpu) \(.slots): \(.reason)"' "$T/net.json" | tail -n 1)
	[[ $is == "3 $1"* ]] || fail "dfshim net, ${*:2}: '$is', not '3 $1'"
}
net "GPU: dma-buf, arriving data are read back"
net "GPU: dma-buf, the GPU orders writes" FAKE_CUDA_GDR=ordered
net "host: DFSHIM_NET_GDR=0" DFSHIM_NET_GDR=0
net "host: sockets or a plugin may connect them" DFSHIM_NET=auto
net "host: the GPU has no GPUDirect RDMA" -u FAKE_CUDA_GDR
net "host: NCCL_NET_GDR_LEVEL" NCCL_NET_GDR_LEVEL=LOC
net "host: no RDMA port is usable" FAKE_VERBS=none
if [ -z "$has" ]; then
	net "host: the driver has no dma-buf for the GPU, $none" FAKE_CUDA_GDR=plain
	net "host: NCCL_DMABUF_ENABLE=0, $none" NCCL_DMABUF_ENABLE=0
	net "host: the driver lacks cuMemGetHandleForAddressRange, $none" FAKE_CUDA_WITHOUT=cuMemGetHandleForAddressRange
	net "host: the kernel or the RDMA device takes no dma-buf, $none" FAKE_VERBS_DMABUF=no
	net "host: libibverbs has no ibv_reg_dmabuf_mr" "NCCL_IBVERBS_LIB=$T/libold_verbs.so"
fi
"$B/dfshim" net >"$T/text" || fail "dfshim net: status $?"
grep -q '^  GPU 0 (.*): slots for other machines lie in GPU memory: dma-buf, arriving data are read back$' "$T/text" ||
	fail "dfshim net as text: $(tail -n 6 "$T/text")"

# GPU memory is registered by its address, where the kernel's module exists.
if unshare -m true 2>/dev/null; then
	for dir in /sys/module /sys/kernel/mm; do
		FAKE_CUDA_GDR=plain FAKE_VERBS_PEERMEM=1 run_in=$dir unshare -m bash -c '
			mount -t tmpfs none "$run_in" && case $run_in in
			/sys/module) file=$run_in/nvidia_peermem/version ;;
			*) file=$run_in/memory_peers/nv_mem/version ;;
			esac && mkdir -p "${file%/*}" && echo 1 >"$file" &&
			exec env "LD_PRELOAD=$1" timeout -k 5 100 "$2" --ranks 2 --sample 5 --timeout 40' - "$B/libdfshim.so" "$C/collcheck" \
			>"$T/out" 2>&1 || fail "by address ($dir): $(tail -n 5 "$T/out")"
		in_gpu "nvidia_peermem, arriving data are read back"
	done
else
	echo "no rights for a mount namespace: GPU memory by its address was not tried"
fi

# Faults: of queue pairs and devices; of reads; a port that is down for a while; a device that fails
# while others continue.
export NCCL_IB_HCA=railx0,railx2
FAKE_VERBS_FAULTS=40 large 60
in_gpu
[ "$(counted net_healed)" -gt 0 ] || fail "nothing healed: $(cat "$T/stats")"
echo "faults: healed $(counted net_healed), slices sent again $(counted net_resent), read back $(counted net_reads_back)"
FAKE_VERBS_READ=20 large 40
says "reading back from the GPU: status 12"
echo "reads that fail: healed $(counted net_healed), slices sent again $(counted net_resent)"
FAKE_VERBS_DOWN=railx0:100:400 large 400
says "the port is down"
FAKE_VERBS_FATAL=railx0:80 large 100
says "the RDMA device railx0 has failed"
silent "over tcp"

# Only RDMA reaches GPU memory: without a port, or without memory for the other side's slots, the
# peer is lost soon and with a reason.
lost() { # TEXT
	[ $rc != 0 ] || fail "$1: the job ended well"
	[ $rc != 124 ] && [ $rc != 137 ] || fail "$1: the job hangs"
	says "$1"
	! grep -q ': wrong$' "$T/out" || fail "$1: wrong results: $(grep ': wrong$' "$T/out" | head -n 3)"
	silent "over tcp"
}
export NCCL_IB_HCA=railx0 DFSHIM_NET_TIMEOUT_MS=2000
FAKE_VERBS_DOWN=railx0:80:1000000 LIMIT=60 QUIET=30 run disorder --ranks 2 --procs 2 --iters 4000 --colls 4 --max 262144 --seed "$SEED"
lost "NET_STALL"
NCCL_NET_GDR_READ=0 FAKE_VERBS_MEMLOCK=400000 LIMIT=60 QUIET=30 run disorder --ranks 2 --procs 2 --iters 40 --colls 4 --max 262144 --seed "$SEED"
lost "only RDMA gets there: set DFSHIM_NET_GDR=0"
exit 0
