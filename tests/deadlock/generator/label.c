/* Translates scripts into programs of the model, and makes schedules (label.h). */
#include "label.h"
#include <stdlib.h>
#include <string.h>

void model_add(struct df_mprog *p, int r, int t, const struct df_mop *op)
{
	if (df_mprog_add(p, r, t, op))
		abort();
}

static int virtual_comm(struct df_mprog *p, struct sigs *g, const struct script *s, int comm,
			uint64_t sig)
{
	int i;

	for (i = 0; i < g->nr; i++)
		if (g->v[i].comm == comm && g->v[i].sig == sig)
			return g->v[i].number;
	if (g->nr == 128)
		abort();
	g->v[g->nr].comm = comm;
	g->v[g->nr].sig = sig;
	return g->v[g->nr++].number =
		       df_mprog_comm(p, &(struct df_ranks){{s->comms[comm].members}});
}

static void map_from(struct model_map *map, const struct df_mprog *p, int r, int t, size_t from,
		     int step)
{
	if (map && (t >= MODEL_THREADS || p->threads[r][t].nr_ops > MODEL_STEPS))
		abort();
	for (size_t k = from; map && k < p->threads[r][t].nr_ops; k++)
		map->step[r][t][k] = step;
	if (map)
		map->nr[r][t] = (int)p->threads[r][t].nr_ops;
}

void to_model_mapped(const struct script *s, int ours, struct df_mprog *p, struct model_map *map)
{
	struct sigs sigs = {.nr = 0};
	int r, t, i, last[64];

	memset(p, 0, sizeof(*p));
	p->nr_ranks = s->nr_ranks;
	p->buffered = 1;
	p->cap = s->slots >= 64 || ours ? 0 : s->slots;
	p->one_queue = s->queues == 1 && !ours;
	for (i = 0; i < s->comm.nr; i++)
		df_mprog_comm(p, &(struct df_ranks){{s->comms[i].members}});
	for (r = 0; r < s->nr_ranks; r++) {
		p->nr_threads[r] = s->nr_threads[r];
		for (i = 0; i < 64; i++)
			last[i] = -1;
		for (t = 0; t < s->nr_threads[r]; t++) {
			struct df_mop group = {.kind = DF_MOP_P2P};
			int open = 0;

			map_from(map, p, r, t, 0, 0);

			for (i = 0; i < s->threads[r][t].nr; i++) {
				const struct sc_step *st = &s->threads[r][t].v[i];
				struct df_mop op = {.stream = st->stream,
						    .object = st->object,
						    .comm = st->comm};
				struct df_mop ev = {.stream = st->stream,
						    .object = 1000 + st->comm};
				size_t from = p->threads[r][t].nr_ops;

				switch (st->kind) {
				case SC_COLL:
					op.kind = DF_MOP_COLL;
					op.sig = (uint64_t)st->coll | st->count << 8;
					if (s->buf.v[st->in][0] != '.') {
						op.reads = 1ULL << st->stream;
						op.writes = 1ULL << st->stream;
					}
					if (ours)
						op.comm =
							virtual_comm(p, &sigs, s, st->comm, op.sig);
					/*
					 * A pseudo buffer for each signature: the instances of one
					 * signature run in order.
					 */
					if (ours && op.comm >= 56)
						abort();
					op.writes |= ours ? 1ULL << (8 + op.comm) : 0;
					break;
				case SC_SEND:
				case SC_RECV:
					op = open ? group : (struct df_mop){.kind = DF_MOP_P2P};
					op.stream = st->stream;
					op.comm = st->comm;
					op.p2p[op.nr_p2p].send = st->kind == SC_SEND;
					op.p2p[op.nr_p2p].comm =
						ours ? virtual_comm(p, &sigs, s, st->comm,
								    255 | st->count << 8)
						     : st->comm;
					op.p2p[op.nr_p2p].peer = st->peer;
					op.p2p[op.nr_p2p++].count = st->count;
					if (st->count >= UNBUFFERED)
						p->buffered = 0;
					if (open) {
						group = op;
						continue;
					}
					break;
				case SC_OPEN:
					open = 1;
					memset(&group, 0, sizeof(group));
					group.kind = DF_MOP_P2P;
					continue;
				case SC_CLOSE:
					open = 0;
					op = group;
					ev.object = 1000 + op.comm;
					ev.stream = op.stream;
					break;
				case SC_WORK:
				case SC_FN:
					op.kind = DF_MOP_KERNEL;
					break;
				case SC_REC:
					op.kind = DF_MOP_RECORD;
					break;
				case SC_WAIT:
					op.kind = DF_MOP_WAIT;
					break;
				case SC_ESYNC:
					op.kind = DF_MOP_ESYNC;
					break;
				case SC_SSYNC:
					op.kind = DF_MOP_SSYNC;
					break;
				case SC_DSYNC:
					op.kind = DF_MOP_DSYNC;
					break;
				case SC_FREE:
				case SC_HALLOC:
				case SC_HREG:
					op.kind = DF_MOP_ISYNC;
					break;
				case SC_READ:
					/*
					 * The copy needs a place in the single queue, and the
					 * thread waits for the copy.
					 */
					if (!p->one_queue)
						continue;
					op.stream = 60;
					op.kind = DF_MOP_KERNEL;
					model_add(p, r, t, &op);
					op.kind = DF_MOP_SSYNC;
					break;
				case SC_HS:
					op.kind = DF_MOP_HSIGNAL;
					break;
				case SC_HW:
					op.kind = DF_MOP_HWAIT;
					break;
				default:
					continue;
				}
				if (op.kind == DF_MOP_COLL || op.kind == DF_MOP_P2P) {
					int c = ev.object - 1000;

					if (!ours && last[c] >= 0 && last[c] != op.stream) {
						ev.kind = DF_MOP_WAIT;
						model_add(p, r, t, &ev);
					}
					model_add(p, r, t, &op);
					/*
					 * With dfshim the operation may start out of order, but
					 * later operations may not.
					 */
					if (ours && last[c] >= 0 && last[c] != op.stream) {
						ev.kind = DF_MOP_WAIT;
						model_add(p, r, t, &ev);
					}
					ev.kind = DF_MOP_RECORD;
					model_add(p, r, t, &ev);
					last[c] = op.stream;
				} else {
					model_add(p, r, t, &op);
				}
				map_from(map, p, r, t, from, i);
			}
		}
	}
}

