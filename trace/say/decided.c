/*
 * Between the last call that two ranks made alike and the first one that differs, each of them
 * executed statements of one function. A branch decides if one of its sides leads to the call of
 * one rank and the other side to the call of the other rank, whichever is executed first. The
 * values that it tests are set by assignments of the same function.
 */
#define _GNU_SOURCE /* for memmem */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/clean_text.h"
#include "runtime/base/err.h"
#include "trace/judge/say.h"
#include "trace/say/decided.h"
#include "trace/say/source.h"

#define MAX_FRAMES   8
#define MAX_SOURCES  8
#define MAX_BRANCHES 4
#define MAX_VALUES   4
#define MAX_SHOWN    100 /* bytes of a statement */

struct file {
	char path[1024];
	struct df_source src;
	int readable;
};

/* A line of the program in a stack. */
struct frame {
	char text[1024];   /* as recorded */
	struct file *file; /* NULL: the source is not known */
	uint32_t stmt, function;
};

struct stack {
	struct frame f[MAX_FRAMES];
	unsigned nr;
};

struct finder {
	const struct df_check_result *r;
	struct file files[MAX_SOURCES];
	unsigned nr_files;
	struct stack at[2], alike[2]; /* the calls that differ, and the last ones alike */
};

/* ---- lines of the stacks --------------------------------------------------------------------- */

/* Returns the second of CLOCK_REALTIME in which the trace begins; 0: unknown. */
static int64_t began(const struct df_trc *t)
{
	uint64_t since = t->h.mono_ns - t->began_ns;

	return t->h.real_ns > since ? (int64_t)((t->h.real_ns - since) / 1000000000u) : 0;
}

static struct file *file_of(struct finder *x, const char *path, size_t bytes, uint32_t trace)
{
	struct file *f;

	for (unsigned i = 0; i < x->nr_files; i++)
		if (strlen(x->files[i].path) == bytes && !strncmp(x->files[i].path, path, bytes))
			return x->files[i].readable ? &x->files[i] : NULL;
	if (x->nr_files == MAX_SOURCES || bytes >= sizeof(f->path))
		return NULL;
	f = &x->files[x->nr_files++];
	snprintf(f->path, sizeof(f->path), "%.*s", (int)bytes, path);
	f->readable = !df_source_read(&f->src, f->path, began(&x->r->set->traces[trace]));
	return f->readable ? f : NULL;
}

/* Whether the function's name in the source is the one in the frame. "<lambda>" has none. */
static int is_named(const struct frame *f, const struct df_stack_line *line)
{
	const struct df_stmt *def;
	size_t bytes = 0;
	const char *at;

	if (line->name[0] == '<')
		return f->function == DF_SOURCE_NONE || strncmp(line->name, "<module>", 8) != 0;
	if (f->function == DF_SOURCE_NONE)
		return 0;
	def = &f->file->src.stmts[f->function];
	while (line->name[bytes] && line->name[bytes] != ' ')
		bytes++;
	at = memmem(def->text, def->bytes, "def", 3);
	at = at ? at + 3 : def->text;
	while (at < def->text + def->bytes && *at == ' ')
		at++;
	return (size_t)(def->text + def->bytes - at) > bytes && !strncmp(at, line->name, bytes) &&
	       strchr("( [\\", at[bytes]);
}

static void read_stack(struct finder *x, struct stack *s, uint32_t trace, uint32_t site)
{
	struct df_stack_line line;

	for (s->nr = 0; s->nr < MAX_FRAMES; s->nr++) {
		struct frame *f = &s->f[s->nr];

		if (!df_say_frame(x->r->set, trace, site, s->nr, f->text, sizeof(f->text)) ||
		    !df_stack_line(f->text, &line))
			return;
		f->file = file_of(x, f->text, (size_t)line.file_bytes, trace);
		f->stmt = f->file ? df_source_at(&f->file->src, line.line) : DF_SOURCE_NONE;
		if (f->stmt == DF_SOURCE_NONE) {
			f->file = NULL;
			continue;
		}
		f->function = df_source_function(&f->file->src, f->stmt);
		if (!is_named(f, &line))
			f->file = NULL;
	}
}

static int same_function(const struct frame *a, const struct frame *b)
{
	return a->file && a->file == b->file && a->function == b->function;
}

/* Returns the innermost frame of this function, or NULL. */
static const struct frame *frame_in(const struct stack *s, const struct frame *f)
{
	for (unsigned i = 0; i < s->nr; i++)
		if (same_function(&s->f[i], f))
			return &s->f[i];
	return NULL;
}

