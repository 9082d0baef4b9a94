/*
 * dfk_move() of a GPU block: the block's threads process the elements in steps of 16 bytes if all
 * pointers allow it, else one element each. Included by kernels/reduce.h.
 *
 * Other processors write user buffers and slots while this kernel runs, so they are read with
 * ordinary loads only: no __restrict__, no __ldg(), nothing that may become ld.global.nc, whose
 * cache is not invalidated (scripts/check_budget.sh checks this). All loads of a batch are issued
 * before its first store, so several are in flight without a promise about aliasing.
 *
 * One loop per type and access width; inside, all threads take the same branch for the operation.
 * That is a tenth of the code and compile time of one loop per operation, and still memory-bound.
 *
 * All of it also compiles for the host (nvcc, __host__ __device__), so that
 * tests/kernels/reduce_cuda.cu can check it without a GPU.
 */
#include "kernels/reduce_cuda_ops.inl"

/* ---- memory --------------------------------------------------------------------------------- */

/* dfk_get(), dfk_put(): one load or store, of a vector of 16 bytes or of a single element. */
DFK void dfk_get(const uint4 *p, uint32_t x[4])
{
	uint4 v = *p;

	x[0] = v.x;
	x[1] = v.y;
	x[2] = v.z;
	x[3] = v.w;
}
DFK void dfk_put(uint4 *p, const uint32_t x[4])
{
	*p = make_uint4(x[0], x[1], x[2], x[3]);
}
DFK void dfk_get(const ulonglong2 *p, uint64_t x[2])
{
	ulonglong2 v = *p;

	x[0] = v.x;
	x[1] = v.y;
}
DFK void dfk_put(ulonglong2 *p, const uint64_t x[2])
{
	*p = make_ulonglong2(x[0], x[1]);
}
template <class E, class W> DFK void dfk_get(const E *p, W x[1])
{
	x[0] = *p;
}
template <class E, class W> DFK void dfk_put(E *p, const W x[1])
{
	*p = (E)x[0];
}

template <int BYTES> struct dfk_elem;
template <> struct dfk_elem<1> {
	typedef uint8_t t;
};
template <> struct dfk_elem<2> {
	typedef uint16_t t;
};
template <> struct dfk_elem<4> {
	typedef uint32_t t;
	typedef uint4 vec;
};
template <> struct dfk_elem<8> {
	typedef uint64_t t;
	typedef ulonglong2 vec;
};
template <> struct dfk_elem<16> {
	typedef uint4 t;
};

#define DFK_BATCH      4 /* accesses of one thread in flight, per source */
#define DFK_COPY_BATCH 8 /* the same when nothing is computed */

/* Formats without instructions of their own; NCCL refuses to reduce them on such devices. */
template <int TYPE> struct dfk_soft {
	enum { yes = !DFK_PTX_FP8 && (TYPE == DF_FLOAT8E4M3 || TYPE == DF_FLOAT8E5M2) };
};

enum dfk_loop_flag { DFK_PRE_A = 1, DFK_PRE_B = 2, DFK_POST = 4, DFK_FN_SHIFT = 4 };

/*
 * A warp takes batch * 32 consecutive accesses, so that the batch is reached from one address per
 * pointer with constant offsets. With the block's stride in between, addresses would take half the
 * registers.
 */
DFK uint64_t dfk_first(int batch)
{
	return (uint64_t)(DFK_TID / 32 * 32 * batch + DFK_TID % 32);
}

/* The scalar in every element of a word. */
template <int TYPE> DFK typename dfk_word<TYPE>::t dfk_splat(uint64_t arg)
{
	typedef typename dfk_word<TYPE>::t word;
	const int width = 8 * (int)((0x112842884411ull >> (4 * TYPE)) & 15);
	word by = 0;

#pragma unroll
	for (int i = 0; i < 8 * (int)sizeof(word); i += width)
		by |= (word)(width == 64 ? arg : arg & ((1ull << (width & 63)) - 1)) << i;
	return by;
}