void to_model(const struct script *s, int ours, struct df_mprog *p)
{
	to_model_mapped(s, ours, p, NULL);
}

static size_t dice_throw(void *arg, size_t nr)
{
	struct dice *d = arg;

	d->state = d->state * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(d->state >> 33) % nr;
}

static int dice_hold(void *arg, int rank, int thread, const struct df_mop *next)
{
	const struct dice *d = arg;

	(void)next;
	return d->held[thread] >> rank & 1;
}

static int dice_let_go(void *arg)
{
	struct dice *d = arg;
	int any = 0;

	for (int t = 0; t < MODEL_THREADS; t++) {
		any |= d->held[t] != 0;
		d->held[t] = 0;
	}
	return any;
}

struct df_model_schedule dice_schedule(struct dice *d, int i, int nr_ranks)
{
	memset(d, 0, sizeof(*d));
	d->state = (uint64_t)i * 0x9e3779b97f4a7c15u;
	for (int r = 0; r < nr_ranks && i & 1; r++) {
		int other = i > 3 && !dice_throw(d, 8);

		d->held[(i >> 1 & 1) ^ other] |= 1ULL << r;
	}
	return (struct df_model_schedule){.pick = dice_throw,
					  .arg = d,
					  .device = dice_throw,
					  .hold = dice_hold,
					  .let_go = dice_let_go};
}
