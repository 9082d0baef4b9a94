#!/bin/bash
# Description: the installed libnccl with the profiler plugin, as far as possible without a GPU: the plugin has the tables of all versions, and NCCL takes the newest when it starts.
set -u
. "$SRC/tests/profiler/job.sh"
for lib in "$B"/venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2 "$("$SRC/scripts/cuda_home.sh")"/lib{64,}/libnccl.so.2; do
	[ ! -e "$lib" ] || break
done
[ -e "$lib" ] || { echo "no libnccl.so.2 here" && exit 77; }
# The plugin has every name for which this NCCL looks.
for name in $(grep -aoE 'ncclProfiler_v[0-9]+' "$lib" | sort -u); do
	nm -D --defined-only "$plugin" | grep -qw "$name" || fail "$lib asks for $name"
done
grep -aq ncclProfiler_v "$lib" || { echo "this NCCL has no profiler interface" && exit 77; }
# Without a GPU NCCL still starts its bootstrap. The communicator fails with the same CUDA error as
# without the plugin.
cat >"$T/start.py" <<'EOF'
import ctypes, sys
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
nccl, id, comm, version = ctypes.CDLL(sys.argv[1]), Id(), ctypes.c_void_p(), ctypes.c_int()
nccl.ncclGetVersion(ctypes.byref(version))
got = nccl.ncclGetUniqueId(ctypes.byref(id))
made = nccl.ncclCommInitRank(ctypes.byref(comm), 1, id, 0)
print(version.value, got, made)
EOF
starts() { # FILE VARIABLE...
	local out=$1
	shift
	timeout "${LIMIT:-60}" env "$@" python3 "$T/start.py" "$lib" >"$T/$out" 2>"$T/$out.err" || fail "NCCL, $out: status $?: $(tail -3 "$T/$out.err")"
}
starts alone NCCL_DEBUG=
starts with NCCL_DEBUG= NCCL_PROFILER_PLUGIN="$plugin" DFSHIM_TRACE="$T/real-trace"
diff "$T/alone" "$T/with" >&2 || fail "NCCL with the plugin ends otherwise"
read -r version id made < <(tail -1 "$T/with")
[ "$id" = 0 ] || fail "ncclGetUniqueId: $id"
[ $bad != 0 ] || echo "the same names as in $lib; NCCL $version starts with the plugin, and ncclCommInitRank returns ${made:-nothing} as without it"
exit $bad