/* Whether frames i and j have the same caller, or that of one of them is unknown. */
static int same_caller(const struct stack *a, unsigned i, const struct stack *b, unsigned j)
{
	const char *p = a->f[i + 1].text, *q = b->f[j + 1].text;
	size_t n = strcspn(p, "("), m = strcspn(q, "(");

	if (i + 1 == a->nr || j + 1 == b->nr)
		return 1;
	/* Behind the function's name may be " (backward)". */
	n -= n && p[n] && p[n - 1] == ' ';
	m -= m && q[m] && q[m - 1] == ' ';
	return n == m && !strncmp(p, q, n);
}

/* ---- branches -------------------------------------------------------------------------------- */

enum { HITS_A = 1, HITS_B = 2 };

/* The statements of one function, numbered from `first`; number `nr` is its end. */
struct region {
	struct df_source *src;
	uint32_t function, first, nr;
	uint32_t target[2]; /* the two calls; the end, if a rank made no further call */
	/* what can be executed first from here on; whether this is executed before both */
	uint8_t *hits, *reached;
	int raises;  /* exceptions count, too */
	int repeats; /* the function is called again */
};

static uint8_t bit(const struct region *g, uint32_t stmt)
{
	return (uint8_t)((stmt == g->target[0]) * HITS_A | (stmt == g->target[1]) * HITS_B);
}

/* Returns what is executed first, once `stmt` is next. */
static uint8_t first_hits(const struct region *g, uint32_t stmt)
{
	if (stmt == DF_SOURCE_NONE)
		return 0;
	return bit(g, stmt) ?: g->hits[stmt - g->first];
}

static unsigned nexts(const struct region *g, uint32_t stmt, uint32_t next[3])
{
	const struct df_stmt *s = &g->src->stmts[stmt];
	unsigned nr = 0;

	if (stmt == g->first + g->nr) {
		if (g->repeats)
			next[nr++] = g->first;
		return nr;
	}
	for (int i = 0; i < 2; i++)
		if (s->next[i] != DF_SOURCE_NONE)
			next[nr++] = s->next[i];
	if (g->raises && s->handler != DF_SOURCE_NONE)
		next[nr++] = s->handler;
	return nr;
}

/* Marks `stmt`, and what follows it before either call. */
static void reach(struct region *g, const uint32_t *from, unsigned nr_from, uint32_t *todo)
{
	size_t nr = 0;
	uint32_t next[3];

	memset(g->reached, 0, g->nr + 1);
	for (unsigned i = 0; i < nr_from; i++) {
		if (!g->reached[from[i] - g->first])
			todo[nr++] = from[i];
		g->reached[from[i] - g->first] = 1;
	}
	while (nr) {
		uint32_t stmt = todo[--nr];
		unsigned n = nexts(g, stmt, next);

		for (unsigned i = 0; i < n; i++) {
			if (bit(g, next[i]) || g->reached[next[i] - g->first])
				continue;
			g->reached[next[i] - g->first] = 1;
			todo[nr++] = next[i];
		}
	}
}

static void find_hits(struct region *g)
{
	uint32_t next[3];
	int changed = 1;

	memset(g->hits, 0, g->nr + 1);
	while (changed) {
		changed = 0;
		for (uint32_t i = g->nr + 1; i-- > 0;) {
			unsigned n = nexts(g, g->first + i, next);
			uint8_t h = g->hits[i];

			for (unsigned k = 0; k < n; k++)
				h |= first_hits(g, next[k]);
			changed |= h != g->hits[i];
			g->hits[i] = h;
		}
	}
}

/* How well the sides of a branch separate the calls: 2: entirely, 1: partly, 0: not. */
static int separates(const struct region *g, uint32_t stmt)
{
	const struct df_stmt *s = &g->src->stmts[stmt];
	uint8_t a, b;

	if (s->kind == DF_STMT_EXCEPT)
		return g->raises;
	if (s->next[1] == DF_SOURCE_NONE)
		return 0;
	a = first_hits(g, s->next[0]);
	b = first_hits(g, s->next[1]);
	return a == b || !a || !b ? 0 : a & b ? 1 : 2;
}

/* ---- text ------------------------------------------------------------------------------------ */

struct text {
	char buf[1600];
	size_t at;
};

static void put(struct text *t, const char *text, size_t bytes)
{
	int n = snprintf(t->buf + t->at, sizeof(t->buf) - t->at, "%.*s", (int)bytes, text);

	t->at = n < 0 ? t->at : DF_MIN(t->at + (size_t)n, sizeof(t->buf) - 1);
}

