/*
 * Exports MSCCL's XML. A step has one dependency: further ones become nops before it. Trailing nops
 * (our fences between instances) are omitted, because MSCCL starts no program before the last one
 * has ended.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/err.h"
#include "runtime/base/xml_text.h"
#include "runtime/program/file/msccl.h"
#include "runtime/program/program_names.h"

static const char *const colls[2][DF_COLL_NR] = {
	{[DF_COLL_ALLREDUCE] = "allreduce",
	 [DF_COLL_BROADCAST] = "broadcast",
	 [DF_COLL_REDUCE] = "reduce",
	 [DF_COLL_ALLGATHER] = "allgather",
	 [DF_COLL_REDUCESCATTER] = "reduce_scatter",
	 [DF_COLL_ALLTOALL] = "alltoall",
	 [DF_COLL_GATHER] = "gather",
	 [DF_COLL_SCATTER] = "scatter",
	 [DF_COLL_CUSTOM] = "custom"},
	{[DF_COLL_ALLREDUCE] = "allreduce",
	 [DF_COLL_BROADCAST] = "broadcast",
	 [DF_COLL_REDUCE] = "reduce",
	 [DF_COLL_ALLGATHER] = "allgather",
	 [DF_COLL_REDUCESCATTER] = "reducescatter",
	 [DF_COLL_ALLTOALL] = "alltoall",
	 [DF_COLL_GATHER] = "gather",
	 [DF_COLL_SCATTER] = "scatter",
	 [DF_COLL_CUSTOM] = "custom"},
};

struct peers {
	int32_t send, recv;
	uint32_t chan;
};

static int find_peers(const struct df_pblock *b, int rank, uint32_t block, struct peers *p,
		      struct df_perr *err)
{
	int seen = 0;

	*p = (struct peers){-1, -1, 0};
	for (uint32_t i = 0; i < b->nr; i++) {
		const struct df_pinst *in = &b->inst[i];
		const int32_t peer[2] = {in->send_peer, in->recv_peer};
		const uint32_t chan[2] = {in->send_chan, in->recv_chan};

		for (int d = 0; d < 2; d++) {
			int32_t *mine = d ? &p->recv : &p->send;

			if (peer[d] < 0)
				continue;
			if (*mine >= 0 && *mine != peer[d]) {
				df_perr_set(err, -1, rank, (int)block, (int)i,
					    "%s both rank %d and rank %d; MSCCL has one peer per "
					    "direction",
					    d ? "receives from" : "sends to", *mine, peer[d]);
				return -EOPNOTSUPP;
			}
			if (seen && p->chan != chan[d]) {
				df_perr_set(err, -1, rank, (int)block, (int)i,
					    "uses two channels; MSCCL has one per block");
				return -EOPNOTSUPP;
			}
			*mine = peer[d];
			p->chan = chan[d];
			seen = 1;
		}
	}
	return 0;
}

static uint32_t nr_deps(const struct df_prank *r, const struct df_pinst *in)
{
	uint32_t n = 0;

	for (uint32_t d = in->deps; d; d = r->dep[d - 1].next)
		n++;
	return n;
}

static uint32_t used_steps(const struct df_pblock *b)
{
	uint32_t n = b->nr;

	while (n && b->inst[n - 1].op == DF_OP_NOP)
		n--;
	return n;
}

static int write_rank(FILE *f, const struct df_prank *r, int rank, struct df_perr *err)
{
	/* By block: step of the plan -> step of the file; whether another block depends on it. */
	uint32_t **at = calloc(r->nr_blocks + 1ull, sizeof(*at));
	uint8_t **target = calloc(r->nr_blocks + 1ull, sizeof(*target));
	int rc = -ENOMEM;

	if (!at || !target)
		goto out;
	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		uint32_t n = 0;

		at[b] = calloc(r->block[b].nr + 1ull, sizeof(**at));
		target[b] = calloc(r->block[b].nr + 1ull, 1);
		if (!at[b] || !target[b])
			goto out;
		for (uint32_t i = 0; i < r->block[b].nr; i++) {
			uint32_t d = nr_deps(r, &r->block[b].inst[i]);

			n += d > 1 ? d - 1 : 0;
			at[b][i] = n++;
		}
	}
	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		for (uint32_t i = 0; i < used_steps(&r->block[b]); i++) {
			for (uint32_t d = r->block[b].inst[i].deps; d; d = r->dep[d - 1].next)
				target[r->dep[d - 1].block][r->dep[d - 1].inst] = 1;
		}
	}
	fprintf(f, "  <gpu id=\"%d\" i_chunks=\"%u\" o_chunks=\"%u\" s_chunks=\"%u\">\n", rank,
		r->in_chunks, r->out_chunks, r->scratch_chunks);
	for (uint32_t b = 0; b < r->nr_blocks; b++) {
		const struct df_pblock *blk = &r->block[b];
		struct peers p;

		rc = find_peers(blk, rank, b, &p, err);
		if (rc)
			goto out;
		fprintf(f, "    <tb id=\"%u\" send=\"%d\" recv=\"%d\" chan=\"%u\">\n", b, p.send,
			p.recv, p.chan);
		for (uint32_t i = 0; i < used_steps(blk); i++) {
			const struct df_pinst *in = &blk->inst[i];
			const struct df_op_info *op = &df_op_info[in->op];
			uint32_t d = in->deps, s = at[b][i] + 1 - (d ? nr_deps(r, in) : 1);

			for (; d && r->dep[d - 1].next; d = r->dep[d - 1].next)
				fprintf(f,
					"      <step s=\"%u\" type=\"nop\" srcbuf=\"i\" "
					"srcoff=\"-1\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"0\" "
					"depid=\"%u\" deps=\"%u\" hasdep=\"0\"/>\n",
					s++, r->dep[d - 1].block,
					at[r->dep[d - 1].block][r->dep[d - 1].inst]);
			fprintf(f,
				"      <step s=\"%u\" type=\"%s\" srcbuf=\"%c\" srcoff=\"%d\" "
				"dstbuf=\"%c\" dstoff=\"%d\" cnt=\"%u\" depid=\"%d\" deps=\"%d\" "
				"hasdep=\"%d\"/>\n",
				s, op->xml, "ios"[in->src_buf], op -> reads ? (int)in -> src : -1,
				"ios"[in->dst_buf], op -> writes ? (int)in -> dst : -1, in -> cnt,
				d ? (int)r -> dep[d - 1].block : -1,
				d ? (int)at[r->dep[d - 1].block][r->dep[d - 1].inst] : -1,
				target[b][i]);
		}
		fputs("    </tb>\n", f);
	}
	fputs("  </gpu>\n", f);
	rc = 0;
