/*
 * What jobs of the evaluation communicate: one step of five kinds of model with data and tensor parallelism, and
 * collectives that are put together from messages and smaller collectives.
 */
#ifndef DEADLOCK_EVAL_MODELS_H
#define DEADLOCK_EVAL_MODELS_H

#include "eval_units.h"

/* ---- models ---------------------------------------------------------------------------------------------- */

static inline void ev_mlp(struct ev_job *j)
{
	for (int l = 0; l < 8; l++) /* 16 layers: one divided by columns, one by rows */
		ev_tp(j, SC_AR, 4096);
	ev_world(j, SC_AR, 1);
	for (int l = 0; l < 8; l++) {
		ev_tp(j, SC_AR, 4096);
		if (l & 1)
			ev_dp(j, SC_AR, 8192);
	}
}

static inline void ev_gpt2(struct ev_job *j)
{
	ev_tp(j, SC_AR, 3072);	     /* embedding */
	for (int l = 0; l < 12; l++) /* attention and MLP of six layers */
		ev_tp(j, SC_AR, 3072);
	ev_tp(j, SC_AG, 1000); /* logits, loss */
	ev_tp(j, SC_AR, 8);
	for (int l = 0; l < 12; l++) {
		ev_tp(j, SC_AR, 3072);
		if (l % 4 == 3)
			ev_dp(j, SC_RS, 6144);
	}
	ev_world(j, SC_AR, 1); /* norm of the gradients */
	ev_all(j, EU_JOIN);
	ev_dp(j, SC_AG, 6144);
}

static inline void ev_mbart(struct ev_job *j)
{
	if (j->tp > 1)
		ev_coll_of(j, j->tp_comm, j->tp_stream, SC_BC, 512, 1); /* the batch */
	for (int l = 0; l < 4 + 6; l++) /* two layers of the encoder, two of the decoder */
		ev_tp(j, SC_AR, 1024);
	ev_tp(j, SC_AG, 2048);
	for (int l = 0; l < 6 + 4; l++) {
		ev_tp(j, SC_AR, 1024);
		if (l % 3 == 2)
			ev_dp(j, SC_AR, 2048);
	}
	ev_world(j, SC_AR, 4000); /* embeddings that both halves share */
}

static inline void ev_swin(struct ev_job *j)
{
	static const int depth[] = {2, 2, 6, 2};

	for (int backward = 0; backward < 2; backward++)
		for (int k = 0; k < 4; k++) {
			int stage = backward ? 3 - k : k;

			for (int b = 0; b < depth[stage]; b++) {
				/* Shifted windows need the neighbour's border. */
				if (b & 1)
					ev_shift(j, j->tp > 1 ? j->tp_comm : j->dp_comm,
						 j->tp > 1 ? j->tp_stream : j->dp_stream, 1);
				ev_tp(j, SC_AR, (uint64_t)1024 << (stage & 1));
				if (backward && !(b & 1))
					ev_dp(j, SC_AR, 2048);
			}
			if (stage < 3)
				ev_tp(j, SC_AG, 512); /* merging of patches */
		}
}

static inline void ev_openfold(struct ev_job *j)
{
	for (int backward = 0; backward < 2; backward++)
		for (int b = 0; b < 2; b++) {
			ev_tp(j, SC_A2A, 512); /* rows to columns of the alignment */
			ev_tp(j, SC_A2A, 512);
			ev_tp(j, SC_AG, 1024); /* mean of the outer product */
			for (int t = 0; t < 2; t++)
				ev_tp(j, SC_AR, 2048); /* triangles: out, in */
			for (int t = 0; t < 2; t++)
				ev_tp(j, SC_A2A, 1024);
			ev_tp(j, SC_AR, 512);
			if (backward) {
				ev_dp(j, SC_RS, 1024);
				ev_dp(j, SC_AR, 4096);
			}
		}
	ev_world(j, SC_AR, 1);
}

/* ---- collectives from smaller parts ------------------------------------------------------------------------ */

/* The part across nodes: a collective, or `shifts` rounds of messages in its place. */
static inline void ev_across(struct ev_job *j, int stream, int p2p, int shifts, int coll,
			     uint64_t n)
{
	for (int k = 0; p2p && k < shifts; k++)
		ev_shift(j, j->dp_comm, stream, 1);
	if (!p2p && j->dp > 1)
		ev_coll_of(j, j->dp_comm, stream, coll, n, 1);
}

static inline void ev_hierarchical(struct ev_job *j, int which)
{
	int chunks = 2 + (int)ev_below(j, 4), p2p = (int)ev_below(j, 2), m = j->dp;

	for (int c = 0; c < chunks; c++) {
		uint64_t n = 256 + 64 * ev_below(j, 4);
		int stream = c & 1 ? j->tp_stream : j->dp_stream;

		ev_all(j, EU_WORK);
		switch (which) {
		case 0: /* all to all: inside the node, then across */
			ev_exchange(j, j->tp_comm, stream);
			if (p2p)
				ev_exchange(j, j->dp_comm, stream);
			ev_across(j, stream, p2p, 0, SC_A2A, n);
			break;
		case 1: /* reduce and scatter, all-reduce across, gather */
			ev_coll_of(j, j->tp_comm, stream, SC_RS, n, 1);
			ev_across(j, stream, p2p, 2 * (m - 1), SC_AR, n);
			ev_coll_of(j, j->tp_comm, stream, SC_AG, n, 1);
			break;
		case 2:
			ev_across(j, stream, p2p, m - 1, SC_AG, n);
			ev_coll_of(j, j->tp_comm, stream, SC_AG, n * (uint64_t)m, 1);
			break;
		case 3:
			if (p2p)
				ev_chain(j, j->dp_comm, stream);
			ev_across(j, stream, p2p, 0, SC_BC, n);
			ev_coll_of(j, j->tp_comm, stream, SC_BC, n, 1);
			break;
		default:
			ev_coll_of(j, j->tp_comm, stream, SC_RS, n * (uint64_t)m, 1);
			ev_across(j, stream, p2p, m - 1, SC_RS, n);
		}
	}
}

#endif
