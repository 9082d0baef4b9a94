#!/bin/bash
# Description: dfshim.deft with two networks as links: groups whose communicators ask for them by netName; parameters are those of a loop without communication.
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
# Each rank is a node.
DFSHIM_HOST_NODE_DEVICES=1 timeout -k 5 600 "$B/dfshim" run --host -- "$P" "$SRC/tests/plan/deft_job.py" "$T" networks >"$T/out" 2>&1 || {
	tail -n 30 "$T/out"
	fail "deft_job.py networks"
}
says "networks: deft, None"
for network in tcp plugin; do
	says "over $network"
done
grep "^networks:" "$T/out"
exit 0