template <int TYPE>
DFK void dfk_scale(typename dfk_word<TYPE>::t *x, typename dfk_word<TYPE>::t by, int n)
{
#pragma unroll
	for (int i = 0; i < n; i++)
		x[i] = dfk_fn<TYPE>(DFK_FN_PROD, x[i], by);
}

template <int TYPE, int FN>
DFK void dfk_combine_by(typename dfk_word<TYPE>::t *x, const typename dfk_word<TYPE>::t *y, int n)
{
#pragma unroll
	for (int i = 0; i < n; i++)
		x[i] = dfk_fn<TYPE>(FN, x[i], y[i]);
}

template <int TYPE>
DFK void dfk_combine(int fn, typename dfk_word<TYPE>::t *x, const typename dfk_word<TYPE>::t *y,
		     int n)
{
	switch (fn) {
	case DFK_FN_SUM:
		dfk_combine_by<TYPE, DFK_FN_SUM>(x, y, n);
		break;
	case DFK_FN_PROD:
		dfk_combine_by<TYPE, DFK_FN_PROD>(x, y, n);
		break;
	case DFK_FN_MAX:
		dfk_combine_by<TYPE, DFK_FN_MAX>(x, y, n);
		break;
	default:
		dfk_combine_by<TYPE, DFK_FN_MIN>(x, y, n);
		break;
	}
}

/* N accesses of this thread, from `at` on. */
template <int TYPE, class A, int N>
DFK void dfk_reduce_batch(A *d, A *d2, const A *a, const A *b, uint64_t at,
			  typename dfk_word<TYPE>::t by, uint32_t flags)
{
	typedef typename dfk_word<TYPE>::t word;
	const int words = sizeof(A) > sizeof(word) ? sizeof(A) / sizeof(word) : 1;
	/* Loaded in any case: a register that is set on one path is occupied on all of them. */
	const A *second = b ? b : a;
	word x[N][words], y[N][words];

#pragma unroll
	for (int u = 0; u < N; u++)
		dfk_get(a + at + u * 32, x[u]);
#pragma unroll
	for (int u = 0; u < N; u++)
		dfk_get(second + at + u * 32, y[u]);
	/* One branch for the batch, not one for the word. */
	if (flags & DFK_PRE_A)
		dfk_scale<TYPE>(&x[0][0], by, N * words);
	if (flags & DFK_PRE_B)
		dfk_scale<TYPE>(&y[0][0], by, N * words);
	if (b)
		dfk_combine<TYPE>((int)(flags >> DFK_FN_SHIFT), &x[0][0], &y[0][0], N * words);
	if (d)
#pragma unroll
		for (int u = 0; u < N; u++)
			dfk_put(d + at + u * 32, x[u]);
	if (d2)
#pragma unroll
		for (int u = 0; u < N; u++)
			dfk_put(d2 + at + u * 32, x[u]);
}

/*
 * n accesses of A each; flags: enum dfk_loop_flag and the function above them. The batches precede
 * the rest, so that nothing in them depends on n.
 */
template <int TYPE, class A>
DFK void dfk_reduce_loop(A *d, A *d2, const A *a, const A *b, uint64_t n, uint64_t arg,
			 uint32_t flags)
{
	typedef typename dfk_word<TYPE>::t word;
	const int batch = dfk_soft<TYPE>::yes ? 1 : DFK_BATCH;
	uint64_t at = dfk_first(batch);
	word by = dfk_splat<TYPE>(arg);

#pragma unroll 1
	for (; at + (batch - 1) * 32 < n; at += (uint64_t)(DFK_NTHREADS * batch))
		dfk_reduce_batch<TYPE, A, batch>(d, d2, a, b, at, by, flags);
#pragma unroll 1
	for (; at < n; at += 32)
		dfk_reduce_batch<TYPE, A, 1>(d, d2, a, b, at, by, flags);
}

