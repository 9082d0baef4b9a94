#!/bin/bash
# Description: a program linked with the driver (-lcuda) runs under `dfshim run --host`, by NCCL's rules and by dfshim's.
set -u
. "$SRC/tests/lib/clients.sh"
cc=${CC:-gcc}
command -v "$cc" >/dev/null || skip "no $cc"
cd "$T" || exit 1
echo 'int cuInit(unsigned f) { return (int)f; } int cuDeviceGetCount(int *n) { return *n; }' >driver.c
cat >linked.c <<'C'
#include <stdio.h>
int cuInit(unsigned flags);
int cuDeviceGetCount(int *nr);

int main(void)
{
	int nr = -1, rc = cuInit(0);

	rc = rc ? rc : cuDeviceGetCount(&nr);
	printf("status %d, %d devices\n", rc, nr);
	return rc;
}
C
"$cc" -shared -fPIC -Wl,-soname,libcuda.so.1 -o libcuda.so driver.c && "$cc" -o linked linked.c -L. -lcuda || fail "the program is not built"
! ./linked 2>/dev/null || skip "this machine has a driver"
for rules in dfshim nccl; do
	timeout "${LIMIT:-60}" "$B/dfshim" run --host=3 --rules $rules -- ./linked >out 2>err || fail "$rules: status $?: $(cat err)"
	grep -qx "status 0, 3 devices" out || fail "$rules: $(cat out)"
done
exit 0
