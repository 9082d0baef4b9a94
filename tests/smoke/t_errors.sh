#!/bin/bash
# Description: NCCL's argument errors: result codes and texts.
set -u
. "$SRC/tests/lib/clients.sh"
host errcheck --ranks 1
host errcheck --ranks 2 --procs 2
exit 0
