/*
 * dfk_move() on a CPU: chooses the loops once per machine, copies, and passes whole vectors to the
 * loops. Any thread may call it at any time; takes no lock, keeps no state but the choice.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/reduce.h"
#include "kernels/reduce_int.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <xmmintrin.h>
#endif

/*
 * With two destinations, copies are made piece by piece, so that the source is read from the L1
 * cache the second time.
 */
#define COPY_PIECE 8192

/*
 * The choice is a pointer to constant data, and every thread would choose the same. So no memory
 * order is needed, and a race only repeats the work.
 */
static const struct dfk_loops *chosen;

/* Returns NULL if this CPU or this build lacks it. */
static const struct dfk_loops *path_loops(enum dfk_path path)
{
#ifdef __x86_64__
	unsigned int a, b, c, d;
	bool avx2, avx512;

	/* Constructors of other libraries may run this before libgcc's own constructor. */
	__builtin_cpu_init();
	/* Not every compiler has a name for F16C. */
	avx2 = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
	avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
	if (avx512 && (path == DFK_PATH_AUTO || path == DFK_PATH_AVX512))
		return &dfk_loops_avx512;
	if (avx2 && (path == DFK_PATH_AUTO || path == DFK_PATH_AVX2))
		return &dfk_loops_avx2;
#endif
	return path == DFK_PATH_AUTO || path == DFK_PATH_BASE ? &dfk_loops_base : NULL;
}

static const struct dfk_loops *loops(void)
{
	const struct dfk_loops *l = __atomic_load_n(&chosen, __ATOMIC_RELAXED);

	if (__builtin_expect(!l, 0)) {
		l = path_loops(DFK_PATH_AUTO);
		__atomic_store_n(&chosen, l, __ATOMIC_RELAXED);
	}
	return l;
}

int dfk_path_set(enum dfk_path path)
{
	const struct dfk_loops *l = path_loops(path);

	if (!l)
		return -ENOTSUP;
	__atomic_store_n(&chosen, l, __ATOMIC_RELAXED);
	return 0;
}

const char *dfk_path_name(void)
{
	return loops()->name;
}

/*
 * A thread inherits rounding mode, flush-to-zero and unmasked traps from the thread that creates
 * it, and programs linked with -ffast-math set them.
 */
#ifdef __x86_64__
#define CSR_DEFAULT 0x1f80u
#define CSR_FLAGS   0x3fu

static inline unsigned int fp_enter(void)
{
	unsigned int csr = _mm_getcsr();

	if (__builtin_expect((csr & ~CSR_FLAGS) != CSR_DEFAULT, 0))
		_mm_setcsr(CSR_DEFAULT);
	return csr;
}

static inline void fp_leave(unsigned int csr)
{
	if (__builtin_expect((csr & ~CSR_FLAGS) != CSR_DEFAULT, 0))
		_mm_setcsr(csr);
}
#else
static inline unsigned int fp_enter(void)
{
	return 0;
}

static inline void fp_leave(unsigned int csr)
{
	(void)csr;
}
#endif

static void copy(uint8_t *d, uint8_t *d2, const uint8_t *a, size_t bytes)
{
	if (d2 == a || d2 == d)
		d2 = NULL;
	if (d == a) {
		d = d2;
		d2 = NULL;
	}
	if (!d)
		return;
	if (!d2) {
		memcpy(d, a, bytes);
		return;
	}
	for (size_t i = 0; i < bytes; i += COPY_PIECE) {
		size_t n = bytes - i < COPY_PIECE ? bytes - i : COPY_PIECE;

		memcpy(d + i, a + i, n);
		memcpy(d2 + i, a + i, n);
	}
}

/* Processes less than a vector, at byte `at` of the span. */
static void run_part(const struct dfk_loops *l, dfk_loop_fn fn, const struct dfk_span *s, size_t at,
		     size_t bytes)
{
	uint8_t buf[2][DFK_MAX_VEC] __attribute__((aligned(DFK_MAX_VEC))) = {{0}};
	struct dfk_span part = *s;

	memcpy(buf[0], s->a + at, bytes);
	if (s->b)
		memcpy(buf[1], s->b + at, bytes);
	part.d = buf[0];
	part.d2 = NULL;
	part.a = buf[0];
	part.b = s->b ? buf[1] : NULL;
	part.bytes = l->vec_bytes;
	fn(&part);
	memcpy(s->d + at, buf[0], bytes);
	if (s->d2)
		memcpy(s->d2 + at, buf[0], bytes);
}

static void run(const struct dfk_loops *l, dfk_loop_fn fn, struct dfk_span *s)
{
	size_t vec = l->vec_bytes, bytes = s->bytes, head = 0, body;

	/* Align the stores: those that cross cache lines cost the most. */
	if (bytes >= 8 * vec)
		head = -(uintptr_t)s->d & (vec - 1);
	body = (bytes - head) & ~(vec - 1);
	if (head)
		run_part(l, fn, s, 0, head);
	if (head + body < bytes)
		run_part(l, fn, s, head + body, bytes - head - body);
	if (!body)
		return;
	s->d += head;
	s->a += head;
	if (s->d2)
		s->d2 += head;
	if (s->b)
		s->b += head;
	s->bytes = body;
	fn(s);
}

void dfk_move_cpu(const struct dfk_move *m)
{
	const struct dfk_loops *l;
	struct dfk_span s = {
		.d = m->dst ? m->dst : m->dst2,
		.d2 = m->dst ? m->dst2 : NULL,
		.a = m->a,
		.b = m->b,
		.bytes = m->elems * dfk_type_bytes(m->type),
		.arg = m->arg,
		.pre_a = m->redop == DF_PREMULSUM && m->pre_a,
		.pre_b = m->redop == DF_PREMULSUM && m->b && m->pre_b,
		.post = m->redop == DF_SUMPOSTDIV && m->post && m->arg > 1,
	};
	enum dfk_loop loop;
	unsigned int csr;

	if (!s.bytes)
		return;
	if (s.pre_a || s.pre_b || s.post) {
		loop = DFK_LOOP_MUL_DIV;
	} else if (!s.b) {
		copy(s.d, s.d2, s.a, s.bytes);
		return;
	} else {
		loop = m->redop == DF_PROD  ? DFK_LOOP_PROD
		       : m->redop == DF_MAX ? DFK_LOOP_MAX
		       : m->redop == DF_MIN ? DFK_LOOP_MIN
					    : DFK_LOOP_SUM;
	}
	l = loops();
	csr = fp_enter();
	run(l, l->fn[m->type][loop], &s);
	fp_leave(csr);
}
