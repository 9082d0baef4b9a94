#!/bin/bash
# Description: split, shrink, revoke, abort, finalize, and non-blocking communicators, with threads and processes.
set -u
. "$SRC/tests/lib/clients.sh"
host splitcheck --ranks 2
host splitcheck --ranks 5
host splitcheck --procs 4
host nbcheck --ranks 4
host nbcheck --procs 3
exit 0
