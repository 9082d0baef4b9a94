#!/bin/bash
# Description: dfshim.deft trains as its schedule says, compared with a loop that has no communication.
# Limit: 900 s
set -u
. "$SRC/tests/plan/torch.sh"
torch_job deft_job.py
