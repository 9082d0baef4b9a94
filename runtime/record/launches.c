#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include "runtime/backend.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/err.h"
#include "runtime/record/launches.h"
#include "trace/record/format.h"
#include "trace/record/names.h"
#include "trace/record/trace_hash.h"
#include "trace/record/writer.h"

/* RELAXED: see launches.h; a name's text is complete since its launch. */
#define GET(p)	  __atomic_load_n(p, __ATOMIC_RELAXED)
#define PUT(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)

void df_launches_note(struct df_launches *l, uint32_t kind, const char *name, uint64_t after,
		      uint64_t reached)
{
	uint32_t turn = GET(&l->turn) + 1;
	struct df_launched *use = NULL, *e;

	PUT(&l->turn, turn);
	for (e = l->v; e < l->v + DF_LAUNCHES_MAX; e++) {
		uint32_t nr = GET(&e->nr);
		uint64_t at = GET(&e->after);

		if (nr && at == after && GET(&e->name) == name && GET(&e->kind) == kind) {
			PUT(&e->nr, nr + 1);
			PUT(&e->last, turn);
			return;
		}
		if (use && (!GET(&use->nr) || GET(&use->after) < reached))
			continue;
		if (!nr || at < reached ||
		    (at == after && (!use || (int32_t)(GET(&e->last) - GET(&use->last)) < 0)))
			use = e;
	}
	if (!use)
		return;
	PUT(&use->nr, 0);
	PUT(&use->name, name);
	PUT(&use->kind, kind);
	PUT(&use->after, after);
	PUT(&use->first, turn);
	PUT(&use->last, turn);
	PUT(&use->nr, 1);
}

static int is_wanted(const struct df_launched *e, const struct df_launches_want *want)
{
	uint64_t after = GET(&e->after);

	return GET(&e->nr) && after >= want->reached && after < want->before &&
	       (!want->by_turn || (int32_t)((GET(&e->first) - want->turn) << 1) <= 0);
}

void df_launches_record(const struct df_launches *l, const struct df_launches_want *want)
{
	const struct df_launched *in[DF_LAUNCHES_MAX], *e;
	size_t nr = 0, at;

	for (e = l->v; e < l->v + DF_LAUNCHES_MAX; e++) {
		if (!is_wanted(e, want))
			continue;
		for (at = nr++; at && (int32_t)(GET(&in[at - 1]->first) - GET(&e->first)) > 0; at--)
			in[at] = in[at - 1];
		in[at] = e;
	}
	for (at = 0; at < nr; at++) {
		const char *name = GET(&in[at]->name);

		if (name)
			df_trace_text(name);
		df_trace(DF_REC_LAUNCH, want->device, 0, -1, want->op,
			 name ? df_hash64(name, strlen(name)) : 0,
			 GET(&in[at]->kind) | (uint64_t)at << 8 | (uint64_t)GET(&in[at]->nr) << 32,
			 want->stream, 0);
	}
}

size_t df_launches_kernels(const struct df_launches *l, uint64_t reached, char *text, size_t n,
			   size_t size)
{
	const struct df_launched *e;
	char one[264];
	int len;

	for (e = l->v; e < l->v + DF_LAUNCHES_MAX; e++) {
		const char *name = GET(&e->name);

		if (!GET(&e->nr) || !name || GET(&e->kind) != DF_WORK_KERNEL ||
		    GET(&e->after) < reached)
			continue;
		len = snprintf(one, sizeof(one), "%s%s", n ? ", " : "", name);
		if (len < 0 || n + (size_t)len >= size)
			break;
		df_text_clean(one, (size_t)len);
		if (strstr(text, one + (n ? 2 : 0)))
			continue;
		memcpy(text + n, one, (size_t)len + 1);
		n += (size_t)len;
	}
	return n;
}
