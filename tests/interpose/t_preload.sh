#!/bin/bash
# Description: the modes off and trace, fallback and refusal, a missing NCCL, and a fork, with a
# fake NCCL.
set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
B=${B:-$SRC/build}
T=${T:-$(mktemp -d)}
CC=${CC:-gcc}
shim=$B/libdfshim.so
san=${SAN_RUNTIME-}
[ -e "$shim" ] || { echo "no $shim" && exit 1; }
dir=$SRC/tests/interpose/dl
fails=0

$CC -std=gnu11 -w -fPIC -shared -I"$SRC" -Wl,-soname,libnccl.so.2 -o "$T/libnccl.so.2" \
	"$dir/fake_nccl.c" "$dir/fake_nccl_comm.c" || exit 1
$CC -std=gnu11 -fPIC -shared -DLAST -o "$T/libb.so" "$dir/next.c" || exit 1
$CC -std=gnu11 -fPIC -shared -o "$T/liba.so" "$dir/next.c" -Wl,--no-as-needed -L"$T" -lb -ldl || exit 1
$CC -std=gnu11 -I"$SRC" -o "$T/client" "$dir/client.c" -Wl,--no-as-needed -L"$T" -la -lb \
	"$T/libnccl.so.2" -Wl,-rpath,"$T" -ldl || exit 1
# The same program, linked with libdfshim.so in place of NCCL.
$CC -std=gnu11 -I"$SRC" -o "$T/alone" "$dir/client.c" -Wl,--no-as-needed -L"$T" -la -lb "$shim" \
	-Wl,-rpath,"$T" -ldl || exit 1
mkdir -p "$T/broken"
: >"$T/broken/libnccl.so.2"
: >"$T/broken/libnccl.so"

# want NAME TEXT...: the output of the last run must contain every text.
want() {
	local name=$1 text
	shift
	for text in "$@"; do
		if ! grep -qF -- "$text" "$T/out"; then
			echo "$name: no \"$text\" in:"
			sed 's/^/    /' "$T/out"
			fails=$((fails + 1))
			return
		fi
	done
	echo "$name: ok"
}
go() { # VARIABLES... -- PROGRAM ARGS: runs it with these variables; output in $T/out
	local vars=()
	while [ "$1" != -- ]; do vars+=("$1") && shift; done
	shift
	rm -f "$T/calls"
	env -u DFSHIM_TRACE FAKE_NCCL_LOG="$T/calls" LD_PRELOAD="$san$shim" "${vars[@]}" timeout "${LIMIT:-60}" "$@" \
		>"$T/out" 2>&1
	echo "status $?" >>"$T/out"
}
all="ncclGetVersion ncclGetUniqueId ncclCommInitRank ncclGroupStart ncclAllReduce ncclSend ncclRecv ncclGroupEnd ncclCommDestroy ncclCommInitAll ncclGetUniqueId ncclCommInitRank ncclCommInitRank ncclGetLastError"
called() {
	grep -v -e GetAsyncError -e CuDevice "$T/calls" | tr '\n' ' ' | sed 's/ $//'
}
reached() {
	[ "$(called)" = "$all" ] && return
	echo "$1: the real library was called as: $(called)"
	fails=$((fails + 1))
}

go DFSHIM_MODE=off -- "$T/client"
want off "version 0 22809" "init 0" "magic 1" "rank 0 0" "destroy 0" "initall 0" "status 0"
reached off

go DFSHIM_MODE=trace DFSHIM_TRACE="$T/tr" -- "$T/client"
want trace "init 0" "magic 1" "allreduce 0" "end 0" "initall 0" "status 0"
reached trace
if "$B/dfshim" --list 2>/dev/null | grep -qx show; then
	"$B/dfshim" show "$T/tr" >"$T/out" 2>&1
	want "trace, recorded" AllReduce Send Recv comm_ready comm_destroy
fi

# A group that was only simulated has ended. The end of the next group is recorded for its own
# operation.
recorded_end() { # NAME VARIABLE...
	local name=$1
	shift
	go DFSHIM_TRACE="$T/$name.tr" "$@" -- "$T/client" simulate
	want "$name" "simulate 0" "end 0" "status 0"
	"$B/dfshim" show --json "$T/$name.tr" >"$T/shown" 2>&1
	grep -q '"call":"ncclGroupEnd"' "$T/shown" || { echo "$name: no end of a group in the trace" && fails=$((fails + 1)); }
}
recorded_end simulated DFSHIM_MODE=trace

# Without a GPU the runtime cannot start. NCCL executes the job, which is recorded, with one
# warning; or with DFSHIM_STRICT=1 it is an error.
if [ ! -e /dev/nvidiactl ]; then
	go DFSHIM_TRACE="$T/fallback.tr" -- "$T/client"
	want fall-back "init 0" "destroy 0" "NCCL executes the job, which is recorded and watched" "status 0"
	reached fall-back
	"$B/dfshim" show "$T/fallback.tr" >"$T/shown" 2>&1
	for what in AllReduce Send Recv comm_ready comm_destroy; do
		grep -q "$what" "$T/shown" || { echo "fall-back: no $what in the trace" && fails=$((fails + 1)); }
	done
	[ "$(grep -c 'DFSHIM WARN' "$T/out")" = 1 ] || { echo "more than one warning" && fails=$((fails + 1)); }
	recorded_end simulated-fall-back
	go DFSHIM_STRICT=1 -- "$T/client"
	want strict "id 2" "init 2" "initall 2" "dfshim cannot start" "status 0"
	go DFSHIM_STRICT=1 DFSHIM_SLOTS=many -- "$T/client"
	want "strict, bad value" "id 2" "status 0"
fi

# Without any NCCL, calls return an error that names the reason, and do not crash.
go DFSHIM_MODE=off LD_LIBRARY_PATH="$T/broken" -- "$T/alone"
want "no NCCL" "version 0 22809" "id 2" "init 2" "initall 2" "no libnccl.so.2 found" "status 0"

go DFSHIM_MODE=off -- "$T/client" fork
want "fork, off" "in the child:" "child's status 0" "status 0"

if [ -e "$B/libdfhost.so" ]; then
	go LD_PRELOAD="$san$shim $B/libdfhost.so" -- "$T/client" fork
	want "fork, host" "init 0" "magic 0" "allreduce 0" "end 0" "destroy 0" "initall 0" "in the child:" \
		"last error: CommInitAll : this process was forked" "child's status 0" "status 0"
	[ ! -s "$T/calls" ] || [ "$(sort -u "$T/calls")" = ncclGetVersion ] ||
		{ echo "NCCL was called on the host backend: $(called)" && fails=$((fails + 1)); }
	go LD_PRELOAD="$san$shim $B/libdfhost.so" DFSHIM_MODE=off -- "$T/client"
	want "off on the host" "id 2" "NCCL cannot use memory of the CUDA runtime" "status 0"
fi
[ $fails = 0 ]
