#!/bin/bash
# Description: the catalogue of deadlocks by NCCL's rules.
RULES=nccl exec "$(dirname "$0")/catalogue.sh"