/* The sum, or a alone, divided. Only integers use this often, among the types that divide. */
template <int TYPE, class A>
DFK void dfk_divide_loop(A *d, A *d2, const A *a, const A *b, uint64_t n, uint64_t arg)
{
	typedef typename dfk_word<TYPE>::t word;
	const int words = sizeof(A) > sizeof(word) ? sizeof(A) / sizeof(word) : 1;
	uint64_t magic = arg >> 32 ? 0 : ~0ull / arg + 1;

	for (uint64_t at = (uint64_t)DFK_TID; at < n; at += (uint64_t)DFK_NTHREADS) {
		word x[words], y[words];

		dfk_get(a + at, x);
		if (b) {
			dfk_get(b + at, y);
			dfk_combine_by<TYPE, DFK_FN_SUM>(x, y, words);
		}
#pragma unroll
		for (int w = 0; w < words; w++)
			x[w] = dfk_post<TYPE>(x[w], arg, magic);
		if (d)
			dfk_put(d + at, x);
		if (d2)
			dfk_put(d2 + at, x);
	}
}

template <class A, int N> DFK void dfk_copy_batch(A *d, A *d2, const A *a, uint64_t at)
{
	A x[N];

#pragma unroll
	for (int u = 0; u < N; u++)
		x[u] = a[at + u * 32];
	if (d)
#pragma unroll
		for (int u = 0; u < N; u++)
			d[at + u * 32] = x[u];
	if (d2)
#pragma unroll
		for (int u = 0; u < N; u++)
			d2[at + u * 32] = x[u];
}

template <class A> DFK void dfk_copy_loop(A *d, A *d2, const A *a, uint64_t n)
{
	const int batch = DFK_COPY_BATCH;
	uint64_t at = dfk_first(batch);

#pragma unroll 1
	for (; at + (batch - 1) * 32 < n; at += (uint64_t)(DFK_NTHREADS * batch))
		dfk_copy_batch<A, batch>(d, d2, a, at);
#pragma unroll 1
	for (; at < n; at += 32)
		dfk_copy_batch<A, 1>(d, d2, a, at);
}

/* ---- the whole move ------------------------------------------------------------------------- */

/* p + bytes; NULL stays NULL. */
template <class A> DFK A *dfk_at(const void *p, uint64_t bytes)
{
	return p ? (A *)((uintptr_t)p + bytes) : (A *)0;
}

/*
 * Bytes [0, head) and [head + body, end) are moved element by element, the body, which begins at a
 * boundary of 16 bytes, in vectors. Where the pointers differ below 16 bytes all is head.
 */
struct dfk_cut {
	uint64_t head, body, end;
};

DFK struct dfk_cut dfk_cut_at(const struct dfk_move *m, uint64_t bytes)
{
	uintptr_t at = (uintptr_t)m->a, diff = 0;
	struct dfk_cut c;

	diff |= m->b ? at ^ (uintptr_t)m->b : 0;
	diff |= m->dst ? at ^ (uintptr_t)m->dst : 0;
	diff |= m->dst2 ? at ^ (uintptr_t)m->dst2 : 0;
	c.head = (0 - at) & 15;
	if (diff & 15 || c.head > bytes)
		c.head = bytes;
	c.body = (bytes - c.head) & ~15ull;
	c.end = bytes;
	return c;
}

/* The arguments of one loop. Every loop is expanded once, and nothing is called. */
struct dfk_part {
	uint8_t *d, *d2;
	const uint8_t *a, *b;
	uint64_t bytes, arg;
	uint32_t flags;
};

DFK struct dfk_part dfk_part_of(const struct dfk_move *m, uint64_t from, uint64_t to,
				uint32_t flags)
{
	struct dfk_part p;

	p.d = m->dst ? (uint8_t *)m->dst + from : (uint8_t *)0;
	p.d2 = m->dst2 ? (uint8_t *)m->dst2 + from : (uint8_t *)0;
	p.a = (const uint8_t *)m->a + from;
	p.b = m->b ? (const uint8_t *)m->b + from : (const uint8_t *)0;
	p.bytes = to - from;
	p.arg = m->arg;
	p.flags = flags;
#if DFK_PTX
	/*
	 * The compiler must know nothing about these values. Otherwise it would compute ahead, for
	 * all loops, what each derives from them, and there are not enough registers for that.
	 */
	asm volatile(""
		     : "+l"(p.d), "+l"(p.d2), "+l"(p.a), "+l"(p.b), "+l"(p.bytes), "+l"(p.arg),
		       "+r"(p.flags));
#endif
	return p;
}

