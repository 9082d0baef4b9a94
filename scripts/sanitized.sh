#!/bin/bash
# Runs a command with the sanitizers' settings. Builds with AddressSanitizer check for leaks at the
# end of every process. Unreachable memory is a leak. Memory that lives until exit on purpose is
# not. tests/lsan.supp and tests/tsan.supp list exceptions, each with its reason.
set -u
cd "$(dirname "$0")/.." || exit 1
supp=$PWD/tests
export TSAN_OPTIONS="${TSAN_OPTIONS-} halt_on_error=0 exitcode=66 suppressions=$supp/tsan.supp \
history_size=4 second_deadlock_stack=1"
# Our libraries are preloaded before the sanitizer's: they are instrumented, and the clients link
# the sanitizer.
export ASAN_OPTIONS="${ASAN_OPTIONS-} verify_asan_link_order=0 detect_leaks=1 abort_on_error=0 \
exitcode=67 detect_stack_use_after_return=1"
export LSAN_OPTIONS="${LSAN_OPTIONS-} suppressions=$supp/lsan.supp print_suppressions=0"
export UBSAN_OPTIONS="${UBSAN_OPTIONS-} print_stacktrace=1 halt_on_error=1 exitcode=68"
exec "$@"
