#!/bin/sh
# See p_hooks.c.
set -eu
exec tests/hostcuda/preload.sh p_hooks
