/*
 * One operation of the stand-in for NCCL, a step at a time: what a rank brings is laid where all can see it; when
 * all have brought the same, each takes its part. Nothing here waits, so a group of operations goes round in turn.
 */
#include <string.h>
#include "fake.h"

static uint64_t signature(const struct op *o)
{
	return (uint64_t)o->kind ^ (uint64_t)o->type << 8 ^ (uint64_t)o->redop << 16 ^
	       (uint64_t)(uint32_t)o->root << 24 ^ (uint64_t)o->count * 2654435761u;
}

/* What a rank brings: so many times its count. */
static size_t brings(const struct op *o)
{
	int n = o->comm->nranks, root = o->comm->rank == o->root;

	switch (o->kind) {
	case RS:
	case A2A:
		return o->bytes * (size_t)n;
	case SC:
		return root ? o->bytes * (size_t)n : 0;
	case BC:
		return root ? o->bytes : 0;
	default:
		return o->bytes;
	}
}

static void combine(const struct op *o, char *out, size_t from, size_t bytes)
{
	struct comm *c = o->comm;
	char(*data)[DATA] = c->r->data[o->index % DEPTH];
	size_t i;
	int k;

	memcpy(out, data[0] + from, bytes);
	for (k = 1; o->type == ncclInt32 && k < c->nranks; k++)
		for (i = 0; i + 4 <= bytes; i += 4) {
			int32_t a, b;

			memcpy(&a, out + i, 4);
			memcpy(&b, data[k] + from + i, 4);
			a = o->redop == ncclMax ? (a > b ? a : b)
						: (int32_t)((uint32_t)a + (uint32_t)b);
			memcpy(out + i, &a, 4);
		}
}

static void finish_coll(const struct op *o)
{
	struct comm *c = o->comm;
	char(*data)[DATA] = c->r->data[o->index % DEPTH];
	size_t b = o->bytes;
	int k;

	if (brings(o) > DATA || b * (size_t)c->nranks > DATA * MAX_RANKS)
		return;
	switch (o->kind) {
	case AR:
		combine(o, o->out, 0, b);
		break;
	case RED:
		if (c->rank == o->root)
			combine(o, o->out, 0, b);
		break;
	case BC:
		memmove(o->out, data[o->root], b);
		break;
	case AG:
		for (k = 0; k < c->nranks; k++)
			memcpy((char *)o->out + (size_t)k * b, data[k], b);
		break;
	case RS:
		combine(o, o->out, (size_t)c->rank * b, b);
		break;
	case A2A:
		for (k = 0; k < c->nranks; k++)
			memcpy((char *)o->out + (size_t)k * b, data[k] + (size_t)c->rank * b, b);
		break;
	case GA:
		for (k = 0; k < c->nranks && c->rank == o->root; k++)
			memcpy((char *)o->out + (size_t)k * b, data[k], b);
		break;
	default:
		memcpy(o->out, data[o->root] + (size_t)c->rank * b, b);
	}
}

static void step_coll(struct op *o)
{
	struct comm *c = o->comm;
	uint64_t at = o->index % COLLS, tag = (o->index + 1) << 32 | (uint32_t)signature(o);
	int k, same = 1;

	if (o->step == 0) {
		/* The place is used again when all have left it. */
		for (k = 0; o->index >= DEPTH && k < c->nranks; k++)
			if (GET(&c->r->done[(o->index - DEPTH) % COLLS][k]) < o->index - DEPTH + 1)
				return;
		if (brings(o) && brings(o) <= DATA)
			memcpy(c->r->data[o->index % DEPTH][c->rank], o->in, brings(o));
		PUT(&c->r->here[at][c->rank], tag);
		o->step = 1;
	}
	for (k = 0; k < c->nranks; k++) {
		uint64_t it = GET(&c->r->here[at][k]);

		if (it >> 32 != o->index + 1)
			return;
		same &= it == tag;
	}
	if (!same)
		return;
	finish_coll(o);
	PUT(&c->r->done[at][c->rank], o->index + 1);
	o->step = 2;
}

static void step_send(struct op *o)
{
	struct pair *p = &o->comm->r->pairs[o->comm->rank][o->root];

	if (o->step == 0) {
		if (GET(&p->posted) - GET(&p->taken) >= (o->bytes > SMALL ? 1 : BUFFERS))
			return;
		p->bytes[o->index % BUFFERS] = o->bytes;
		if (o->bytes <= SMALL)
			memcpy(p->small[o->index % BUFFERS], o->in, o->bytes);
		else if (o->bytes <= DATA)
			memcpy(p->large, o->in, o->bytes);
		PUT(&p->posted, o->index + 1);
		o->step = 1;
	}
	if (o->bytes <= SMALL || GET(&p->taken) > o->index)
		o->step = 2;
}

static void step_recv(struct op *o)
{
	struct pair *p = &o->comm->r->pairs[o->root][o->comm->rank];

	if (GET(&p->posted) <= o->index || p->bytes[o->index % BUFFERS] != o->bytes)
		return;
	if (o->bytes <= SMALL)
		memcpy(o->out, p->small[o->index % BUFFERS], o->bytes);
	else if (o->bytes <= DATA)
		memcpy(o->out, p->large, o->bytes);
	PUT(&p->taken, o->index + 1);
	o->step = 2;
}

void fake_step(struct op *o)
{
	if (o->kind == SEND)
		step_send(o);
	else if (o->kind == RECV)
		step_recv(o);
	else
		step_coll(o);
}
