#!/bin/bash
# Runs a command with the sanitizers' settings. Leaks are not looked for: what lives until exit is the
# operating system's business, and NCCL's own libraries leak.
set -u
cd "$(dirname "$0")/.." || exit 1
supp=$PWD/tests/tsan.supp
export TSAN_OPTIONS="${TSAN_OPTIONS-} halt_on_error=0 exitcode=66 suppressions=$supp history_size=4 second_deadlock_stack=1"
# Our libraries are preloaded in front of the sanitizer's: they are instrumented, and the clients bring it.
export ASAN_OPTIONS="${ASAN_OPTIONS-} verify_asan_link_order=0 detect_leaks=0 abort_on_error=0 exitcode=67 detect_stack_use_after_return=1"
export UBSAN_OPTIONS="${UBSAN_OPTIONS-} print_stacktrace=1 halt_on_error=1 exitcode=68"
exec "$@"
