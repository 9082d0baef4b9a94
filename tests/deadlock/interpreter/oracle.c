/* Computes the values of a script's buffers (oracle.h). */
#include "oracle.h"
#include <stdlib.h>
#include <string.h>

uint32_t or_init(int rank, int buf, size_t i)
{
	return (uint32_t)(rank + 1) * 1000003u + (uint32_t)(buf + 1) * 7919u + (uint32_t)i * 31u;
}

uint32_t or_poked(int rank, int buf, int step, size_t i)
{
	return or_init(rank, buf, i) ^ (uint32_t)(step + 1) * 0x9e3779b9u;
}

static uint64_t or_mix(uint64_t h, uint64_t v)
{
	h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
	return h * 0xff51afd7ed558ccdull;
}

static uint64_t or_sig(const struct sc_step *st, int rank)
{
	uint64_t h = or_mix(1, (uint64_t)st->comm);

	if (st->kind == SC_COLL) {
		h = or_mix(h, (uint64_t)st->coll);
		h = or_mix(h, (uint64_t)st->type << 8 | (uint64_t)st->redop);
	} else {
		h = or_mix(h, 1000 + (uint64_t)(st->kind == SC_SEND ? rank : st->peer));
		h = or_mix(h, (uint64_t)(st->kind == SC_SEND ? st->peer : rank));
	}
	return or_mix(h, st->count);
}

static int or_matches(const struct sc_step *st)
{
	return st->kind == SC_COLL || st->kind == SC_SEND || st->kind == SC_RECV;
}

static int or_compare(const void *pa, const void *pb)
{
	const struct or_key *a = pa, *b = pb;

	if (a->sig != b->sig)
		return a->sig < b->sig ? -1 : 1;
	if (a->k != b->k)
		return a->k < b->k ? -1 : 1;
	return a->thread != b->thread ? a->thread - b->thread : a->step - b->step;
}

size_t or_reads(const struct script *s, const struct sc_step *st)
{
	switch (st->kind) {
	case SC_COLL:
		return st->count * (st->coll == SC_RS || st->coll == SC_A2A
					    ? (size_t)s->comms[st->comm].nr
					    : 1);
	case SC_SEND:
	case SC_READ:
	case SC_TREAD:
	case SC_PEEK:
		return st->count;
	case SC_WORK:
	case SC_FAR:
		return st->out >= 0 ? st->count : 0;
	default:
		return 0;
	}
}

size_t or_writes(const struct script *s, const struct sc_step *st, int rank)
{
	switch (st->kind) {
	case SC_COLL:
		if (st->coll == SC_RED && s->comms[st->comm].ranks[0] != rank)
			return 0;
		return st->count * (st->coll == SC_AG || st->coll == SC_A2A
					    ? (size_t)s->comms[st->comm].nr
					    : 1);
	case SC_RECV:
	case SC_POKE:
		return st->count;
	case SC_WORK:
	case SC_FAR:
		return st->out >= 0 ? st->count : 0;
	default:
		return 0;
	}
}

void or_open(struct oracle *o, struct script *s)
{
	int r, t, i;

	memset(o, 0, sizeof(*o));
	o->s = s;
	for (r = 0; r < s->nr_ranks; r++) {
		int nr = 0;
		struct or_key *keys;

		for (t = 0; t < s->nr_threads[r]; t++)
			nr += s->threads[r][t].nr;
		keys = o->keys[r] = calloc((size_t)nr + 1, sizeof(*keys));
		nr = 0;
		for (t = 0; t < s->nr_threads[r]; t++) {
			o->vals[r][t] =
				calloc((size_t)s->threads[r][t].nr + 1, sizeof(struct or_val));
			o->inst[r][t] = calloc((size_t)s->threads[r][t].nr + 1, sizeof(uint64_t));
			for (i = 0; i < s->threads[r][t].nr; i++) {
				if (!or_matches(&s->threads[r][t].v[i]))
					continue;
				keys[nr].sig = or_sig(&s->threads[r][t].v[i], r);
				if (s->threads[r][t].v[i].kind == SC_SEND)
					keys[nr].sig ^= 1;
				keys[nr].thread = t;
				keys[nr++].step = i;
			}
		}
		/* Every `k` is still 0, so this sorts by signature and then by order of issue. */
		qsort(keys, (size_t)nr, sizeof(*keys), or_compare);
		for (i = 1; i < nr; i++)
			if (keys[i].sig == keys[i - 1].sig)
				keys[i].k = keys[i - 1].k + 1;
		for (i = 0; i < nr; i++)
			o->inst[r][keys[i].thread][keys[i].step] = keys[i].k;
		o->nr_keys[r] = nr;
	}
}

void or_close(struct oracle *o)
{
	int r, t, i;

	for (r = 0; r < o->s->nr_ranks; r++) {
		for (t = 0; t < o->s->nr_threads[r]; t++) {
			for (i = 0; i < o->s->threads[r][t].nr; i++)
				free(o->vals[r][t][i].v);
			free(o->vals[r][t]);
			free(o->inst[r][t]);
		}
		free(o->keys[r]);
	}
}

