#!/bin/bash
# Description: NVIDIA's nccl-tests, unmodified, on the CPU: every program, types, operations, graphs, registration.
#
# NCCL_TESTS: the folder with its built *_perf programs (they need nvcc to be built, so they are brought along):
#   git clone https://github.com/NVIDIA/nccl-tests && make -C nccl-tests
#   NCCL_TESTS=nccl-tests/build tests/run.sh smoke/t_nccl_tests
set -u
. "$SRC/tests/lib/clients.sh"
[ -x "${NCCL_TESTS:-}/all_reduce_perf" ] || skip "NCCL_TESTS does not name a folder with all_reduce_perf"

go() { # PROGRAM ARGS...: no kernel is launched without checks (-c 0)
	local p=$1
	shift
	timeout -k 5 "${LIMIT:-100}" "$B/dfshim" run --host=8 -- "$NCCL_TESTS/$p" -b 8 -e 4K -f 16 -n 2 -w 1 -c 0 "$@" \
		>"$T/out" 2>&1 || {
		tail -20 "$T/out"
		fail "$p $*"
	}
	# The output must have a line of figures for each size and no error.
	if ! grep -qE '^ +[0-9]+ +[0-9]+ +[a-z0-9]+ .* [0-9.]+ ' "$T/out" || grep -qiE 'fail|error' "$T/out"; then
		tail -20 "$T/out"
		fail "$p $*"
	fi
	nr=$((nr + 1))
}
nr=0
for p in all_reduce all_gather broadcast reduce reduce_scatter alltoall gather scatter sendrecv hypercube; do
	ops=""
	case $p in *reduce*) ops="-o all" ;; esac
	# shellcheck disable=SC2086
	for ranks in "-g 8" "-t 4 -g 2"; do
		go ${p}_perf $ranks -d all $ops
		go ${p}_perf $ranks -G 2
		go ${p}_perf $ranks -R 1
		go ${p}_perf $ranks -p 1
	done
done
for p in broadcast reduce gather scatter; do go ${p}_perf -g 8 -r -1; done
for p in all_reduce all_gather alltoall sendrecv; do
	go ${p}_perf -g 8 -m 4
	go ${p}_perf -g 8 -y 1
	go ${p}_perf -g 8 -z 1
	go ${p}_perf -g 8 -R 2
	go ${p}_perf -g 8 -u 1
	go ${p}_perf -t 4 -g 2 -G 3 -R 1 -p 1
done
echo "$nr runs"
