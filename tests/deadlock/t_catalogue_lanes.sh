#!/bin/bash
# Description: the catalogue of deadlocks on lanes. Programs whose hang lanes prevent complete. Different orders inside one communicator hang with the right verdict, and complete if the ranks agree on an order (DFSHIM_NCCL_ORDER).
# Limit: 600 s
RULES="lanes agree" exec "$(dirname "$0")/catalogue.sh"
