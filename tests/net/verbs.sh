# The libibverbs tests/net/fake/fake_verbs.c, for jobs whose nodes it connects. Sourced after
# tests/lib/clients.sh.
# shellcheck shell=bash
CC=${CC:-gcc}
command -v "${CC%% *}" >/dev/null || skip "no C compiler"
[ -f /usr/include/infiniband/verbs.h ] || skip "no infiniband/verbs.h"
$CC -shared -fPIC -Wall -Werror -O1 -pthread -o "$T/libfake_verbs.so" "$SRC/tests/net/fake/fake_verbs.c" "$SRC/tests/net/fake/fake_nic.c" ||
	fail "the libibverbs of ours does not build"
export NCCL_IBVERBS_LIB=$T/libfake_verbs.so NCCL_IB_HCA=rocex
counted() { awk -v k="\"$1\":" '{ for (i = 1; i < NF; i++) if ($i == k) sum += $(i + 1) } END { print sum + 0 }' "$T/stats"; }