out:
	for (uint32_t b = 0; at && target && b < r->nr_blocks; b++) {
		free(at[b]);
		free(target[b]);
	}
	free(at);
	free(target);
	return rc;
}

int df_msccl_write(FILE *f, const struct df_plan *plan, int rccl, int in_place, struct df_perr *err)
{
	const char *coll = colls[rccl != 0][plan->kind];
	uint32_t nr_chan = 1, total = plan->chunks;
	uint64_t scale = df_coll_counts(plan->kind, plan->nranks);
	int rc;

	if (!coll) {
		df_perr_set(err, -1, -1, -1, -1, "MSCCL has no %s", df_coll_kind_name(plan->kind));
		return -EOPNOTSUPP;
	}
	total *= (uint32_t)scale;
	for (int r = 0; r < plan->nranks; r++) {
		for (uint32_t b = 0; b < plan->rank[r].nr_blocks; b++) {
			for (uint32_t i = 0; i < plan->rank[r].block[b].nr; i++) {
				const struct df_pinst *in = &plan->rank[r].block[b].inst[i];

				if (in->send_peer >= 0 && in->send_chan >= nr_chan)
					nr_chan = in->send_chan + 1;
				if (in->recv_peer >= 0 && in->recv_chan >= nr_chan)
					nr_chan = in->recv_chan + 1;
			}
		}
	}
	fputs("<algo name=\"", f);
	df_xml_text(f, plan->name, 0);
	fprintf(f,
		"\" proto=\"%s\" nchannels=\"%u\" nchunksperloop=\"%u\" ngpus=\"%d\" coll=\"%s\"",
		plan->proto == DF_PROTO_ANY ? "Simple" : df_proto_name(plan->proto), nr_chan, total,
		plan->nranks, coll);
	if (rccl)
		fprintf(f, " inplace=\"%d\" outofplace=\"1\" minBytes=\"%llu\" maxBytes=\"%llu\"",
			in_place != 0, (unsigned long long)(plan->min_bytes * scale),
			(unsigned long long)(plan->max_bytes * scale));
	else
		fputs(" inplace=\"0\"", f);
	if (!rccl && plan->min_bytes)
		fprintf(f, " minBytes=\"%llu\"", (unsigned long long)(plan->min_bytes * scale));
	if (!rccl && plan->max_bytes)
		fprintf(f, " maxBytes=\"%llu\"", (unsigned long long)(plan->max_bytes * scale + 1));
	if (plan->root)
		fprintf(f, " root=\"%d\"", plan->root);
	fputs(">\n", f);
	for (int r = 0; r < plan->nranks; r++) {
		rc = write_rank(f, &plan->rank[r], r, err);
		if (rc)
			return rc;
	}
	fputs("</algo>\n", f);
	return ferror(f) ? -EIO : 0;
}
