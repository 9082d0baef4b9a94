#!/bin/sh
# See p_event.c.
set -eu
exec tests/hostcuda/preload.sh p_event
