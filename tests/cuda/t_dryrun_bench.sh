#!/bin/bash
# Description: scripts/gpu.sh with the GPU's tests and benchmarks, on the test driver. This part runs
# PyTorch's jobs, and the benchmarks with their figures.
set -u
. "$SRC/tests/cuda/dryrun.sh"
# Plain jobs take the place of PyTorch's jobs. The test checks only that operations were executed.
mkdir -p "$T/py/torch/distributed"
echo 'class cuda: is_available = staticmethod(lambda: True)' >"$T/py/torch/__init__.py"
touch "$T/py/numpy.py" "$T/py/torch/distributed/__init__.py"
cat >"$T/py/torch/distributed/run.py" <<'P'
import os, sys
if sys.argv[-1] == "ring":
    os._exit(0)
os.execv(os.environ["B"] + "/clients/disorder", ["disorder", "--procs", "2", "--iters", "1", "--colls", "2"])
P
export PYTHONPATH=$T/py
CASES="ddp pipeline" passes t_torch
CASES="ddp ring" gpu check "$results" gpu/t_torch
[ $rc = 1 ] && part t_torch | grep -q "^BAD  ring" || fail "a job that executes nothing: $(part t_torch)"
unset PYTHONPATH

# Each benchmark adds its figures to the same file.
gpu bench "$results" beside
python3 - "$results/bench-gpu.json" <<'P' || fail "the figures: $(cat "$T/gpu.log" | tail -5)"
import json, sys
f = {x["name"]: x for x in json.load(open(sys.argv[1]))["figures"]}
sys.exit(not (f["gpu.beside.arithmetic"]["verdict"] == f["gpu.beside.busy.memory"]["verdict"] == "ok" and f["gpu.beside.memory"]["peer"]["ratio"] == "1.0000"))
P
# This takes a minute on two cores.
if [ -n "${WHOLE-}" ]; then
gpu bench "$results" daemon
gpu bench "$results" disorder
python3 - "$results/bench-gpu.json" <<'P' || fail "the figures of daemon and disorder: $(cat "$T/gpu.log" | tail -9)"
import json, sys
f = {x["name"]: x for x in json.load(open(sys.argv[1]))["figures"]}
want = {"gpu.daemon.sqe_cqe": "1.700", "gpu.daemon.context": "0.100", "gpu.daemon.relaunch": "4.000"}
sys.exit(not (all(f[k]["value"] == v and f[k]["verdict"] == "ok" for k, v in want.items()) and
              float(f["gpu.allreduce.2.copyshare"]["value"]) > 0 and f["gpu.allreduce.2.copyshare"]["peer"]["value"] == "3000" and
              float(f["gpu.disorder.time"]["peer"]["ratio"]) > 0))
P
fi
LATENCY_MAX=64 LATENCY_ROUNDS=1 BOUND=20 gpu bench "$results" nccl
grep -q '"gpu.allreduce.4.latency.8B"' "$results/bench-gpu.json" || fail "no figures of nccl: $(tail -5 "$T/gpu.log")"
exit 0