static const struct or_val *or_step(struct oracle *o, int rank, int thread, int step);

int or_before(struct oracle *o, int rank, int thread, int step, int buf, size_t n, uint32_t *out)
{
	struct script *s = o->s;
	const struct or_val *v;
	size_t k;
	int t, i;

	for (t = 0; t < s->nr_threads[rank]; t++)
		for (i = 0; t != thread && i < s->threads[rank][t].nr; i++)
			if (s->threads[rank][t].v[i].out == buf &&
			    or_writes(s, &s->threads[rank][t].v[i], rank))
				return -1;
	for (i = step - 1; i >= 0; i--) {
		const struct sc_step *st = &s->threads[rank][thread].v[i];

		if (st->out != buf || !or_writes(s, st, rank))
			continue;
		v = or_step(o, rank, thread, i);
		if (v->state != OR_KNOWN || v->n < n)
			return -1;
		memcpy(out, v->v, n * sizeof(*out));
		return 0;
	}
	for (k = 0; k < n; k++)
		out[k] = or_init(rank, buf, k);
	return 0;
}

static const struct or_key *or_partner(struct oracle *o, int rank, uint64_t sig, uint64_t k)
{
	int lo = 0, hi = o->nr_keys[rank];

	while (lo < hi) {
		int mid = (lo + hi) / 2;
		const struct or_key *x = &o->keys[rank][mid];

		if (x->sig < sig || (x->sig == sig && x->k < k))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < o->nr_keys[rank] && o->keys[rank][lo].sig == sig && o->keys[rank][lo].k == k
		       ? &o->keys[rank][lo]
		       : NULL;
}

static int or_collective(struct oracle *o, int rank, int thread, int step, struct or_val *v)
{
	struct script *s = o->s;
	const struct sc_step *st = &s->threads[rank][thread].v[step];
	const struct sc_comm *c = &s->comms[st->comm];
	size_t n = st->count, nin = or_reads(s, st), k;
	uint32_t *in = malloc((nin + 1) * sizeof(*in));
	int me = sc_comm_rank(c, rank), q, ret = 0;

	for (q = 0; q < c->nr && !ret; q++) {
		const struct or_key *p =
			or_partner(o, c->ranks[q], or_sig(st, rank), o->inst[rank][thread][step]);

		if (!p || or_before(o, c->ranks[q], p->thread, p->step,
				    s->threads[c->ranks[q]][p->thread].v[p->step].in, nin, in)) {
			ret = -1;
			break;
		}
		switch (st->coll) {
		case SC_AR:
		case SC_RED:
			for (k = 0; k < n; k++)
				v->v[k] += in[k];
			break;
		case SC_RS:
			for (k = 0; k < n; k++)
				v->v[k] += in[(size_t)me * n + k];
			break;
		case SC_BC:
			if (!q)
				memcpy(v->v, in, n * sizeof(*in));
			break;
		case SC_AG:
			memcpy(v->v + (size_t)q * n, in, n * sizeof(*in));
			break;
		default:
			memcpy(v->v + (size_t)q * n, in + (size_t)me * n, n * sizeof(*in));
		}
	}
	free(in);
	return ret;
}

/* Returns the value that a step writes. Computes it at the first call. */
static const struct or_val *or_step(struct oracle *o, int rank, int thread, int step)
{
	struct or_val *v = &o->vals[rank][thread][step];
	const struct sc_step *st = &o->s->threads[rank][thread].v[step];
	int ret = -1;

	if (v->state == OR_BUSY) /* the value depends on itself */
		v->state = OR_UNKNOWN;
	if (v->state != OR_NEW)
		return v;
	v->state = OR_BUSY;
	v->n = or_writes(o->s, st, rank);
	v->v = calloc(v->n + 1, sizeof(*v->v));
	if (st->type || st->redop) {
		;
	} else if (st->kind == SC_WORK || st->kind == SC_FAR) {
		ret = or_before(o, rank, thread, step, st->in, v->n, v->v);
	} else if (st->kind == SC_POKE) {
		for (size_t k = 0; k < v->n; k++)
			v->v[k] = or_poked(rank, st->out, step, k);
		ret = 0;
	} else if (st->kind == SC_RECV) {
		const struct or_key *p =
			or_partner(o, st->peer, or_sig(st, rank) ^ 1, o->inst[rank][thread][step]);

		if (p)
			ret = or_before(o, st->peer, p->thread, p->step,
					o->s->threads[st->peer][p->thread].v[p->step].in, v->n,
					v->v);
	} else if (st->kind == SC_COLL) {
		ret = or_collective(o, rank, thread, step, v);
	}
	if (v->state == OR_BUSY)
		v->state = ret ? OR_UNKNOWN : OR_KNOWN;
	return v;
}
