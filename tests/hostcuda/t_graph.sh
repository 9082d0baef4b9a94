#!/bin/sh
# See p_graph.c.
set -eu
exec tests/hostcuda/preload.sh p_graph
