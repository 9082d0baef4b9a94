#!/bin/bash
# Description: the protocols as Promela models: exhaustively free of errors, and each control has its error.
# Limit: 300 s
set -u
. "$(dirname "$0")/check.sh"

check ok daemon.pml ""
check ok daemon.pml "-DS=2 -DL=3"
check ok daemon.pml "" "-DNP -DNFAIR=4" "-l -f"
check error daemon.pml "-DNCCL"
check error daemon.pml "-DSHARED"
check ok gang.pml ""
check ok gang.pml "" "-DNP -DNFAIR=4" "-l -f"
check error gang.pml "-DFORGET"
check error gang.pml "-DFRONT" "-DNP -DNFAIR=4" "-l -f"
check ok hot.pml ""
check error hot.pml "-DNO_SAVE"
check error hot.pml "-DTWO"
check error hot.pml "-DLIVE"
check ok bell.pml ""
check error bell.pml "-DNO_LOOK"
check error bell.pml "-DEARLY"
check error bell.pml "-DLATE_SEEN"
check ok release.pml ""
check error release.pml "-DNONE"
check ok proof.pml ""
check error proof.pml "-DNO_HOLD" "-DSAFETY -DBFS"
check error proof.pml "-DNO_JUDGE"
exit 0
