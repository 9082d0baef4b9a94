#!/bin/bash
# Description: dfshim.deft trains according to its schedule, compared with a loop without communication.
# Limit: 900 s
set -u
. "$SRC/tests/plan/torch.sh"
torch_job deft_job.py
