#!/bin/bash
# Description: dfshim.deft with two networks as links. The groups' communicators select them by netName, or by rules of DFSHIM_NET. The parameters equal those of a loop without communication.
# Limit: 700 s
set -u
. "$SRC/tests/plan/torch.sh"
torch_python
"$P" -c 'import torch, sys; sys.exit(torch.version.cuda is None)' || {
	echo "this PyTorch is built without CUDA"
	exit 77
}
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/plugin.sh"
plugin 12
unset CUDA_VISIBLE_DEVICES
for case in networks rules; do
	[ $case = networks ] || export DFSHIM_NET=comm=0:tcp,comm=1:tcp,comm=2:plugin
	# Each rank is a node.
	DFSHIM_HOST_NODE_DEVICES=1 timeout -k 5 300 "$B/dfshim" run --host -- "$P" "$SRC/tests/plan/deft_job.py" "$T" $case >"$T/out" 2>&1 || {
		tail -n 30 "$T/out"
		fail "deft_job.py $case"
	}
	says "$case: deft, None"
	for network in tcp plugin; do
		says "over $network"
	done
	grep "^$case:" "$T/out"
done
exit 0
