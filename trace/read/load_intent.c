/* Intended operations: recorded by a thread before it waits in a call that has to finish first. */
#include <string.h>
#include "trace/read/load.h"

void df_load_intended(const struct df_lnote *n, struct df_lop *out)
{
	memset(out, 0, sizeof(*out));
	out->serial = n->rec.op;
	out->kind = (uint8_t)n->rec.a;
	out->type = (uint8_t)(n->rec.a >> 8);
	out->redop = (uint8_t)(n->rec.a >> 16);
	out->peer = df_rec_peer(n->rec.a >> 32);
	out->count = n->rec.b;
	out->stream = n->rec.c;
	out->issue_ns = n->rec.time_ns;
	out->rec = n->index;
	out->rec_start = out->rec_slot = DF_NO_REC;
	out->comm = n->rec.comm;
	out->rank = n->rec.rank;
	out->device = n->rec.device == 0xffff ? -1 : n->rec.device;
	out->thread = n->rec.thread;
	out->site = n->rec.site;
	out->group = (uint32_t)n->rec.op;
}

int df_load_intent(const struct df_load *l, const struct df_lnote *n, struct df_lop *out)
{
	const struct df_lcall *c =
		n->rec.type == DF_REC_OP_INTENT ? df_load_call(l, n->rec.op) : NULL;

	if (!c || !c->open)
		return 0;
	df_load_intended(n, out);
	return 1;
}