template <int BYTES> DFK void dfk_copy_part(const struct dfk_part *p)
{
	typedef typename dfk_elem<BYTES>::t A;

	dfk_copy_loop<A>((A *)p->d, (A *)p->d2, (const A *)p->a, p->bytes / BYTES);
}

/* Uses vectors where that pays: operations of many steps are expanded for single elements only. */
template <int TYPE, int BYTES> DFK void dfk_reduce(const struct dfk_part *p, bool vector)
{
	typedef typename dfk_elem<BYTES>::t E;
	typedef typename dfk_elem<BYTES == 8 ? 8 : 4>::vec V;
	E *d = (E *)p->d, *d2 = (E *)p->d2;
	const E *a = (const E *)p->a, *b = (const E *)p->b;

	if (p->flags & DFK_POST)
		if (vector && TYPE <= DF_UINT64)
			dfk_divide_loop<TYPE, V>((V *)d, (V *)d2, (const V *)a, (const V *)b,
						 p->bytes / 16, p->arg);
		else
			dfk_divide_loop<TYPE, E>(d, d2, a, b, p->bytes / BYTES, p->arg);
	else if (vector && !dfk_soft<TYPE>::yes)
		dfk_reduce_loop<TYPE, V>((V *)d, (V *)d2, (const V *)a, (const V *)b, p->bytes / 16,
					 p->arg, p->flags);
	else
		dfk_reduce_loop<TYPE, E>(d, d2, a, b, p->bytes / BYTES, p->arg, p->flags);
}

DFK int dfk_fn_of(uint32_t redop)
{
	return redop == DF_PROD	 ? DFK_FN_PROD
	       : redop == DF_MAX ? DFK_FN_MAX
	       : redop == DF_MIN ? DFK_FN_MIN
				 : DFK_FN_SUM;
}

