#!/bin/sh
# See p_ipc.c.
set -eu
exec tests/hostcuda/preload.sh p_ipc
