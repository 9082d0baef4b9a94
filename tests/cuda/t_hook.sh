#!/bin/bash
# The hook in front of the CUDA driver, with the test driver: each caller gets the right wrapper, a
# wrapper calls the function that it stands for, unknown forms of functions are left alone, and the
# hook is off where it is not wanted.
set -u
fake=$B/tests/cuda/driver
[ -f "$fake/libcuda.so.1" ] || {
	echo "skipped: no CUDA headers"
	exit 77
}
[ -f "$B/libdfshim.so" ] || {
	echo "skipped: no libdfshim.so"
	exit 77
}
bad=0
preload=${SAN_RUNTIME-}$B/libdfshim.so

prog=use_driver
run() { # VARIABLE=VALUE...
	env LD_LIBRARY_PATH="$fake" "$@" timeout "${LIMIT:-60}" "$B/tests/cuda/$prog"
}
want() { # FILE LINE
	grep -qxF "$2" "$1" || {
		echo "$1 lacks: $2"
		bad=1
	}
}

run X=1 >"$T/plain" || exit 1
run LD_PRELOAD="$preload" >"$T/hooked" 2>"$T/hooked.err" || {
	cat "$T/hooked" "$T/hooked.err"
	exit 1
}
# Counts and results are the same with and without dfshim. Only the library of the functions
# differs.
strip() { sed -E 's/(libcuda\.so\.1|libdfshim\.so)$/lib/' "$1"; }
diff <(strip "$T/plain") <(strip "$T/hooked") || bad=1
! grep -q libdfshim "$T/plain" || bad=1
for l in "dlsym cuGetProcAddress_v2 libdfshim.so" "dlsym cuGetErrorName libcuda.so.1" "dlsym cuNoSuchThing none" \
	"dlvsym cuGetProcAddress_v2 none" \
	"self 1" "proc cuLaunchKernel 12000 0 libdfshim.so" "proc cuLaunchKernel 12000 2 libdfshim.so" \
	"proc cuGetErrorString 12000 0 libcuda.so.1" "proc cuStreamWaitEvent 13010 0 libdfshim.so" \
	"proc cuStreamWaitValue64 9000 0 libdfshim.so" "versions differ 1" "calls cuStreamWaitValue64 1" \
	"calls cuStreamWaitValue64_v2 0" "proc cuGraphInstantiate 12000 0 libdfshim.so" "alias 1" "same 1" "dlsym same 1" "alloc 1" "calls cuMemAlloc_v2 1" "calls cuMemAlloc 0"; do
	want "$T/hooked" "$l"
done
# A form that dfshim does not know stays the driver's, and dfshim prints that.
run LD_PRELOAD="$preload" FAKE_CUDA_NEWER=cuStreamWaitEvent >"$T/newer" 2>"$T/newer.err" || bad=1
want "$T/newer" "proc cuStreamWaitEvent 13010 0 libcuda.so.1"
want "$T/newer" "proc cuStreamWaitEvent 13000 0 libdfshim.so"
grep -q "cuStreamWaitEvent (version 13010)" "$T/newer.err" || {
	echo "no word about the unknown form"
	bad=1
}
# The hook is off.
for off in DFSHIM_MODE=off DFSHIM_BACKEND=host; do
	run LD_PRELOAD="$preload" "$off" >"$T/off" || bad=1
	diff "$T/plain" "$T/off" || bad=1
done
if [ -f "$B/libdfhost.so" ]; then
	env LD_PRELOAD="$preload $B/libdfhost.so" "$B/tests/hostcuda/programs/p_driver" >"$T/host" || bad=1
	want "$T/host" "cuMemAlloc_v2 libdfhost.so"
fi
# A program linked with the driver: the loader gives it the wrappers, which find the driver after
# libdfshim.so.
prog=use_linked
run X=1 >"$T/plain" || exit 1
run LD_PRELOAD="$preload" >"$T/linked" || {
	cat "$T/linked"
	exit 1
}
diff <(strip "$T/plain") <(strip "$T/linked") || bad=1
! grep -q libdfshim "$T/plain" || bad=1
for l in "linked cuMemAlloc_v2 libdfshim.so" "linked cuGetProcAddress_v2 libdfshim.so" \
	"linked cuStreamSynchronize_ptsz libdfshim.so" "linked cuInit libdfshim.so" "alloc 1" "asked same 1" \
	"default same 1" "asked cuGetErrorString libcuda.so.1" "sync 0 0" "calls cuMemAlloc_v2 1" "calls cuMemFree_v2 1" \
	"calls cuStreamSynchronize 1" "calls cuStreamSynchronize_ptsz 1"; do
	want "$T/linked" "$l"
