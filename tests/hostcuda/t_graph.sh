#!/bin/sh
# See p_graph.c.
set -eu
# perturb: memory that was freed has other values, so a program that reads it fails.
GLIBC_TUNABLES=glibc.malloc.perturb=165 exec tests/hostcuda/preload.sh p_graph
