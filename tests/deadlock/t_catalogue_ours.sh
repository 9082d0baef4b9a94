#!/bin/bash
# Description: the catalogue of deadlocks by our rules; a part of it again with all ranks on one device.
RULES=ours "$(dirname "$0")/catalogue.sh" || exit
[ -z "${ONLY-}" ] || exit 0
# Ranks that share a device are still ranks to the checker, also in calls that all of a communicator make.
ONLY="SQ-01 SQ-02 SQ-03 PL-08" DFSHIM_HOST_DEVICES=1 RULES=ours exec "$(dirname "$0")/catalogue.sh"
