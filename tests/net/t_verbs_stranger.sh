#!/bin/bash
# Description: an outsider at the socket over which queue pairs are set up learns nothing about
# them, and cannot set up any (setup.c).
set -u
. "$SRC/tests/lib/clients.sh"
. "$SRC/tests/net/verbs.sh"
[ -x "$B/tests/net/setup" ] || skip "net/setup is not built here"
export SEED NCCL_IB_QPS_PER_CONNECTION=2
exec "$B/tests/net/setup"
