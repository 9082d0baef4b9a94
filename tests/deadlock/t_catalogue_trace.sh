#!/bin/bash
# Description: the catalogue's hangs by NCCL's rules when dfshim does not end them: the verdict while the job lives and from the traces.
set -u
# One program of each kind. ALL=1 selects the whole catalogue.
[ -n "${ALL-}" ] || ONLY=${ONLY:-SQ-01 SQ-03 SQ-06 SQ-07 SQ-08 RD-01 RD-01ok RD-02 RD-04 GS-01 GS-03 GS-04 GS-06 GS-08 GS-12 GS-15 \
	PL-01 PL-03 PL-04 PL-08 PL-09 PL-10 PL-11 PC-01 PC-01g PC-05 PC-08 PC-14 MP-01 MP-08 MM-01 MM-05 CG-01 CG-02 CG-05 CB-04 IN-01 IN-02 IN-03 IN-04 TD-04 CR-01 TH-01 HB-01 N-08 TE-01 TE-03 TE-04 TE-05 TE-06 TE-07}
export ONLY
RULES=trace exec "$(dirname "$0")/catalogue.sh"
