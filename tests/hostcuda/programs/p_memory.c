/*
 * Memory: allocations compared with a model, every form of copy and fill, attributes, limits,
 * registration, stream-ordered allocation, and the synchronous behaviour of copies with pageable
 * memory.
 */
#include "tests/hostcuda/programs/cu.h"

static void set(void *arg)
{
	++*(int *)arg;
}

/* Random allocations and frees: blocks never overlap, keep their contents, and are aligned. */
static void model(uint64_t *rng)
{
	enum { N = 64 };
	struct {
		unsigned char *p;
		size_t n;
		unsigned char v;
		int host;
	} b[N] = {{0}};
	unsigned char *copy = malloc(1 << 20);
	size_t free0, free1, total, i, k;
	int round;

	CU(cudaMemGetInfo(&free0, &total));
	for (round = 0; round < 1500; round++) {
		i = next(rng) % N;
		if (b[i].p) {
			CU(cudaMemcpy(copy, b[i].p, b[i].n, cudaMemcpyDefault));
			for (k = 0; k < b[i].n; k++)
				CHECK(copy[k] == b[i].v);
			CU(b[i].host ? cudaFreeHost(b[i].p) : cudaFree(b[i].p));
			b[i].p = NULL;
			continue;
		}
		b[i].n = 1 + next(rng) % (next(rng) % 4 ? 3000 : 1 << 20);
		b[i].v = (unsigned char)next(rng);
		b[i].host = next(rng) % 4 == 0;
		CU(b[i].host ? cudaMallocHost((void **)&b[i].p, b[i].n)
			     : cudaMalloc((void **)&b[i].p, b[i].n));
		CHECK((uintptr_t)b[i].p % 512 == 0);
		CU(cudaMemset(b[i].p, b[i].v, b[i].n));
	}
	for (i = 0; i < N; i++)
		if (b[i].p)
			CU(b[i].host ? cudaFreeHost(b[i].p) : cudaFree(b[i].p));
	CU(cudaMemGetInfo(&free1, &total));
	CHECK(free0 == free1 && free0 <= total);
	free(copy);
}

static void limits(void)
{
	size_t unused, total;
	void *p = (void *)1, *q;

	CU(cudaMalloc(&p, 0));
	CHECK(!p);
	CU(cudaFree(NULL));
	CU(cudaFreeHost(NULL));
	CU(cudaMemGetInfo(&unused, &total));
	GIVES(cudaErrorMemoryAllocation, cudaMalloc(&p, total + 1));
	GIVES(cudaErrorMemoryAllocation, cudaMalloc(&p, SIZE_MAX - 3));
	CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
	CHECK(cudaGetLastError() == cudaSuccess);
	CU(cudaMalloc(&p, unused / 2 + 4096));
	GIVES(cudaErrorMemoryAllocation, cudaMalloc(&q, unused / 2));
	CU(cudaFree(p));
	CU(cudaMalloc(&p, 100));
	GIVES(cudaErrorInvalidValue, cudaFree((char *)p + 8));
	GIVES(cudaErrorInvalidValue, cudaFreeHost(p));
	GIVES(cudaErrorInvalidValue, cudaMemset(p, 0, 4096));
	GIVES(cudaErrorInvalidValue, cudaMemset(&q, 0, 1));
	GIVES(cudaErrorInvalidValue, cudaMemcpy(p, &q, 101, cudaMemcpyHostToDevice));
	GIVES(cudaErrorInvalidValue, cudaMemcpy(&q, &p, 4, cudaMemcpyHostToDevice));
	GIVES(cudaErrorInvalidMemcpyDirection, cudaMemcpy(p, p, 1, (enum cudaMemcpyKind)17));
	CU(cudaFree(p));
	GIVES(cudaErrorInvalidValue, cudaFree(p));
	GIVES(cudaErrorInvalidValue, cudaMalloc(NULL, 1));
	(void)cudaGetLastError();
}

