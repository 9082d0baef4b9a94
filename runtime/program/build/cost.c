/*
 * The model of runtime/program/build/cost.h, and the encoding of measurements. Constant tables
 * only.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/program/build/build.h"
#include "runtime/program/build/cost.h"
#include "runtime/program/layout.h"
#include "runtime/program/plan.h"
#include "runtime/program/program_names.h"

/* Defaults where nothing was measured; only the ratios matter. */
const struct df_cost df_cost_host = {.inst_ns = 120,
				     .byte_ns = 0.12,
				     .reduce_ns = 0.2,
				     .hop_ns = 300,
				     .switch_ns = 4000,
				     .block_ns = 400,
				     .far_ns = 20000,
				     .far_inst_ns = 3000,
				     .far_byte_ns = 1,
				     .cores = 2,
				     .tile_bytes = 128 << 10,
				     .word_gain = 0.1,
				     .word_byte_ns = {0, 0, 0.46, 0.13}};
/* Not measured. One block of an H200 moves about 20 GB/s; a hop is a flag over NVLink. */
const struct df_cost df_cost_gpu = {.inst_ns = 350,
				    .byte_ns = 0.05,
				    .reduce_ns = 0.06,
				    .hop_ns = 1800,
				    .switch_ns = 1800,
				    .block_ns = 60,
				    .far_ns = 5000,
				    .far_inst_ns = 1000,
				    .far_byte_ns = 0.03,
				    .cores = 0,
				    .tile_bytes = 512 << 10,
				    /*
	 * LL needs neither a fence before a counter nor a check of the counter. LL128 is excluded
	 * (-1): only a fence for each line would order its words before the flag.
	 */
				    .word_gain = 0.4,
				    .word_byte_ns = {0, 0, 0.08, -1}};

#define LOOK_AT 16 /* how many ranks of a larger communicator are counted */

/* ---- one rank's work --------------------------------------------------------------------- */

struct work {
	double busy;	 /* of all blocks */
	double longest;	 /* of one block */
	double messages; /* sent to other nodes */
	double out, in;	 /* bytes to and from other nodes */
	double slice_ns; /* time to forward one slice */
};

static int node_of(const struct df_prog_req *q, int rank)
{
	if (q->layout)
		return q->layout->node[rank];
	return q->nodes > 1 && q->nranks % q->nodes == 0 ? rank / (q->nranks / q->nodes) : 0;
}

static int count(const struct df_cost *c, const struct df_prog_req *req, int rank, struct work *w)
{
	struct df_prog_req q = *req;
	struct df_program *p;
	uint64_t chunk, tile, loops;
	double bytes;

	q.rank = rank;
	if (df_program_build(&q, &p))
		return -EINVAL;
	chunk = (q.count + p->chunks - 1) / p->chunks;
	tile = df_proto_tile(DF_PROTO_SIMPLE, p, chunk, q.elem_bytes, c->tile_bytes);
	loops = DF_MAX((chunk + tile - 1) / tile, 1u);
	bytes = (double)chunk * q.elem_bytes;
	*w = (struct work){.slice_ns = c->inst_ns + (double)tile * q.elem_bytes * c->byte_ns};
	for (uint32_t b = 0; b < p->nr_blocks; b++) {
		const struct df_prog_block *pb = df_prog_block(p, b);
		double t = 0;

		for (uint32_t i = 0; i < pb->nr_inst; i++) {
			const struct df_inst *in = df_prog_inst(p, pb->first_inst + i);
			const struct df_op_info *op = &df_op_info[in->op];
			double n = bytes * in->cnt;

			t += (double)loops * c->inst_ns +
			     n * (op->reduces ? c->reduce_ns : c->byte_ns);
			/* The second copy reads data that is in the cache. */
			if (op->writes && op->sends)
				t += n * c->byte_ns / 2;
			if (op->sends &&
			    node_of(&q, df_prog_conn(p, pb->first_send + in->send_conn)->peer) !=
				    node_of(&q, rank)) {
				w->messages += (double)loops;
				w->out += n;
			}
			if (op->recvs &&
			    node_of(&q, df_prog_conn(p, pb->first_recv + in->recv_conn)->peer) !=
				    node_of(&q, rank))
				w->in += n;
		}
		w->busy += t;
		w->longest = DF_MAX(w->longest, t);
	}
	df_program_free(p);
	return 0;
}

