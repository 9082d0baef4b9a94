#!/bin/bash
# Description: dlsym returns dfshim's functions for NCCL names that are looked up in a handle.
# Everything else that dlsym and dlvsym do is unchanged.
set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
B=${B:-$SRC/build}
T=${T:-$(mktemp -d)}
CC=${CC:-gcc}
shim=$B/libdfshim.so
san=${SAN_RUNTIME-}
[ -e "$shim" ] || { echo "no $shim" && exit 1; }
dir=$SRC/tests/interpose/dl

$CC -std=gnu11 -w -fPIC -shared -I"$SRC" -Wl,-soname,libnccl.so.2 -o "$T/libnccl.so.2" \
	"$dir/fake_nccl.c" "$dir/fake_nccl_comm.c" || exit 1
$CC -std=gnu11 -fPIC -shared -DLAST -o "$T/libb.so" "$dir/next.c" || exit 1
$CC -std=gnu11 -fPIC -shared -o "$T/liba.so" "$dir/next.c" -Wl,--no-as-needed -L"$T" -lb -ldl || exit 1
$CC -std=gnu11 -I"$SRC" -o "$T/client" "$dir/client.c" -Wl,--no-as-needed -L"$T" -la -lb \
	"$T/libnccl.so.2" -Wl,-rpath,"$T" -ldl || exit 1

timeout "${LIMIT:-60}" "$T/client" symbols "$T/libnccl.so.2" >"$T/plain" 2>&1 || { cat "$T/plain" && exit 1; }
LD_PRELOAD=$san$shim timeout "${LIMIT:-60}" "$T/client" symbols "$T/libnccl.so.2" >"$T/hooked" 2>&1 ||
	{ cat "$T/hooked" && exit 1; }
# The only difference: the two lookups in the handle.
sed -e 's/^handle ncclAllReduce .*/handle ncclAllReduce libdfshim.so/' \
	-e 's/^handle pncclAllReduce .*/handle pncclAllReduce libdfshim.so/' "$T/plain" >"$T/want"
diff "$T/want" "$T/hooked" || exit 1
grep -q '^next which 71$' "$T/plain" || { echo "the test's libraries are not in order" && exit 1; }

# The way in which Python finds NCCL's functions.
if command -v python3 >/dev/null; then
	got=$(LD_PRELOAD=$san$shim DFSHIM_MODE=off timeout "${LIMIT:-60}" python3 -c '
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
v = ctypes.c_int()
print(lib.ncclGetVersion(ctypes.byref(v)), v.value, hasattr(lib, "ncclCommGrow"))
lib.ncclGetLastError.restype = ctypes.c_char_p
lib.ncclAllReduce(None, None, 1, 0, 0, None, None)' "$T/libnccl.so.2")
	[ "$got" = "0 22809 False" ] || { echo "ctypes: $got" && exit 1; }
fi
echo "as before, but for NCCL's names"
