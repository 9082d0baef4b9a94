#!/bin/bash
# Description: the catalogue of deadlocks by dfshim's rules, and some programs again with all ranks on one device.
RULES=ours "$(dirname "$0")/catalogue.sh" || exit
[ -z "${ONLY-}" ] || exit 0
# The checker must distinguish ranks that share a device, also in calls that all ranks of a
# communicator make.
ONLY="SQ-01 SQ-02 SQ-03 PL-08" DFSHIM_HOST_DEVICES=1 RULES=ours exec "$(dirname "$0")/catalogue.sh"