/* ---- hops -------------------------------------------------------------------------------- */

struct hops {
	double near, far; /* consecutive hops within nodes, and between nodes */
	double fill;	  /* slices that are sent before the last rank has its first */
	int relayed;	  /* ranks forward messages to other nodes one after the other */
};

static double depth_of_tree(int n)
{
	double d = 0;

	for (int v = n - 1; v > 0; v = (v - 1) / 2)
		d++;
	return d;
}

static struct hops hops_of(const struct df_prog_req *q, enum df_algo algo)
{
	double n = q->nranks, nodes = q->nodes > 1 ? q->nodes : 1, all, far;
	int reduced = q->kind == DF_COLL_ALLREDUCE,
	    rooted = q->kind == DF_COLL_BROADCAST || q->kind == DF_COLL_REDUCE;
	double depth = depth_of_tree(q->nranks);

	switch (algo) {
	case DF_ALGO_RING:
		/*
		 * Once around the ring, or twice for AllReduce. Each round crosses every border
		 * between nodes once; a chain does not cross the last border.
		 */
		all = (reduced ? 2 : 1) * (n - 1);
		far = nodes > 1 ? DF_MIN(all, (reduced ? 2 : 1) * (nodes - rooted)) : 0;
		return (struct hops){all - far, far, rooted ? n - 1 : 0, 1};
	case DF_ALGO_TREE:
		all = (reduced ? 2 : 1) * depth;
		far = all * (1 - 1 / nodes);
		return (struct hops){all - far, far, all, 1};
	case DF_ALGO_HIER:
		if (rooted)
			return (struct hops){2, nodes - 1, nodes + 1, 1};
		all = reduced ? 2 : 1;
		return (struct hops){all, df_sends_all(q, algo) ? 1 : all, 0, 0};
	default:
		all = reduced && !df_sends_all(q, algo) ? 2 : 1;
		return (struct hops){nodes > 1 ? 0 : all, nodes > 1 ? all : 0, 0, 0};
	}
}

/* The k-th rank of a node. */
static int rank_on(const struct df_prog_req *q, int node, int k)
{
	return q->layout ? df_layout_at(q->layout, node, k) : node * (q->nranks / q->nodes) + k;
}

/*
 * Bytes between a node and the others, in the direction that has more, because its ranks share its
 * links. The node is the root's, or a largest one. In a large node some ranks, evenly spaced,
 * represent all. Returns a negative number if it cannot be counted.
 */
static double crossing(const struct df_cost *c, const struct df_prog_req *q, int rooted)
{
	const struct df_layout *l = q->layout;
	int node = rooted ? node_of(q, q->root) : 0, g, looked;
	double out = 0, in = 0;

	if (q->nodes < 2 || (!l && q->nranks % q->nodes))
		return 0;
	for (int v = 0; l && !rooted && v < l->nodes; v++)
		if (df_layout_size(l, v) > df_layout_size(l, node))
			node = v;
	g = l ? df_layout_size(l, node) : q->nranks / q->nodes;
	looked = DF_MIN(g, LOOK_AT);
	for (int i = 0; i < looked; i++) {
		struct work w;

		if (count(c, q, rank_on(q, node, (int)((int64_t)i * g / looked)), &w))
			return -1;
		out += w.out * g / looked;
		in += w.in * g / looked;
	}
	return DF_MAX(out, in);
}