DFK void dfk_move(const struct dfk_move *m)
{
	struct dfk_cut c = dfk_cut_at(m, m->elems * dfk_type_bytes(m->type));
	uintptr_t all = (uintptr_t)m->a | (uintptr_t)m->dst | (uintptr_t)m->dst2 | c.head | c.end;
	uint32_t flags = DFK_FN_SUM << DFK_FN_SHIFT, kind = m->type;

	if (m->redop == DF_PREMULSUM)
		flags |= (m->pre_a ? DFK_PRE_A : 0) | (m->b && m->pre_b ? DFK_PRE_B : 0);
	else if (m->redop == DF_SUMPOSTDIV)
		flags |= m->post && m->arg > 1 ? DFK_POST : 0;
	else if (m->b)
		flags = (uint32_t)dfk_fn_of(m->redop) << DFK_FN_SHIFT;
	/* A copy has no element; it moves in the largest unit that fits. */
	if (!m->b && !flags)
		kind = all & 1	 ? DF_NR_TYPES
		       : all & 2 ? DF_NR_TYPES + 1
		       : all & 4 ? DF_NR_TYPES + 2
				 : DF_NR_TYPES + 3;
#pragma unroll 1
	for (int i = 0; i < 3; i++) {
		bool vector = i == 0;
		uint64_t body = c.head + c.body;
		uint64_t from = i == 0 ? c.head : i == 1 ? 0 : body;
		uint64_t to = i == 0 ? body : i == 1 ? c.head : c.end;
		struct dfk_part p = dfk_part_of(m, from, to, flags);

		if (!p.bytes)
			continue;
		switch (kind) {
		case DF_INT8:
			dfk_reduce<DF_INT8, 1>(&p, vector);
			break;
		case DF_UINT8:
			dfk_reduce<DF_UINT8, 1>(&p, vector);
			break;
		case DF_INT32:
			dfk_reduce<DF_INT32, 4>(&p, vector);
			break;
		case DF_UINT32:
			dfk_reduce<DF_UINT32, 4>(&p, vector);
			break;
		case DF_INT64:
			dfk_reduce<DF_INT64, 8>(&p, vector);
			break;
		case DF_UINT64:
			dfk_reduce<DF_UINT64, 8>(&p, vector);
			break;
		case DF_FLOAT16:
			dfk_reduce<DF_FLOAT16, 2>(&p, vector);
			break;
		case DF_FLOAT32:
			dfk_reduce<DF_FLOAT32, 4>(&p, vector);
			break;
		case DF_FLOAT64:
			dfk_reduce<DF_FLOAT64, 8>(&p, vector);
			break;
		case DF_BFLOAT16:
			dfk_reduce<DF_BFLOAT16, 2>(&p, vector);
			break;
		case DF_FLOAT8E4M3:
			dfk_reduce<DF_FLOAT8E4M3, 1>(&p, vector);
			break;
		case DF_FLOAT8E5M2:
			dfk_reduce<DF_FLOAT8E5M2, 1>(&p, vector);
			break;
		default:
			if (vector)
				dfk_copy_part<16>(&p);
			else if (kind == DF_NR_TYPES)
				dfk_copy_part<1>(&p);
			else if (kind == DF_NR_TYPES + 1)
				dfk_copy_part<2>(&p);
			else if (kind == DF_NR_TYPES + 2)
				dfk_copy_part<4>(&p);
			else
				dfk_copy_part<8>(&p);
			break;
		}
	}
}

/* ---- eight bytes in registers --------------------------------------------------------------- */

template <int TYPE> DFK uint64_t dfk_unit_of(int fn, uint64_t a, uint64_t b)
{
	typedef typename dfk_word<TYPE>::t word;
	const int words = 8 / sizeof(word);
	word x[words], y[words];
	uint64_t r = 0;

#pragma unroll
	for (int i = 0; i < words; i++) {
		x[i] = (word)(a >> (8 * sizeof(word) * i));
		y[i] = (word)(b >> (8 * sizeof(word) * i));
	}
	dfk_combine<TYPE>(fn, x, y, words);
#pragma unroll
	for (int i = 0; i < words; i++)
		r |= (uint64_t)x[i] << (8 * sizeof(word) * i);
	return r;
}

DFK uint64_t dfk_unit(uint32_t type, uint32_t redop, uint64_t a, uint64_t b)
{
	int fn = dfk_fn_of(redop);

	switch (type) {
	case DF_INT8:
		return dfk_unit_of<DF_INT8>(fn, a, b);
	case DF_UINT8:
		return dfk_unit_of<DF_UINT8>(fn, a, b);
	case DF_INT32:
		return dfk_unit_of<DF_INT32>(fn, a, b);
	case DF_UINT32:
		return dfk_unit_of<DF_UINT32>(fn, a, b);
	case DF_INT64:
		return dfk_unit_of<DF_INT64>(fn, a, b);
	case DF_UINT64:
		return dfk_unit_of<DF_UINT64>(fn, a, b);
	case DF_FLOAT16:
		return dfk_unit_of<DF_FLOAT16>(fn, a, b);
	case DF_FLOAT32:
		return dfk_unit_of<DF_FLOAT32>(fn, a, b);
	case DF_FLOAT64:
		return dfk_unit_of<DF_FLOAT64>(fn, a, b);
	case DF_BFLOAT16:
		return dfk_unit_of<DF_BFLOAT16>(fn, a, b);
	case DF_FLOAT8E4M3:
		return dfk_unit_of<DF_FLOAT8E4M3>(fn, a, b);
	default:
		return dfk_unit_of<DF_FLOAT8E5M2>(fn, a, b);
	}
}