static void put_stmt(struct text *t, const struct df_stmt *s)
{
	put(t, s->text, DF_MIN(s->bytes, MAX_SHOWN));
	if (s->more || s->bytes > MAX_SHOWN)
		put(t, " ...", 4);
}

/* Puts the line, and the statement in quotes; of a branch that only jumps, both. */
static void put_item(struct text *t, const struct df_source *src, uint32_t stmt, const char *before)
{
	const struct df_stmt *s = &src->stmts[stmt], *jump = s + 1;
	int jumps = s->kind != DF_STMT_OTHER && stmt + 1 < src->nr && jump->indent > s->indent &&
		    jump->kind >= DF_STMT_BREAK;
	char line[48];

	put(t, before, strlen(before));
	if (jumps && jump->first != s->first)
		snprintf(line, sizeof(line), "%d-%d \"", s->first, jump->first);
	else
		snprintf(line, sizeof(line), "%d \"", s->first);
	put(t, line, strlen(line));
	put_stmt(t, s);
	if (jumps) {
		put(t, " ", 1);
		put_stmt(t, jump);
	}
	put(t, "\"", 1);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int is_name(char c)
{
	return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* Returns the next name in the text from *at on, and its bytes; NULL: none. */
static const char *next_name(const char **at, const char *end, size_t *bytes)
{
	const char *name;

	while (*at < end && !is_name(**at))
		++*at;
	for (name = *at; *at < end && is_name(**at);)
		++*at;
	*bytes = (size_t)(*at - name);
	return *bytes ? name : NULL;
}

/* Returns where the value of an assignment begins, or NULL if the statement is none. */
static const char *value_of(const struct df_stmt *s)
{
	const char *at = s->text, *end = at + s->bytes;

	if (s->kind != DF_STMT_OTHER)
		return NULL;
	while (at < end && (is_name(*at) || strchr(", ", *at)))
		at++;
	if (at < end && strchr("+-*/%&|^", *at))
		at++;
	return end - at > 1 && *at == '=' && at[1] != '=' ? at + 1 : NULL;
}

static int sets(const struct df_stmt *s, const char *name, size_t bytes)
{
	const char *at = s->text, *end = value_of(s), *target;
	size_t n;

	while (end && (target = next_name(&at, end, &n)))
		if (n == bytes && !strncmp(target, name, n))
			return 1;
	return 0;
}

/* Marks the assignments of the names that a branch or a marked assignment uses. */
static unsigned mark_values(const struct region *g, uint8_t *marks, unsigned nr)
{
	uint8_t before = marks[g->nr]; /* the round in which a statement was marked */
	unsigned found = 0;

	for (uint32_t i = 0; i < g->nr; i++) {
		const struct df_stmt *s = &g->src->stmts[g->first + i];
		const char *at = value_of(s) ?: s->text, *end = s->text + s->bytes, *name;
		size_t bytes;

		if (marks[i] != before)
			continue;
		while ((name = next_name(&at, end, &bytes)))
			for (uint32_t k = 0; k < g->nr && nr + found < MAX_VALUES; k++)
				if (!marks[k] && sets(&g->src->stmts[g->first + k], name, bytes) &&
				    df_source_function(g->src, g->first + k) == g->function) {
					marks[k] = (uint8_t)(before + 1);
					found++;
				}
	}
	marks[g->nr] = (uint8_t)(before + 1);
	return found;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Writes the branches of a region, the most decisive ones first chosen, in the order of lines. */
static unsigned put_branches(struct text *t, const struct region *g, const char *file,
			     uint8_t *marks)
{
	unsigned nr = 0, shown = 0;
	char before[300];

	memset(marks, 0, g->nr + 1);
	for (int how = 2; how; how--)
		for (uint32_t i = 0; i < g->nr && nr < MAX_BRANCHES; i++)
			if (g->reached[i] && separates(g, g->first + i) == how) {
				marks[i] = 1;
				nr++;
			}
	for (uint32_t i = 0; i < g->nr; i++) {
		if (!marks[i])
			continue;
		snprintf(before, sizeof(before), shown ? ", " : "%.250s:", file);
		put_item(t, g->src, g->first + i, before);
		shown++;
	}
	if (!nr)
		return 0;
	marks[g->nr] = 1;
	for (unsigned more = 1, values = 0; more && marks[g->nr] < 4; values += more)
		more = mark_values(g, marks, values);
	shown = 0;
	for (uint32_t i = 0; i < g->nr; i++)
		if (marks[i] > 1)
			put_item(t, g->src, g->first + i, shown++ ? ", " : "; values: ");
	return nr;
}

/*
 * Looks for branches in the function of frame `a`. b: the frame of the other rank, NULL: it has
 * left the function. Returns the number of branches written.
 */
static unsigned search(struct finder *x, const struct frame *a, const struct frame *b,
		       struct text *t)
{
	struct df_source *src = &a->file->src;
	struct region g = {.src = src, .function = a->function};
	uint32_t from[2], *todo;
	unsigned nr_from = 0, nr = 0;
	uint8_t hits = 0;

	g.first = a->function == DF_SOURCE_NONE ? 0 : a->function + 1;
	g.nr = df_source_end(src, a->function) - g.first;
	g.target[0] = a->stmt;
	g.target[1] = b ? b->stmt : g.first + g.nr;
	if (!g.nr || g.target[0] == g.target[1])
		return 0;
	df_source_flow(src, a->function, g.first + g.nr);
	for (int i = 0; i < 2; i++) {
		const struct frame *f = frame_in(&x->alike[i], a);

		if (f)
			from[nr_from++] = f->stmt;
	}
	g.hits = malloc(3 * ((size_t)g.nr + 1));
	todo = malloc(((size_t)g.nr + 2) * sizeof(*todo));
	if (g.hits && todo) {
		g.reached = g.hits + g.nr + 1;
		/* As few assumptions as lead to both calls; at last, from its begin on. */
		for (int more = 0; more < 6 && hits != (HITS_A | HITS_B); more++) {
			g.raises = more & 1;
			g.repeats = more >> 1 == 1;
			if (more >> 1 == 2)
				from[(nr_from = 1) - 1] = g.first;
			find_hits(&g);
			hits = 0;
			for (unsigned i = 0; i < nr_from; i++)
				hits |= g.hits[from[i] - g.first];
		}
		reach(&g, from, nr_from, todo);
		if (hits == (HITS_A | HITS_B))
			nr = put_branches(t, &g, strrchr(a->file->path, '/') + 1,
					  g.reached + g.nr + 1);
	}
	free(g.hits);
	free(todo);
	return nr;
}

/*
 * Looks in the functions of the innermost `nr` frames, which one rank is in and the other one is
 * not; the outermost first.
 */
static unsigned search_inside(struct finder *x, const struct stack *s, unsigned nr, struct text *t)
{
	unsigned found = 0;

	while (nr-- && !found)
		found = s->f[nr].file ? search(x, &s->f[nr], NULL, t) : 0;
	return found;
}

/* Looks in the innermost function that both ranks are in, then in those that it calls. */
static void search_both(struct finder *x, struct text *t)
{
	const struct stack *a = &x->at[0], *b = &x->at[1];

	for (unsigned i = 0; i < a->nr; i++)
		for (unsigned j = 0; j < b->nr; j++) {
			if (!same_function(&a->f[i], &b->f[j]) || !same_caller(a, i, b, j))
				continue;
			if (!search(x, &a->f[i], &b->f[j], t) && a->f[i].stmt != b->f[j].stmt &&
			    !search_inside(x, a, i, t))
				search_inside(x, b, j, t);
			return;
		}
}

/* The rank `gone` has made no further call: looks for what led it out of a function. */
static void search_one(struct finder *x, int gone, struct text *t)
{
	const struct stack *s = &x->at[!gone];

	for (unsigned i = 0; i < s->nr; i++)
		if (s->f[i].file && frame_in(&x->alike[gone], &s->f[i]) &&
		    search(x, &s->f[i], NULL, t))
			return;
}

void df_decided_find(struct df_check_result *r)
{
	struct finder *x = r->divergence ? calloc(1, sizeof(*x)) : NULL;
	struct text t = {.at = 0};
	int gone = -1;

	if (!x)
		return;
	x->r = r;
	for (int i = 0; i < 2; i++) {
		const struct df_trc_comm *e = &r->set->entries[r->part_entry[i]];
		uint32_t site =
			r->div_trace[i] == DF_NONE ? df_say_script_site(r->set, e) : r->div_site[i];

		read_stack(x, &x->at[i], e->trace, site);
		read_stack(x, &x->alike[i], e->trace, r->alike_site[i]);
		if (r->div_trace[i] == DF_NONE && !x->at[i].nr)
			gone = i;
	}
	if (gone < 0)
		search_both(x, &t);
	else
		search_one(x, gone, &t);
	if (t.at) {
		df_text_clean(t.buf, t.at);
		r->decided = df_text("%s", t.buf);
	}
	for (unsigned i = 0; i < x->nr_files; i++)
		df_source_fini(&x->files[i].src);
	free(x);
}
