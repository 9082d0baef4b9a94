/*
 * Finds the chain of steps that ends with a store. Each warp records its last steps and where it
 * waited for another warp. Behind a wait at a barrier the chain continues with the warp that
 * arrived last, behind a polled word with the warp that stored the word.
 */
#include <stdlib.h>
#include <string.h>
#include "runtime/base/err.h"
#include "tests/cuda/ptx/chain.h"
#include "tests/cuda/ptx/time.h"

#define STEPS	   8192u
#define ITEMS	   2048u
#define LONG_PS	   60000   /* steps from this length on are printed alone */
#define PATIENT_PS 5000000 /* a load at most this long before the change counts as polling */

struct step {
	const struct insn *in;
	struct warp *by;
	uint64_t from, to, by_at, nr;
	enum chain_kind kind;
};

struct chain {
	struct block *b;
	struct step steps[STEPS];
	uint32_t nr;
	uint64_t until;
	struct chain_load *loads; /* the last load into each register */
};

void chain_start(struct block *b, struct warp *w)
{
	w->chain = calloc(1, sizeof(*w->chain));
	w->chain->b = b;
	w->chain->until = when_ps(w->clock);
	w->chain->loads = calloc(b->k->nr_regs + 1, sizeof(*w->chain->loads));
}

void chain_free(struct warp *w)
{
	if (!w->chain)
		return;
	free(w->chain->loads);
	free(w->chain);
}

int chain_polled(const struct chain_word *word, uint64_t since)
{
	return word->by && word->looked && word->looked + PATIENT_PS > since;
}

void chain_loaded(struct warp *w, slot d, const struct chain_load *from)
{
	if (w->chain && d >= 0)
		w->chain->loads[d] = *from;
}

const struct chain_load *chain_load_of(const struct warp *w, slot d)
{
	return w->chain && d >= 0 ? &w->chain->loads[d] : NULL;
}

void chain_step(struct warp *w, const struct insn *in, enum chain_kind kind, struct warp *by,
		uint64_t by_at)
{
	struct chain *c = w->chain;
	struct step *last;

	if (!c || when_ps(w->clock) <= c->until)
		return;
	last = c->nr ? &c->steps[(c->nr - 1) % STEPS] : NULL;
	if (!last || by || last->by || last->kind != kind || last->in->src_line != in->src_line ||
	    last->in->file != in->file) {
		last = &c->steps[c->nr++ % STEPS];
		*last = (struct step){
			.in = in, .kind = kind, .by = by, .by_at = by_at, .from = c->until};
	}
	c->until = last->to = when_ps(w->clock);
	last->nr++;
}

/* ---- printing -------------------------------------------------------------------------------- */

struct item {
	struct block *b;
	struct warp *w;
	const struct insn *first, *last;
	uint64_t from, to, nr;
	const char *what;
};

static const char names_run[] = "executes";
static const char *const names[] = {
	[CHAIN_RUN] = names_run,	  [CHAIN_SHARED] = names_run,
	[CHAIN_L2] = "waits for L2",	  [CHAIN_HBM] = "waits for HBM",
	[CHAIN_PEER] = "waits for peer",  [CHAIN_HOST] = "waits for host",
	[CHAIN_RESULT] = names_run,	  [CHAIN_CODE] = "waits for code",
	[CHAIN_FENCE] = "waits at fence", [CHAIN_MEET] = "barrier",
};

static const char *file_of(const struct block *b, const struct insn *in)
{
	const struct ptx_module *m = b->k->module;
	const char *f = in->file < m->nr_files ? m->files[in->file] : NULL;
	const char *p = f ? strrchr(f, '/') : NULL;

	return p ? p + 1 : f ? f : "?";
}

static struct step *step_at(struct chain *c, uint64_t at)
{
	uint32_t i;

	for (i = 0; i < STEPS && i < c->nr; i++) {
		struct step *s = &c->steps[(c->nr - 1 - i) % STEPS];

		if (s->from < at)
			return s;
	}
	return NULL;
}

/*
 * Whether `next` and the earlier item `it` are printed as one: same warp, same kind, and both
 * short.
 */
static int joins(const struct item *next, const struct item *it)
{
	return next->w == it->w && next->what == it->what && it->to - it->from < LONG_PS &&
	       next->to - next->from < 10 * LONG_PS;
}

void chain_print(FILE *f, struct warp *w, uint64_t at, uint64_t since)
{
	struct item *items = calloc(ITEMS, sizeof(*items));
	uint32_t nr = 0;

	while (w && at > since && nr < ITEMS) {
		struct step *s = step_at(w->chain, at);
		struct item it = {.b = w->chain->b, .w = w, .to = at};

		if (!s)
			break;
		it.first = it.last = s->in;
		it.nr = s->nr;
		it.what = names[s->kind];
		it.from = s->from;
		if (s->by) {
			it.from = s->by_at < at ? s->by_at : at;
			if (s->kind != CHAIN_MEET)
				it.what = "sees what another stored";
			w = s->by;
		}
		if (it.from < since)
			it.from = since;
		at = it.from;
		if (nr && joins(&items[nr - 1], &it)) {
			items[nr - 1].from = it.from;
			items[nr - 1].first = it.first;
			items[nr - 1].nr += it.nr;
		} else {
			items[nr++] = it;
		}
	}
	while (nr--) {
		const struct item *it = &items[nr];

		fprintf(f, "# %7.3f us, %6.3f: block %2u warp %2u %s, %s:%u",
			(double)(it->from - since) / 1e6, (double)(it->to - it->from) / 1e6,
			it->b->index, it->w->first / LANES, it->what, file_of(it->b, it->first),
			it->first->src_line);
		if (it->last != it->first)
			fprintf(f, " to %s:%u", file_of(it->b, it->last), it->last->src_line);
		fprintf(f, " (%lu)\n", (unsigned long)it->nr);
	}
	free(items);
}
