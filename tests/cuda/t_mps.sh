#!/bin/bash
# Description: processes that share a GPU through MPS: each process warns once that their daemons do
# not fit on the GPU together.
set -u
. "$SRC/tests/cuda/dryrun.sh"
export FAKE_CUDA_DEVICES=1 FAKE_CUDA_SMS=8
run() { # NAME VARIABLE=VALUE...
	local name=$1
	shift
	timeout $((60 * ${SLOW:-1})) env LD_PRELOAD="$B/libdfshim.so" DFSHIM_BACKEND=cuda DFSHIM_STRICT=1 "$@" \
		"$B/clients/collcheck" --procs 3 --sample 3 --largest 1000 >"$T/$name" 2>&1 || fail "$name: status $?: $(cat "$T/$name")"
}
said() { # NAME TIMES TEXT
	[ "$(grep -cF "$3" "$T/$1")" = "$2" ] || fail "$1: \"$3\" is not there $2 times: $(cat "$T/$1")"
}
SLOW=1
run many FAKE_CUDA_MPS=1 DFSHIM_BLOCKS=3
said many 3 "3 processes of a communicator share it through MPS with 9 blocks of their daemons"
said many 3 "its 8 multiprocessors; with DFSHIM_BLOCKS=2 all are there at once"
run fits FAKE_CUDA_MPS=1 DFSHIM_BLOCKS=2
said fits 0 "through MPS"
# Without MPS, processes use the GPU in turns anyway.
run none DFSHIM_BLOCKS=3
said none 0 "through MPS"
exit 0