static void boxes(void)
{
	unsigned char host[6 * 7 * 9], back[6 * 7 * 9];
	struct cudaPitchedPtr d;
	struct cudaMemcpy3DParms p = {0};
	unsigned char *flat;
	size_t pitch, i;

	for (i = 0; i < sizeof(host); i++)
		host[i] = (unsigned char)(i * 7);
	CU(cudaMallocPitch((void **)&flat, &pitch, 9, 42));
	CHECK(pitch >= 9);
	CU(cudaMemset2D(flat, pitch, 0xee, 9, 42));
	CU(cudaMemcpy2D(flat, pitch, host, 9, 9, 42, cudaMemcpyHostToDevice));
	memset(back, 0, sizeof(back));
	CU(cudaMemcpy2DAsync(back, 9, flat, pitch, 9, 42, cudaMemcpyDeviceToHost, NULL));
	CU(cudaStreamSynchronize(NULL));
	CHECK(!memcmp(host, back, sizeof(host)));
	GIVES(cudaErrorInvalidPitchValue,
	      cudaMemcpy2D(flat, 4, host, 9, 9, 2, cudaMemcpyHostToDevice));
	CU(cudaFree(flat));

	CU(cudaMalloc3D(&d, (struct cudaExtent){9, 7, 6}));
	CU(cudaMemset3D(d, 3, (struct cudaExtent){9, 7, 6}));
	p.srcPtr = (struct cudaPitchedPtr){host, 9, 9, 7};
	p.dstPtr = d;
	p.extent = (struct cudaExtent){9, 7, 6};
	p.kind = cudaMemcpyHostToDevice;
	CU(cudaMemcpy3D(&p));
	memset(back, 0, sizeof(back));
	p.srcPtr = d;
	p.dstPtr = (struct cudaPitchedPtr){back, 9, 9, 7};
	p.srcPos = p.dstPos = (struct cudaPos){2, 3, 1};
	p.extent = (struct cudaExtent){4, 2, 5};
	p.kind = cudaMemcpyDeviceToHost;
	CU(cudaMemcpy3D(&p));
	for (i = 0; i < sizeof(back); i++) {
		size_t x = i % 9, y = i / 9 % 7, z = i / 63;
		int in = x >= 2 && x < 6 && y >= 3 && y < 5 && z >= 1;

		CHECK(back[i] == (in ? host[i] : 0));
	}
	CU(cudaFree(d.ptr));
	(void)cudaGetLastError();
}

static void attributes(void)
{
	struct cudaPointerAttributes a;
	static char registered[8192];
	char *dev, *pinned, *managed, plain;
	void *p;
	unsigned flags;

	CU(cudaSetDevice(2));
	CU(cudaMalloc((void **)&dev, 1000));
	CU(cudaSetDevice(0));
	CU(cudaHostAlloc((void **)&pinned, 1000, cudaHostAllocPortable));
	CU(cudaMallocManaged((void **)&managed, 1000, cudaMemAttachGlobal));
	CU(cudaPointerGetAttributes(&a, dev + 999));
	CHECK(a.type == cudaMemoryTypeDevice && a.device == 2 && a.devicePointer == dev + 999);
	CU(cudaPointerGetAttributes(&a, pinned + 5));
	CHECK(a.type == cudaMemoryTypeHost && a.hostPointer == pinned + 5);
	CU(cudaPointerGetAttributes(&a, managed));
	CHECK(a.type == cudaMemoryTypeManaged);
	CU(cudaPointerGetAttributes(&a, &plain));
	CHECK(a.type == cudaMemoryTypeUnregistered);
	CU(cudaHostRegister(registered, sizeof(registered), cudaHostRegisterMapped));
	GIVES(cudaErrorHostMemoryAlreadyRegistered,
	      cudaHostRegister(registered + 4096, 4096, cudaHostRegisterDefault));
	CU(cudaPointerGetAttributes(&a, registered + 8191));
	CHECK(a.type == cudaMemoryTypeHost);
	CU(cudaHostGetDevicePointer(&p, registered + 1, 0));
	CHECK(p == registered + 1);
	CU(cudaHostGetFlags(&flags, pinned));
	CHECK(flags & cudaHostAllocPortable);
	CU(cudaHostUnregister(registered));
	GIVES(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(registered));
	GIVES(cudaErrorInvalidValue, cudaHostGetDevicePointer(&p, &plain, 0));
	managed[999] = 1;
	CU(cudaMemPrefetchAsync(managed, 1000,
				(struct cudaMemLocation){cudaMemLocationTypeDevice, 0}, 0, NULL));
	CU(cudaFree(dev));
	CU(cudaFree(managed));
	CU(cudaFreeHost(pinned));
	(void)cudaGetLastError();
}

