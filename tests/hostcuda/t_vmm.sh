#!/bin/sh
# See p_vmm.c.
set -eu
exec tests/hostcuda/preload.sh p_vmm