double df_cost_of(const struct df_cost *c, const struct df_prog_req *req, enum df_algo algo,
		  uint32_t blocks)
{
	struct df_prog_req q = *req;
	struct hops h = hops_of(req, algo);
	int looked = DF_MIN(q.nranks, LOOK_AT), rooted, root;
	double n = q.nranks, total = 0, most = 0, sent = 0, messages = 0, slice = 0;
	double hop = c->hop_ns, factor, bytes;

	if (!df_algo_has(&q, algo))
		return -1;
	q.algo = algo;
	q.max_blocks = blocks ? blocks : 1;
	rooted = df_coll_rooted(q.kind);
	root = rooted ? q.root : 0;
	/*
	 * The root, and some ranks, evenly spaced from the one before the root on, represent all.
	 */
	for (int i = 0; i <= looked; i++) {
		int64_t at = i < looked ? (int64_t)i * q.nranks / looked + q.nranks - 1 : 0;
		struct work w;

		if (count(c, &q, (int)((root + at) % q.nranks), &w))
			return -1;
		if (i < looked) {
			total += w.busy * n / looked;
			sent += w.messages * n / looked;
		}
		most = DF_MAX(most, w.longest);
		messages = DF_MAX(messages, w.messages);
		slice = DF_MAX(slice, w.slice_ns);
	}
	bytes = crossing(c, &q, rooted);
	if (bytes < 0)
		return -1;
	if (c->cores > 0) {
		most = DF_MAX(most, total / c->cores);
		messages = DF_MAX(messages, sent / c->cores);
		/* `cores` was encoded twice, and each time became up to 4 % too low. */
		if (n > 1.1 * c->cores)
			hop = c->switch_ns;
	}
	/* In a chain, a rank also waits for one message of each rank before it. */
	if (h.relayed && h.far > 1)
		messages += h.far - 1;
	factor = c->factor[algo] > 0 ? c->factor[algo] : 1;
	return factor * (most + messages * c->far_inst_ns + bytes * c->far_byte_ns + h.near * hop +
			 h.far * (hop + c->far_ns) + h.fill * slice + q.max_blocks * c->block_ns);
}

enum df_algo df_cost_choose(const struct df_cost *c, const struct df_prog_req *req, uint32_t mask,
			    uint32_t *blocks, double *ns)
{
	uint32_t most = *blocks ? *blocks : 1, best_blocks = most;
	enum df_algo best = DF_ALGO_AUTO;
	double least = 0;

	for (int a = DF_ALGO_RING; a < DF_ALGO_NR; a++) {
		if ((mask && !(mask >> a & 1)) || !df_algo_has(req, (enum df_algo)a))
			continue;
		for (uint32_t b = 1; b <= most; b *= 2) {
			double t = df_cost_of(c, req, (enum df_algo)a, b);

			if (t >= 0 && (best == DF_ALGO_AUTO || t < least)) {
				best = (enum df_algo)a;
				best_blocks = b;
				least = t;
			}
		}
	}
	*blocks = best_blocks;
	if (ns)
		*ns = least;
	return best;
}

/* ---- the protocol ------------------------------------------------------------------------ */

static uint64_t slices(enum df_proto proto, const struct df_cost *c, const struct df_program *p,
		       uint64_t chunk, uint32_t elem_bytes)
{
	uint64_t tile = df_proto_tile(proto, p, chunk, elem_bytes, c->tile_bytes);

	return tile ? (chunk + tile - 1) / tile : 0;
}

enum df_proto df_cost_proto(const struct df_cost *c, const struct df_program *p, uint64_t count,
			    uint32_t elem_bytes, uint32_t mask)
{
	uint64_t chunk = (count + p->chunks - 1) / p->chunks;
	double bytes = (double)chunk * elem_bytes * p->max_cnt, least = 0;
	double simple = (double)slices(DF_PROTO_SIMPLE, c, p, chunk, elem_bytes);
	enum df_proto best = DF_PROTO_ANY;

	/* A mask with LL128 also allows LL where LL128 is excluded. */
	if (mask >> DF_PROTO_LL128 & 1 && c->word_byte_ns[DF_PROTO_LL128] < 0)
		mask |= 1u << DF_PROTO_LL;
	for (int k = DF_PROTO_SIMPLE; k < DF_PROTO_NR; k++) {
		double more = 0, nr = (double)slices((enum df_proto)k, c, p, chunk, elem_bytes);

		if ((mask && !(mask >> k & 1)) || c->word_byte_ns[k] < 0 || (nr < 1 && chunk))
			continue;
		if (df_proto_words((enum df_proto)k))
			more = (nr - simple) * c->inst_ns + bytes * c->word_byte_ns[k] -
			       c->hop_ns * c->word_gain;
		if (best == DF_PROTO_ANY || more < least) {
			best = (enum df_proto)k;
			least = more;
		}
	}
	return best == DF_PROTO_ANY ? DF_PROTO_SIMPLE : best;
}

/* ---- measurements ------------------------------------------------------------------------ */

