#!/bin/bash
# Description: mode trace with another preloaded library before or after dfshim, and with jemalloc (JEMALLOC, or the installed one). The job is right, the other library sees its calls, and a hang is named.
# Limit: 200 s
set -u
. "$SRC/tests/lib/netns.sh"
. "$SRC/tests/lib/clients.sh"
netns 1 1
n=2 master=29500
gcc -shared -fPIC -O1 -o "$T/shim.so" "$SRC/tests/watch/shim.c" -ldl || fail "shim.c cannot be built"
jemalloc=${JEMALLOC:-$(ldconfig -p | sed -n 's/.*libjemalloc\.so\.2 .*=> //p' | head -1)}
ours="$B/libdfshim.so $B/libdfhost.so $B/libdfnccl.so"
unset DFSHIM_TRACE

# job PRELOAD HANGS: starts the job.
job() {
	local i
	master=$((master + 1)) pid=()
	rm -f "$T"/out*
	for ((i = 0; i < n; i++)); do
		HANGS=$2 RANK=$i WORLD_SIZE=$n LOCAL_RANK=$i MASTER_ADDR=$(ip4 0) MASTER_PORT=$master DFSHIM_TIMEOUT_MS=600000 \
			on 0 env DFSHIM_MODE=trace DFSHIM_BACKEND=host LD_PRELOAD="$1" timeout -k 5 "${LIMIT:-100}" \
			"$C/hangs" --timeout "${QUIET:-60}" >"$T/out.$i" 2>&1 &
		pid+=($!)
	done
}
# beside NAME PRELOAD [REDUCES]: runs a job that completes and a job that hangs. The other library
# must see REDUCES AllReduces.
beside() {
	local p i
	job "$2" none
	for p in "${pid[@]}"; do wait "$p" || fail "$1: status $?: $(tail -n 20 "$T"/out.*)"; done
	[ $# -lt 3 ] || [ "$(grep -cE "^shim: [1-9][0-9]* allocations, $3 all-reduces, 23 waits\$" "$T"/out.* | grep -c ':1$')" = $n ] ||
		fail "$1: the other library: $(grep -h ^shim: "$T"/out.*)"
	job "$2" mismatch
	until grep -qs "^MISMATCH: .* differs in count" "$T"/out.*; do
		kill -0 "${pid[0]}" 2>/dev/null || fail "$1: not named: $(tail -n 30 "$T"/out.*)"
		sleep 0.05
	done
	kill "${pid[@]}" 2>/dev/null
	wait "${pid[@]}" 2>/dev/null
	echo "$1: ok"
}

beside "another library first" "$SAN_RUNTIME$T/shim.so $ours" 23
# dfshim calls NCCL's functions by their pnccl names, so a library after dfshim sees only the calls
# of CUDA.
beside "another library last" "$SAN_RUNTIME$B/libdfshim.so $T/shim.so $B/libdfhost.so $B/libdfnccl.so" 0
[ -n "$jemalloc" ] || { echo "jemalloc is not installed: not tried" && exit 0; }
[ -z "$SAN_RUNTIME" ] || exit 0 # a sanitizer has its own allocator
beside "jemalloc first" "$jemalloc $ours"
beside "jemalloc last" "$ours $jemalloc"
beside "jemalloc and another library" "$T/shim.so $jemalloc $ours" 23
exit 0
