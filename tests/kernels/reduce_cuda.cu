/*
 * Compares the GPU's dfk_move() (kernels/reduce_cuda.inl) with the CPU's, bit for bit. Its source
 * is compiled for the CPU and always run there, one emulated thread after another; on a GPU it is
 * run as well. The emulation replaces the half, bfloat and fp8 instructions, so without a GPU these
 * remain untested.
 *
 * reduce_cuda [gpu]: with `gpu`, exits with 77 if there is no GPU. SEED repeats a run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/port.h"
#undef DFK
#undef DFK_TID
#undef DFK_NTHREADS
#define DFK	     static __host__ __device__ __forceinline__
#define DFK_TID	     emulated_tid()
#define DFK_NTHREADS emulated_threads()

int host_tid, host_threads;

DFK int emulated_tid()
{
#ifdef __CUDA_ARCH__
	return (int)threadIdx.x;
#else
	return host_tid;
#endif
}

DFK int emulated_threads()
{
#ifdef __CUDA_ARCH__
	return (int)blockDim.x;
#else
	return host_threads;
#endif
}

#include "kernels/reduce.h"

extern "C" void dfk_move_cpu(const struct dfk_move *m);

#define AREA  (1 << 16)
#define GUARD 64

static uint64_t seed, state;

static uint64_t rnd()
{
	uint64_t z = state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

__global__ void move_on_gpu(struct dfk_move m)
{
	dfk_move(&m);
}

/*
 * Areas 0 and 1 are sources, 2 and 3 destinations. `want` holds the expected bytes, `before` the
 * bytes before the call.
 */
static uint8_t *area[4], *want[4], *before[4];

static int run(const struct dfk_move *m, int threads, bool gpu)
{
	if (gpu) {
		move_on_gpu<<<1, threads>>>(*m);
		cudaError_t e = cudaDeviceSynchronize();
		if (e != cudaSuccess) {
			fprintf(stderr, "reduce_cuda: %s\n", cudaGetErrorString(e));
			return 1;
		}
		return 0;
	}
	host_threads = threads;
	for (host_tid = 0; host_tid < threads; host_tid++)
		dfk_move(m);
	return 0;
}

/* Returns the address in `to` that corresponds to `p` in `area`. */
static void *moved(const void *p, uint8_t *const to[4])
{
	for (int k = 0; k < 4; k++)
		if (p >= area[k] && p < area[k] + AREA)
			return to[k] + ((const uint8_t *)p - area[k]);
	return NULL;
}

static uint64_t special(uint32_t bytes)
{
	int width = 8 * (int)bytes;
	uint64_t v = rnd();

	switch (rnd() % 6) {
	case 0:
		v = 1ull << (rnd() % width);
		break;
	case 1:
		v = (1ull << (rnd() % width)) - 1;
		break;
	case 2:
		v = 0 - (1ull << (rnd() % width));
		break;
	case 3: /* a medium exponent, so that sums are rounded */
		v = (v & ~(15ull << (width - 5))) | 7ull << (width - 5);
		break;
	default:
		break;
	}
	return width == 64 ? v : v & ((1ull << width) - 1);
}

static int one(bool gpu)
{
	struct dfk_move m, cpu;
	int threads = 32 << (rnd() % 5);
	uint32_t bytes;
	bool same = rnd() & 1;

	memset(&m, 0, sizeof(m));
	m.type = (uint32_t)(rnd() % DF_NR_TYPES);
	m.redop = (uint32_t)(rnd() % DF_NR_REDOPS);
	bytes = dfk_type_bytes(m.type);
	m.elems = rnd() % (rnd() % 4 ? 300 : (AREA - 4 * GUARD) / bytes);
	for (int k = 0; k < 4; k++) {
		for (size_t i = 0; i < AREA; i += bytes) {
			uint64_t v = special(bytes);

			memcpy(area[k] + i, &v, bytes);
		}
		memcpy(before[k], area[k], AREA);
		memcpy(want[k], area[k], AREA);
	}
	/* Often all pointers have the same alignment, so that vector accesses are possible. */
	uint64_t off[4], common = rnd() % 3 ? 0 : rnd() % (GUARD / bytes) * bytes;
	for (int k = 0; k < 4; k++)
		off[k] = GUARD + (same ? common : rnd() % (GUARD / bytes) * bytes);
	m.a = area[0] + off[0];
	m.b = rnd() % 4 ? area[1] + off[1] : NULL;
	m.dst = area[2] + off[2];
	m.dst2 = rnd() & 1 ? area[3] + off[3] : NULL;
	switch (rnd() % 6) {
	case 0:
		m.dst = (void *)m.a;
		break;
	case 1:
		m.dst = (void *)(m.b ? m.b : m.a);
		break;
	case 2:
		m.dst2 = (void *)m.a;
		break;
	case 3:
		m.dst2 = area[3] + off[3];
		m.dst = NULL;
		break;
	default:
		break;
	}
	m.arg = m.redop == DF_SUMPOSTDIV && rnd() % 8 ? rnd() % 300 : special(8);
	m.pre_a = rnd() & 1;
	m.pre_b = rnd() & 1;
	m.post = rnd() & 1;
	cpu = m;
	cpu.a = moved(m.a, want);
	cpu.b = moved(m.b, want);
	cpu.dst = moved(m.dst, want);
	cpu.dst2 = moved(m.dst2, want);
	dfk_move_cpu(&cpu);
	if (run(&m, threads, gpu))
		return 1;
	for (int k = 0; k < 4; k++)
		for (size_t i = 0; i < AREA; i++)
			if (area[k][i] != want[k][i]) {
				fprintf(stderr,
					"reduce_cuda: %s, seed %llu: type %u op %u elems %llu threads %d arg %#llx "
					"pre %u %u post %u offsets a %d b %d dst %d dst2 %d: area %d byte %zu "
					"is %02x, expected %02x, was %02x\n",
					gpu ? "GPU" : "emulated", (unsigned long long)seed, m.type,
					m.redop, (unsigned long long)m.elems, threads,
					(unsigned long long)m.arg, m.pre_a, m.pre_b, m.post,
					(int)((uintptr_t)m.a & 15), (int)((uintptr_t)m.b & 15),
					(int)((uintptr_t)m.dst & 15), (int)((uintptr_t)m.dst2 & 15),
					k, i, area[k][i], want[k][i], before[k][i]);
				return 1;
			}
	return 0;
}