done
# With mode off, a program that asks gets the driver's functions. The functions that the loader
# gives out call the driver directly.
run LD_PRELOAD="$preload" DFSHIM_MODE=off >"$T/off" || bad=1
diff <(strip "$T/plain" | grep -v "^asked same") <(strip "$T/off" | grep -v "^asked same") || bad=1
# A program that asks the CUDA runtime for functions of the driver gets the same ones. (The tests'
# runtime calls cuGetProcAddress, as the real one does.)
cudart=$B/tests/cuda/runtime
if [ -f "$cudart/libcudart.so.13" ] && [ -z "${SAN_RUNTIME-}" ]; then
	LD_LIBRARY_PATH=$cudart:$fake LD_PRELOAD=$preload timeout "${LIMIT:-60}" python3 -c '
import ctypes
lib = ctypes.CDLL("libcudart.so.13")
for name, version in ("cuLaunchKernel", 12000), ("cuStreamWaitValue64", 9000), ("cuGetErrorString", 12000), ("cuNoSuchThing", 12000):
    fn, status = ctypes.c_void_p(), ctypes.c_int(-1)
    lib.cudaGetDriverEntryPointByVersion(name.encode(), ctypes.byref(fn), version, 0, ctypes.byref(status))
    where = [m[-1].split("/")[-1] for m in open("/proc/self/maps").read().splitlines() for m in [m.split()]
             if fn.value and int(m[0].split("-")[0], 16) <= fn.value < int(m[0].split("-")[1], 16)]
    print("entry", name, version, *(where or ["none"]))' >"$T/entry" 2>"$T/entry.err" || bad=1
	for l in "entry cuLaunchKernel 12000 libdfshim.so" "entry cuStreamWaitValue64 9000 libdfshim.so" \
		"entry cuGetErrorString 12000 libcuda.so.1" "entry cuNoSuchThing 12000 none"; do
		want "$T/entry" "$l"
	done
fi
# The driver reads 32 for the number of hardware queues. A program that has set fewer still reads
# its own value.
connections() { # WANTED VARIABLE=VALUE...
	local want=$1 is
	shift
	is=$(env -u CUDA_DEVICE_MAX_CONNECTIONS LD_PRELOAD="$preload" "$@" env | sed -n 's/^CUDA_DEVICE_MAX_CONNECTIONS=//p')
	[ "$is" = "$want" ] || {
		echo "$*: CUDA_DEVICE_MAX_CONNECTIONS is \"$is\", not \"$want\""
		bad=1
	}
}
connections 32 X=1
connections 1 CUDA_DEVICE_MAX_CONNECTIONS=1
connections 1 CUDA_DEVICE_MAX_CONNECTIONS=1 DFSHIM_MODE=trace
connections "" DFSHIM_MODE=trace
# reads MODE: a program that has set 1 initialises the driver and creates a context. Prints what the
# driver reads each time, and what the program reads afterwards.
reads() {
	CUDA_DEVICE_MAX_CONNECTIONS=1 DFSHIM_MODE=$1 FAKE_CUDA_READS=1 LD_LIBRARY_PATH=$fake LD_PRELOAD=$preload timeout "${LIMIT:-60}" \
		python3 -c '
import ctypes, os
c, context = ctypes.CDLL(None), ctypes.c_void_p()
c.getenv.restype = ctypes.c_char_p
cuda = ctypes.CDLL("libcuda.so.1")
for call in (lambda: cuda.cuInit(0), lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)):
    print("program", call(), c.getenv(b"CUDA_DEVICE_MAX_CONNECTIONS").decode(), os.environ["CUDA_DEVICE_MAX_CONNECTIONS"], flush=True)' 2>&1 |
		grep -v "DFSHIM_MODE=nosuch cannot be used" | tr '\n' ' '
}
if [ -z "${SAN_RUNTIME-}" ]; then
	for mode in prevent:32 Prevent:32 nosuch:32 trace:1; do
		is=$(reads "${mode%:*}")
		[ "$is" = "driver ${mode#*:} program 0 1 1 driver ${mode#*:} program 0 1 1 " ] || {
			echo "mode ${mode%:*}: $is"
			bad=1
		}
	done
fi
exit $bad
