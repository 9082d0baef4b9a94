#!/bin/bash
# Description: the catalogue of deadlocks on lanes: all that lanes prevent end; other orders inside one communicator hang with the right word, and end where the ranks agree on one (DFSHIM_NCCL_ORDER).
# Not here: more than fits on a device (PD-03, RD-01, SQ-04: smoke/t_lanes_budget).
ONLY="GS-01 GS-03 GS-04 GS-04r GS-06 GS-09 GS-12 GS-15 GS-17 GS-17m HB-02 IN-03 IN-04 PC-11 PD-04 RD-02 SQ-01 SQ-01e SQ-01l
SQ-02 SQ-02a SQ-03 SQ-03a SQ-08 SQ-09 TH-01 TH-04 GS-06n GS-08 IN-08 MM-06 N-05 N-07 N-08 PC-01g PC-09 PC-14 PL-06 PL-11 RD-01ok SQ-07 TE-08 PC-01 PC-02 PC-04 PC-06 PC-10
PC-12 PC-15 SQ-06 TH-02 CG-01 CG-02 CG-05 CG-08"
ONLY=$(echo $ONLY) RULES="lanes agree" exec "$(dirname "$0")/catalogue.sh"