/* Tests one operation on all values, and all pairs of values, of the small formats. */
static int pairs(uint32_t type, uint32_t redop, bool gpu)
{
	uint32_t bytes = dfk_type_bytes(type), n = AREA / bytes;

	for (uint32_t i = 0; i < n; i++) {
		uint16_t x = (uint16_t)(bytes == 2 ? i * 2 + (rnd() & 1) : i);
		uint16_t y = (uint16_t)(bytes == 2 ? rnd() : i >> 8);

		memcpy(area[0] + i * bytes, &x, bytes);
		memcpy(area[1] + i * bytes, &y, bytes);
	}
	struct dfk_move m, cpu;
	memset(&m, 0, sizeof(m));
	m.type = type;
	m.redop = redop;
	m.elems = n;
	m.arg = redop == DF_SUMPOSTDIV ? 3 : special(bytes);
	m.pre_a = m.post = 1;
	m.a = area[0];
	m.b = area[1];
	m.dst = area[2];
	cpu = m;
	cpu.dst = want[2];
	dfk_move_cpu(&cpu);
	if (run(&m, 256, gpu))
		return 1;
	for (uint32_t i = 0; i < n; i++)
		if (memcmp(area[2] + i * bytes, want[2] + i * bytes, bytes)) {
			uint16_t v[4] = {0};

			memcpy(&v[0], area[0] + i * bytes, bytes);
			memcpy(&v[1], area[1] + i * bytes, bytes);
			memcpy(&v[2], area[2] + i * bytes, bytes);
			memcpy(&v[3], want[2] + i * bytes, bytes);
			fprintf(stderr,
				"reduce_cuda: %s, seed %llu: type %u op %u arg %#llx: %#x op %#x gives %#x, expected %#x\n",
				gpu ? "GPU" : "emulated", (unsigned long long)seed, type, redop,
				(unsigned long long)m.arg, v[0], v[1], v[2], v[3]);
			return 1;
		}
	return 0;
}

static int check_all(bool gpu)
{
	static const uint32_t small[] = {DF_INT8,     DF_UINT8,	     DF_FLOAT16,
					 DF_BFLOAT16, DF_FLOAT8E4M3, DF_FLOAT8E5M2};

	for (int k = 0; k < 4; k++) {
		want[k] = (uint8_t *)malloc(AREA);
		before[k] = (uint8_t *)malloc(AREA);
		area[k] = NULL;
		if (gpu)
			cudaMallocManaged((void **)&area[k], AREA);
		else
			area[k] = (uint8_t *)aligned_alloc(64, AREA);
		if (!area[k] || !want[k] || !before[k]) {
			fprintf(stderr, "reduce_cuda: no memory\n");
			return 1;
		}
	}
	for (uint32_t t : small)
		for (uint32_t redop = 0; redop < DF_NR_REDOPS; redop++)
			if (pairs(t, redop, gpu))
				return 1;
	for (int i = 0; i < 1500; i++)
		if (one(gpu))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *s = getenv("SEED");
	bool must = argc > 1 && strcmp(argv[1], "gpu") == 0;
	int devices = 0;

	seed = s ? strtoull(s, NULL, 0) : (uint64_t)time(NULL);
	state = seed;
	if (cudaGetDeviceCount(&devices) != cudaSuccess)
		devices = 0;
	if (must && !devices) {
		fprintf(stderr, "reduce_cuda: skipped: no GPU\n");
		return 77;
	}
	if (!must && check_all(false))
		return 1;
	if (devices && check_all(true))
		return 1;
	printf("reduce_cuda: ok%s%s\n", must ? "" : ", emulated", devices ? ", GPU" : "");
	return 0;
}
