#!/bin/bash
# An NCCL program on the GPU backend, over the test driver, with every driver call through the hook:
# two communicators in opposite orders on one stream, events, copies, device-wide waits, graphs.
set -u
if [ ! -x "$B/tests/cuda/use_nccl" ] || [ ! -f "$B/kernels/daemon.fatbin" ]; then
	echo "skipped: built without NCCL's header or without nvcc"
	exit 77
fi
bad=0
# "strict" is the control: in strict order two ranks that call in opposite orders hang, as with
# NCCL. In "resident" the kernel does not quit by itself, so everything that makes the driver wait
# for the device must ask it to quit. In "first" NCCL is called before CUDA.
for order in relaxed resident first strict; do
	unset NCCL_FIRST
	[ "$order" != first ] || export NCCL_FIRST=1
	limit=60
	[ "$order" != strict ] || limit=3
	quit=1000
	[ "$order" != resident ] || quit=1200000000
	LD_LIBRARY_PATH=$B/tests/cuda/driver LD_PRELOAD=$B/libdfshim.so FAKE_CUDA_DEVICES=2 DFSHIM_STRICT=1 DFSHIM_BACKEND=cuda \
		DFSHIM_QUIT_US=$quit DFSHIM_STREAM_ORDER="$([ "$order" = strict ] && echo strict || echo relaxed)" timeout $limit "$B/tests/cuda/use_nccl" >"$T/$order" 2>"$T/$order.err"
	rc=$?
	echo "$order: status $rc"
	want=0
	[ "$order" != strict ] || want=124
	[ $rc = $want ] || bad=1
	cat "$T/$order" "$T/$order.err"
done
grep -qE '^kernels [1-9]' "$T/relaxed" || bad=1
# The driver shuts down before dfshim at exit(). dfshim must not report that as a loss.
! grep -q "nothing more runs there" "$T"/*.err || bad=1
! grep -q "keep strict order" "$T/relaxed.err" "$T/first.err" || bad=1
exit $bad
