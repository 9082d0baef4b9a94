#!/bin/bash
# Description: the catalogue of deadlocks on lanes: all that lanes prevent end; other orders inside one communicator hang with the right word, and end where the ranks agree on one (DFSHIM_NCCL_ORDER).
# Limit: 600 s
RULES="lanes agree" exec "$(dirname "$0")/catalogue.sh"
