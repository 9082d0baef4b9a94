#!/bin/sh
# See p_stream.c.
set -eu
exec tests/hostcuda/preload.sh p_stream
