#!/bin/bash
# Unmodified PyTorch, four ranks on one GPU: training jobs compared with the same job in one
# process, point-to-point, graphs, the end of groups, and two groups in opposite orders with device
# synchronisations. TORCH_PYTHON: a Python with PyTorch. tests/cuda/t_torch.sh runs the same jobs on
# the test driver.
set -u
. "$SRC/tests/gpu/lib.sh"
py=${TORCH_PYTHON:-python3}
env "${card_env[@]}" "$py" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
	skip "no PyTorch that sees a GPU"
bad=0 ran=0
for case in ${CASES-ddp fsdp2 tensor_parallel pipeline ring graphs groups end collectives eager}; do
	if [ $case = pipeline ] && ! "$py" -c 'import numpy' 2>/dev/null; then
		echo "none pipeline: PyTorch's pipelines pass objects on, for which it needs NumPy"
		continue
	fi
	mkdir -p "$T/trace/$case"
	timeout -k 5 100 env "${card_env[@]}" "DFSHIM_TRACE=$T/trace/$case" \
		"$py" -m torch.distributed.run --nproc-per-node "${RANKS:-4}" --master-port $((20000 + RANDOM % 10000)) \
		"$SRC/tests/gpu/torch_jobs.py" "$case" >"$T/$case.log" 2>&1
	rc=$?
	ran=1
	# Judged by the trace, which exists however a process ends: the jobs end by os._exit().
	"$B/dfshim" check "$T/trace/$case" >"$T/check" 2>&1
	if [ $rc = 0 ] && grep -qE ' [1-9][0-9]* operations \([1-9]' "$T/check"; then
		echo "ok   $case"
	else
		echo "BAD  $case: status $rc"
		tail -25 "$T/$case.log" | sed 's/^/     | /'
		head -12 "$T/check" | sed 's/^/     > /'
		bad=1
	fi
done
[ $ran = 1 ] || skip "none of these cases can be run here"
exit $bad
