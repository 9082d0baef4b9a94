#!/bin/bash
# Description: the native interface: collectives run in a different order on every rank, with exact
# results.
set -u
SRC=${SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
B=${B:-$SRC/build}
T=${T:-$(mktemp -d)}
CC=${CC:-gcc}
[ -e "$B/libdfhost.so" ] || { echo "no libdfhost.so: no headers of CUDA" && exit 77; }
san=
case $B in */thread) san=-fsanitize=thread ;; */address) san=-fsanitize=address,undefined ;; esac
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
$CC -std=gnu11 -Wall -Wextra -Werror $san -I"$SRC" -o "$T/client" "$SRC/tests/interpose/dl/dfccl_client.c" \
	"$B/libdfshim.so" "$B/libdfhost.so" -Wl,-rpath,"$B" -pthread || exit 1
for ranks in 1 2 5; do
	LD_LIBRARY_PATH=$B timeout "${LIMIT:-100}" "$T/client" $ranks 6 "$seed" || { echo "status $?" && exit 1; }
done
