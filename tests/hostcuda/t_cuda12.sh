#!/bin/bash
# Programs that were linked with CUDA 12's runtime also use libdfhost.so, with that release's forms
# of functions and structures. The test makes a libcudart.so.12 with its version node, whose
# functions all fail, and links a program with it.
set -eu
[ -e "$B/libdfhost.so" ] || { echo "skipped: built without the CUDA headers"; exit 77; }
cc=$(command -v cc || command -v gcc) || { echo "skipped: no C compiler"; exit 77; }
cd "$T"
names="cudaGetDeviceCount cudaGetDeviceProperties_v2 cudaStreamCreate cudaStreamGetCaptureInfo_v2
cudaPointerGetAttributes cudaGraphCreate cudaGraphGetEdges cudaThreadSynchronize cudaGetDeviceProperties"
for n in $names; do echo "int $n(void) { return 999; }"; done >fake.c
echo 'libcudart.so.12 { global: cuda*; local: *; };' >fake.map
"$cc" -shared -fPIC -Wl,-soname,libcudart.so.12 -Wl,--version-script=fake.map -o libcudart.so.12 fake.c
cat >prog.c <<'EOF'
#include <stdio.h>
#include <string.h>
int cudaGetDeviceCount(int *), cudaGetDeviceProperties_v2(void *, int), cudaStreamCreate(void **);
int cudaStreamGetCaptureInfo_v2(void *, int *, unsigned long long *, void *, void *, void *);
int cudaGraphCreate(void **, unsigned), cudaGraphGetEdges(void *, void *, void *, unsigned long *);
int cudaPointerGetAttributes(void *, const void *);
int cudaThreadSynchronize(void), cudaGetDeviceProperties(void *, int);
#define IS(want, call) \
	do { int got = call; if (got != want) { printf("%s: %d\n", #call, got); return 1; } } while (0)
int main(void)
{
	unsigned char prop[1032 + 64];
	unsigned char attributes[24 + 64];
	unsigned long edges = 77;
	int n = 0, status = 9;
	void *s, *g;

	memset(prop, 0xa5, sizeof(prop));
	IS(0, cudaGetDeviceCount(&n));
	IS(8, n);
	IS(0, cudaGetDeviceProperties_v2(prop, 0));
	IS(0xa5, prop[1032]);
	IS(0, strcmp((char *)prop, "dfshim host device"));
	IS(32, *(int *)(prop + 308)); /* warpSize */
	IS(9, *(int *)(prop + 360));  /* major */
	IS(0, cudaStreamCreate(&s));
	IS(0, cudaStreamGetCaptureInfo_v2(s, &status, 0, 0, 0, 0));
	IS(0, status);
	IS(0, cudaGraphCreate(&g, 0));
	IS(0, cudaGraphGetEdges(g, 0, 0, &edges));
	IS(0, (int)edges);
	memset(attributes, 0xa5, sizeof(attributes));
	IS(0, cudaPointerGetAttributes(attributes, prop));
	IS(0, *(int *)attributes); /* unregistered */
	IS(0xa5, attributes[24]);
	IS(0, cudaThreadSynchronize());
	IS(801, cudaGetDeviceProperties(prop, 0)); /* the structure of CUDA 11 */
	return 0;
}
EOF
"$cc" -o prog prog.c libcudart.so.12 -Wl,-rpath,"$PWD"
if ./prog; then
	echo "the stand-in answered instead of failing"
	exit 1
fi
LD_PRELOAD=${SAN_RUNTIME-}$B/libdfhost.so ./prog
