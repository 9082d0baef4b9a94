#!/bin/sh
# See p_order.c.
set -eu
exec tests/hostcuda/preload.sh p_order