/* 2^(i/16), as constants: the mathematical library's results may differ between machines. */
static const double step[16] = {
	1.0,
	1.0442737824274138,
	1.0905077326652577,
	1.1387886347566916,
	1.1892071150027211,
	1.2418578120734840,
	1.2968395546510096,
	1.3542555469368927,
	1.4142135623730951,
	1.4768261459394993,
	1.5422108254079408,
	1.6104903319492543,
	1.6817928305074290,
	1.7562521603732995,
	1.8340080864093424,
	1.9152065613971474,
};

double df_cal_value(uint16_t code)
{
	double x = 0.0001 * step[code % 16];

	for (int i = code / 16; i > 0; i--)
		x *= 2;
	return code ? x : 0;
}

uint16_t df_cal_code(double x)
{
	uint16_t code = 1;

	if (!(x > 0))
		return 0;
	/* 640: 10^8 and more */
	while (code < 640 && df_cal_value(code) * step[1] <= x)
		code++;
	return code;
}

int df_cal_log(double x)
{
	int n = 0;

	if (!(x > 0))
		return -64;
	for (; x >= step[1] * step[1] && n < 64; n++)
		x /= step[2];
	for (; x < 1 / step[1] && n > -64; n--)
		x *= step[2];
	return n;
}

static double from_log(int n)
{
	double x = step[(n & 7) * 2];

	/* n & 7 counts upwards from the next lower power of two. */
	for (n >>= 3; n > 0; n--)
		x *= 2;
	for (; n < 0; n++)
		x /= 2;
	return x;
}

void df_far_agree(struct df_cost *c, int nr, const struct df_far *way)
{
	struct df_far most = {0};

	for (int i = 0; i < nr; i++) {
		most.ns = DF_MAX(most.ns, way[i].ns);
		most.inst = DF_MAX(most.inst, way[i].inst);
		most.byte = DF_MAX(most.byte, way[i].byte);
	}
	if (most.ns)
		c->far_ns = df_cal_value(most.ns);
	if (most.inst)
		c->far_inst_ns = df_cal_value(most.inst);
	if (most.byte)
		c->far_byte_ns = df_cal_value(most.byte);
}

static int by_value(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

int df_cal_agree(struct df_cost *c, int nranks, const struct df_cal *row)
{
	double *const to[DF_CAL_NR] = {[DF_CAL_INST] = &c->inst_ns,	[DF_CAL_BYTE] = &c->byte_ns,
				       [DF_CAL_REDUCE] = &c->reduce_ns, [DF_CAL_HOP] = &c->hop_ns,
				       [DF_CAL_SWITCH] = &c->switch_ns, [DF_CAL_CORES] = &c->cores};
	int *have = malloc((size_t)nranks * sizeof(*have)), known = 0, sum = 0;

	if (!have)
		return -ENOMEM; /* with other costs this rank would choose other programs */
	for (int k = 0; k < DF_CAL_NR + DF_CAL_FACTORS; k++) {
		int nr = 0;

		for (int i = 0; i < nranks; i++) {
			const struct df_cal *r = &row[i];

			if (k < DF_CAL_NR && r->v[k])
				have[nr++] = r->v[k];
			else if (k >= DF_CAL_NR && r->factor[k - DF_CAL_NR] != -128)
				have[nr++] = r->factor[k - DF_CAL_NR];
		}
		if (!nr)
			continue;
		qsort(have, (size_t)nr, sizeof(*have), by_value);
		if (k < DF_CAL_NR) {
			/*
			 * Take the least time of a hop: where ranks share cores, most of them
			 * measure the time of a thread switch instead.
			 */
			*to[k] = df_cal_value((uint16_t)have[k == DF_CAL_HOP ? 0 : nr / 2]);
			/* The rows have the cores of one rank; the model needs those of all. */
			if (k == DF_CAL_CORES)
				*to[k] *= nranks;
		} else {
			c->factor[k - DF_CAL_NR + 1] = from_log(have[nr / 2]);
			sum += have[nr / 2];
			known++;
		}
	}
	/*
	 * An algorithm that was not measured is taken to be off by as much as the others: only
	 * differences matter.
	 */
	for (int a = 1; a < DF_ALGO_NR && known; a++)
		if (!(c->factor[a] > 0))
			c->factor[a] = from_log(sum / known);
	free(have);
	return 0;
}