/*
 * Pageable memory may be changed when a copy from it returns, and read when a copy to it returns.
 */
static void pageable(void)
{
	struct gate g = {0};
	cudaStream_t s;
	char src[4096], dst[4096], *dev;

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CU(cudaMalloc((void **)&dev, sizeof(src)));
	memset(src, 5, sizeof(src));
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CU(cudaMemcpyAsync(dev, src, sizeof(src), cudaMemcpyHostToDevice, s));
	memset(src, 6, sizeof(src));
	gate_open(&g);
	CU(cudaMemcpyAsync(dst, dev, sizeof(dst), cudaMemcpyDeviceToHost, s));
	CHECK(dst[0] == 5 && dst[4095] == 5);
	CU(cudaFree(dev));
	CU(cudaStreamDestroy(s));
}

static void stream_ordered(void)
{
	struct gate g = {0};
	cudaMemPool_t pool, again;
	cudaStream_t s;
	size_t f0, f1, total;
	uint64_t threshold = 1 << 20, got;
	int ran = 0;
	char *p;

	CU(cudaStreamCreate(&s));
	CU(cudaMemGetInfo(&f0, &total));
	CU(cudaMallocAsync((void **)&p, 5000, s));
	CU(cudaLaunchHostFunc(s, gate_wait, &g));
	CU(cudaMemsetAsync(p, 1, 5000, s));
	CU(cudaFreeAsync(p, s));
	CU(cudaLaunchHostFunc(s, set, &ran));
	CU(cudaMemGetInfo(&f1, &total));
	CHECK(f1 < f0);
	gate_open(&g);
	CU(cudaStreamSynchronize(s));
	CU(cudaMemGetInfo(&f1, &total));
	CHECK(f1 == f0 && ran == 1);
	CU(cudaDeviceGetDefaultMemPool(&pool, 0));
	CU(cudaDeviceGetMemPool(&again, 0));
	CHECK(pool == again);
	CU(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
	CU(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
	CHECK(got == threshold);
	CU(cudaMallocFromPoolAsync((void **)&p, 100, pool, s));
	CU(cudaFree(p));
	CU(cudaStreamDestroy(s));
}

/* Without hooks cudaFree() waits for the device, as in CUDA. */
static void free_waits(void)
{
	cudaStream_t s;
	char *p, *big;

	CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	CU(cudaMalloc((void **)&p, 64));
	CU(cudaMalloc((void **)&big, 32 << 20));
	CU(cudaMemsetAsync(big, 1, 32 << 20, s));
	CU(cudaFree(p));
	CU(cudaStreamQuery(s));
	CU(cudaFree(big));
	CU(cudaStreamDestroy(s));
}

/* mem_info() returns a file and an offset that another process can map. */
static void info(void)
{
	const struct df_backend *api = hostcuda();
	struct df_mem_info m;
	char *p, byte = 0;

	CU(cudaMalloc((void **)&p, 3000));
	CU(cudaMemset(p, 42, 3000));
	CHECK(!api->mem_info(p + 2999, &m));
	CHECK(m.kind == DF_MEM_DEVICE && m.device == 0 && m.base == p && m.bytes == 3000);
	CHECK(m.fd >= 0 && pread(m.fd, &byte, 1, (off_t)m.offset + 2999) == 1 && byte == 42);
	CHECK(!api->mem_info(&m, &m) && m.kind == DF_MEM_UNKNOWN && m.fd == -1);
	CHECK(api->mem_free(p + 1) == -EINVAL);
	CHECK(!api->mem_free(p));
	CHECK(!api->mem_info(p, &m) && m.kind == DF_MEM_UNKNOWN);
	CHECK(!api->mem_alloc(3, 77, (void **)&p));
	CHECK(!api->mem_info(p, &m) && m.device == 3);
	CHECK(!api->mem_free(p));
}

int main(void)
{
	uint64_t rng = seed();

	model(&rng);
	limits();
	boxes();
	attributes();
	pageable();
	stream_ordered();
	free_waits();
	info();
	return 0;
}
