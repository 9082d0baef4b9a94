#!/bin/bash
# Description: exact gating of dfshim.deft gives the losses and parameters of plain DDP, bit for bit.
# Limit: 900 s
set -u
. "$SRC/tests/plan/torch.sh"
torch_job gate_job.py
