#!/bin/bash
# The real libcudart, shared and static, on the test driver. It finds the driver by dlsym and then
# by cuGetProcAddress, so through dfshim's hook. It does not start completely on a driver without
# the private tables. It must get every function of the hook's table from dfshim.
set -u
fake=$B/tests/cuda/driver
[ -f "$fake/libcuda.so.1" ] && [ -f "$B/libdfshim.so" ] || {
	echo "skipped: no CUDA headers or no libdfshim.so"
	exit 77
}
case $B in */thread | */address)
	echo "skipped: libcudart does not run under sanitizers"
	exit 77
	;;
esac
bad=0 ran=0
for prog in use_cudart use_cudart_static; do
	[ -x "$B/tests/cuda/$prog" ] || continue
	ran=1
	for preload in "" "$B/libdfshim.so"; do
		log=$T/$prog.${preload:+hooked}
		out=$(LD_LIBRARY_PATH=$fake LD_PRELOAD=$preload FAKE_CUDA_LOG=$log DFSHIM_DEBUG=info timeout "${LIMIT:-60}" \
			"$B/tests/cuda/$prog" 2>"$log.err") || bad=1
		echo "$prog ${preload:+hooked}: $out; $(sort -u "$log" | wc -l) functions called, \
$(grep -c cuGetProcAddress_v2 "$log") asked for"
		[ "$(grep -c '^cuGetProcAddress_v2$' "$log")" -gt 10 ] || {
			echo "it did not ask by cuGetProcAddress_v2"
			bad=1
		}
	done
	# The hook itself calls cuGetProcAddress to verify versions. All other calls must be the
	# same, in the same order.
	diff <(grep -v cuGetProcAddress "$T/$prog.") <(grep -v cuGetProcAddress "$T/$prog.hooked") || bad=1
	LD_LIBRARY_PATH=$fake LD_PRELOAD=$B/libdfshim.so LD_DEBUG=bindings timeout "${LIMIT:-60}" "$B/tests/cuda/$prog" 2>&1 |
		grep -c 'binding file.*to .*libdfshim.so.*dlsym' >/dev/null || {
		echo "$prog does not find dlsym in our library"
		bad=1
	}
done
[ $ran = 1 ] || exit 77
exit $bad
