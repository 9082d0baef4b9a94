#!/bin/sh
# See p_memory.c.
set -eu
exec tests/hostcuda/preload.sh p_memory
