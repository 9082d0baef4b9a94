/*
 * Collects traces for the judge. Each is read once, through the set's one df_load, and only the
 * data that a verdict can need is kept. No locks; a set belongs to one thread.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "trace/read/load_hosts.h"
#include "trace/record/trace_hash.h"
#include "trace/record/names.h"
#include "trace/read/set.h"
#include "runtime/base/clean_text.h"
#include "runtime/base/err.h"
#include "runtime/base/vec.h"

struct df_check_set *df_check_set_new(void)
{
	struct df_check_set *set = calloc(1, sizeof(*set));

	if (set) {
		df_load_init(&set->load);
		set->refs = 1;
	}
	return set;
}

static void trc_fini(struct df_trc *t)
{
	free(t->name);
	free(t->path);
	free(t->image);
	free(t->threads);
	free(t->calls);
	free(t->hosts);
	free(t->streams);
	free(t->items);
	free(t->notes);
	free(t->proxies);
	df_map_fini(&t->seen);
}

void df_check_set_free(struct df_check_set *set)
{
	if (!set || --set->refs)
		return;
	for (size_t i = 0; i < set->nr_traces; i++)
		trc_fini(&set->traces[i]);
	for (size_t i = 0; i < set->nr_gcomms; i++) {
		free(set->gcomms[i].rows);
		df_map_fini(&set->gcomms[i].rows_at);
		free(set->gcomms[i].members);
		free(set->gcomms[i].kin);
	}
	free(set->traces);
	free(set->ops);
	free(set->entries);
	free(set->sorted);
	free(set->gcomms);
	df_map_fini(&set->gcomms_at);
	free(set->dead);
	free(set->silent);
	free(set->links);
	free(set->left.rows);
	df_load_fini(&set->load);
	df_stacks_fini(&set->stacks);
	free(set);
}

const char *df_check_error(const struct df_check_set *set)
{
	return set->error;
}

/* Stores the unreadable file and the reason, for df_check_error(). */
static void refuse(struct df_check_set *set, const char *name, const char *why)
{
	snprintf(set->error, sizeof(set->error), "%s: %s", name, why);
	df_text_clean(set->error, strlen(set->error));
}

/* By id, because a reduced trace may lack a thread's first records. */
static int by_tid(const void *pa, const void *pb)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	return a < b ? -1 : a > b;
}

static int thread_by_tid(const void *pa, const void *pb)
{
	return by_tid(&((const struct df_lthread *)pa)->tid, &((const struct df_lthread *)pb)->tid);
}

/* ---- loading one trace ---------------------------------------------------------------------- */

/*
 * Finds the number of collectives, and whether an operation's index is its place among them.
 * Without messages in between, the indices equal the process's own count (load_indices.c).
 */
static void count_collectives(struct df_trc_comm *e, const struct df_trace_comm *c,
			      const struct df_lcomm *seen)
{
	e->nr_coll = df_load_nr_coll(c);
	if (seen && !c->issued)
		e->nr_coll = seen->nr_coll;
	e->has_places =
		e->nr_coll == c->issued || !seen || seen->nr_coll + seen->nr_p2p >= c->issued;
}

static int add_entries(struct df_check_set *set, struct df_trc *t, uint32_t trace,
		       const struct df_reader *r)
{
	const struct df_load *l = &set->load;

	t->first_entry = (uint32_t)set->nr_entries;
	for (uint32_t i = 1; i <= r->nr_comms; i++) {
		const struct df_trace_comm *c = df_reader_comm(r, i);
		struct df_trc_comm *e =
			DF_VEC_PUSH(set->entries, set->nr_entries, set->cap_entries);

		if (!e)
			return -ENOMEM;
		memset(e, 0, sizeof(*e));
		e->trace = trace;
		e->local = i;
		e->gcomm = DF_NONE;
		e->rank = -1;
		e->destroyed_rec = e->failed_rec = DF_NO_REC;
		t->nr_entries++;
		if (!c)
			continue;
		e->gcomm = df_set_gcomm(set, c);
		if (e->gcomm == DF_NONE)
			return -ENOMEM;
		e->rank = c->rank;
		e->device = c->device;
		count_collectives(e, c, i <= l->nr_comms ? &l->comms[i - 1] : NULL);
		if (i <= l->nr_comms) {
			e->nr_threads = l->comms[i - 1].nr_threads;
			e->more_threads = l->comms[i - 1].more_threads;
			memcpy(e->threads, l->comms[i - 1].threads, sizeof(e->threads));
			for (uint32_t k = 0; k < e->nr_threads; k++)
				if (l->comms[i - 1].issued >> k & 1)
					e->issuers[e->nr_issuers++] = e->threads[k];
			qsort(e->threads, e->nr_threads, sizeof(*e->threads), by_tid);
			e->last_ns = l->comms[i - 1].last_ns;
		}
	}
	return 0;
}

static int keep_op(struct df_check_set *set, struct df_trc *t, uint32_t trace, size_t i)
{
	struct df_lop *op = &set->load.ops[i];
	struct df_trc_comm *e = &set->entries[t->first_entry + op->comm - 1];
	int nccl = df_trc_places(t), p2p = op->kind == DF_KIND_SEND || op->kind == DF_KIND_RECV, rc;
	struct df_uop *u;

	t->nr_ops++;
	set->nr_issued++;
	if (op->state >= DF_OP_FINISHED) {
		set->nr_finished++;
		t->nr_finished++;
	}
	if (e->gcomm == DF_NONE)
		return 0;
	e->used = 1;
	e->last.index = op->index;
	e->last.rec = op->rec;
	e->last.peer = op->peer;
	e->last.kind = op->kind;
	if (!p2p && op->state < DF_OP_FINISHED)
		e->has_unfinished = 1;
	else if (!p2p && !e->has_unfinished)
		e->finished = *op;
	if (!p2p && nccl) {
		if (op->index >= e->next_coll)
			e->next_coll = op->index + 1;
		rc = df_set_compare(set, e->gcomm, op);
	} else {
		rc = df_trc_saw(t, df_seen_key(op->comm, op, nccl),
				(!nccl && op->has_match ? op->inst : op->index) + 1);
	}
	if (rc || op->state >= DF_OP_FINISHED)
		return rc;
	u = DF_VEC_PUSH(set->ops, set->nr_ops, set->cap_ops);
	if (!u)
		return -ENOMEM;
	memset(u, 0, sizeof(*u));
	u->l = *op;
	u->trace = trace;
	u->gcomm = e->gcomm;
	u->entry = t->first_entry + op->comm - 1;
	u->bytes = op->count * df_dtype_bytes(op->type);
	u->sig = df_op_signature(op);
	u->next = u->start = u->done = DF_NONE;
	return 0;
}

/* Keeps the last record of each link that is broken or held; forgets a restored link. */
static int keep_link(struct df_check_set *set, uint32_t trace, const struct df_lnote *n,
		     const struct df_reader *r)
{
	const struct df_rec *rec = &n->rec;
	unsigned what = rec->op & 0xff;
	struct df_broken_link *k = NULL;
	struct df_broken_link is = {
		.host_hash = rec->a,
		.time_ns = rec->time_ns,
		.rec = n->index,
		.pid = (uint32_t)rec->b,
		.trace = trace,
		.device = (uint32_t)(rec->b >> 32) & 0xffff,
		.local = rec->device,
		.gone = what == 2 || what == 5,
		.held = what == 3 || what == 4,
		.unmapped = what == 5,
		.error = (int)(rec->op >> 8 & 0xffff),
		.ms = (uint32_t)(rec->op >> 32),
		.attempts = (uint32_t)(rec->b >> 48),
	};
	uint32_t bytes;
	const char *text = df_reader_string(r, rec->c, &bytes);

	if (text)
		snprintf(is.text, sizeof(is.text), "%.*s", (int)(bytes > 255 ? 255 : bytes), text);
	for (size_t i = 0; i < set->nr_links && !k; i++) {
		struct df_broken_link *l = &set->links[i];

		if (l->trace == trace && l->pid == is.pid && l->local == is.local &&
		    l->host_hash == is.host_hash && l->device == is.device && l->held == is.held)
			k = l;
	}
	if (what == 1 || what == 4) {
		if (k)
			*k = set->links[--set->nr_links];
		return 0;
	}
	if (!k)
		k = DF_VEC_PUSH(set->links, set->nr_links, set->cap_links);
	if (!k)
		return -ENOMEM;
	*k = is;
	return 0;
}

/* Keeps the records of the last batch whose operations have not ended. */
static int keep_proxy(const struct df_load *l, struct df_trc *t, const struct df_lnote *n)
{
	const struct df_rec *rec = &n->rec;
	const struct df_lop *op = df_load_op(l, rec->op);
	uint32_t batch = (uint32_t)(rec->a >> 32);
	struct df_stalled_proxy *p;
	struct df_stalled_proxy is = {
		.op = rec->op,
		.moved_ns = rec->time_ns - (rec->c >> 32) * 1000000,
		.rec = n->index,
		.comm = rec->comm,
		.peer = (int32_t)(uint32_t)rec->b,
		.step = (uint32_t)(rec->b >> 32),
		.steps = (uint32_t)rec->c,
		.channel = (uint16_t)(rec->a >> 16),
		.at = (uint8_t)rec->a,
		.is_send = rec->a >> 8 & 1,
	};

	if (batch != t->proxy_batch)
		t->nr_proxies = 0;
	t->proxy_batch = batch;
	if (!op || op->state >= DF_OP_FINISHED || op->comm != rec->comm)
		return 0;
	p = DF_VEC_PUSH(t->proxies, t->nr_proxies, t->cap_proxies);
	if (!p)
		return -ENOMEM;
	*p = is;
	return 0;
}

static int keep_note(struct df_check_set *set, struct df_trc *t, uint32_t trace,
		     const struct df_lnote *n, const struct df_reader *r)
{
	const struct df_rec *rec = &n->rec;
	struct df_trc_comm *e = NULL;
	struct df_lnote *kept;
	struct df_lop *op, intent;

	if (rec->comm && rec->comm <= t->nr_entries)
		e = &set->entries[t->first_entry + rec->comm - 1];
	switch (rec->type) {
	case DF_REC_OP_DEP:
	case DF_REC_OP_BEHIND:
		op = df_load_op(&set->load, rec->op);
		if (!op || op->state >= DF_OP_FINISHED)
			return 0;
		break;
	case DF_REC_COMM_DESTROY:
	case DF_REC_COMM_ABORT:
		/*
		 * If the time-out or the end of a peer ended the communicator, this rank has not
		 * left it.
		 */
		if (e && (rec->type == DF_REC_COMM_DESTROY || (rec->a != 1 && rec->a != 2)))
			e->destroyed_rec = n->index;
		return 0;
	case DF_REC_OP_FAILED:
		if (e)
			e->failed_rec = n->index;
		break;
	case DF_REC_COMM_MEMBER: {
		struct df_trc_member m = {rec->a, (uint32_t)rec->b, (int32_t)rec->c};

		return e && e->gcomm != DF_NONE ? df_set_put_member(set, e->gcomm, rec->op, &m) : 0;
	}
	case DF_REC_PEER_DEAD: {
		struct df_dead *d = DF_VEC_PUSH(set->dead, set->nr_dead, set->cap_dead);

		if (!d)
			return -ENOMEM;
		*d = (struct df_dead){
			.comm_hash = e && e->gcomm != DF_NONE ? set->gcomms[e->gcomm].hash : 0,
			.host_hash = rec->a,
			.time_ns = rec->time_ns,
			.rec = n->index,
			.pid = (uint32_t)rec->b,
			.trace = trace,
			.rank = (int32_t)rec->op,
			.in_order = (int64_t)rec->c > 0 ? (int)DF_MIN(rec->c, 256) : 0,
			.signal = (int64_t)rec->c < 0 ? (int)DF_MIN(0 - rec->c, 256) : 0,
			.late = t->stall_ms && set->load.cut_rec == n->index,
		};
		return 0;
	}
	case DF_REC_NET:
		return keep_link(set, trace, n, r);
	case DF_REC_PROXY:
		return keep_proxy(&set->load, t, n);
	case DF_REC_STALL:
		t->stall_ms = rec->a;
		t->stall_ns = rec->time_ns;
		return 0;
	case DF_REC_OP_INTENT:
		if (!df_load_intent(&set->load, n, &intent))
			return 0;
		break;
	case DF_REC_COMM_INIT:
	case DF_REC_SITE:
	case DF_REC_HARDWARE:
	case DF_REC_LAUNCH:
		break;
	default:
		return 0;
	}
	kept = DF_VEC_PUSH(t->notes, t->nr_notes, t->cap_notes);
	if (!kept)
		return -ENOMEM;
	*kept = *n;
	return 0;
}

static void *copy_of(const void *p, size_t bytes)
{
	void *q = malloc(bytes ? bytes : 1);

	if (q && bytes)
		memcpy(q, p, bytes);
	return q;
}

static int keep_items(struct df_check_set *set, struct df_trc *t)
{
	struct df_load *l = &set->load;
	size_t first = 0, nr = 0;

	while (first < l->nr_items && (l->items[first].type != DF_ITEM_OP ||
				       l->ops[l->items[first].a].state >= DF_OP_FINISHED))
		first++;
	t->items = malloc((l->nr_items - first + 1) * sizeof(*t->items));
	if (!t->items)
		return -ENOMEM;
	/*
	 * Keep the last work before the first unfinished operation: it may occupy a stream that
	 * makes no progress.
	 */
	t->before.type = DF_ITEM_OP;
	for (size_t i = first; i-- > 0 && first < l->nr_items;) {
		if (l->items[i].type == DF_ITEM_WORK) {
			t->before = l->items[i];
			break;
		}
	}
	for (size_t i = first; i < l->nr_items; i++) {
		struct df_litem it = l->items[i];

		if (it.type == DF_ITEM_OP) {
			if (l->ops[it.a].state >= DF_OP_FINISHED || !l->ops[it.a].done_ns)
				continue;
			it.a = l->ops[it.a].done_ns - 1;
		}
		t->items[nr++] = it;
	}
	t->nr_items = nr;
	return 0;
}

/*
 * Counts unfinished operations whose records the ring has lost: the communicator's exact counters
 * minus the operations in the trace. Without records of ends the number is unknown and stays 0.
 */
static void find_lost(struct df_check_set *set, const struct df_trc *t, const struct df_reader *r)
{
	const struct df_load *l = &set->load;

	for (uint32_t i = 0; i < t->nr_entries; i++) {
		struct df_trc_comm *e = &set->entries[t->first_entry + i];
		const struct df_trace_comm *c = df_reader_comm(r, i + 1);
		uint64_t open = c && c->drops && c->issued > c->done ? c->issued - c->done : 0;

		for (size_t k = 0; open && k < l->nr_ops; k++) {
			if (l->ops[k].comm != i + 1)
				continue;
			if (df_lop_blind(&l->ops[k]))
				open = 0;
			else if (l->ops[k].state < DF_OP_FINISHED)
				open--;
		}
		e->lost_open = open;
		e->drops = c ? c->drops : 0;
	}
}

/* Counts the data that the trace had and lost, by its own counters. */
static void count_lost(struct df_check_set *set, struct df_trc *t, const struct df_reader *r)
{
	uint64_t last = r->h.next < r->h.nr_recs ? r->h.next : r->h.nr_recs;

	t->is_short = r->bytes < r->h.off_recs + last * sizeof(struct df_rec);
	for (uint32_t i = 0; i < t->nr_entries; i++) {
		const struct df_trace_comm *c = df_reader_comm(r, i + 1);
		uint64_t nr_coll = 0;

		t->nr_lost += set->entries[t->first_entry + i].lost_open;
		for (size_t k = 0; c && k < sizeof(c->kinds) / sizeof(*c->kinds); k++)
			nr_coll += c->kinds[k];
		/*
		 * If messages are among the lost operations, it is uncertain which collectives
		 * meet.
		 */
		if (c && i < set->load.nr_comms && df_load_lost_ops(&set->load, r, i + 1) &&
		    nr_coll < c->issued)
			t->is_guess = 1;
	}
}

static int digest(struct df_check_set *set, struct df_trc *t, uint32_t trace, struct df_reader *r)
{
	struct df_load *l = &set->load;
	int rc = df_load_trace(l, r);
	size_t nr;

	if (rc)
		return rc;
	t->h = l->h;
	t->h.closed = DF_MIN(l->h.closed, 256);
	t->began_ns = l->began_ns;
	t->first_ns = l->first_ns;
	t->last_ns = l->last_ns;
	t->last_progress_ns = l->last_progress_ns;
	t->nr_recs = l->nr_recs;
	t->nr_torn = l->nr_torn;
	t->fate = l->h.closed && l->cut_rec == DF_NO_REC ? DF_EXITED : DF_ALIVE;
	t->cut = l->cut_rec != DF_NO_REC;
	t->cut_ns = l->cut_ns;
	t->until_ns = l->until_ns;
	set->nr_recs += l->nr_recs;
	set->nr_torn += l->nr_torn;
	rc = add_entries(set, t, trace, r);
	t->first_op = set->nr_ops;
	for (size_t i = 0; !rc && i < l->nr_ops; i++) {
		uint64_t mark = set->nr_ops;

		if (l->ops[i].comm > t->nr_entries)
			continue;
		/*
		 * From here on, done_ns of an unfinished operation is the index of the kept copy
		 * plus one.
		 */
		l->ops[i].done_ns = 0;
		rc = keep_op(set, t, trace, i);
		l->ops[i].done_ns = set->nr_ops > mark ? set->nr_ops : 0;
	}
	t->nr_uops = set->nr_ops - t->first_op;
	find_lost(set, t, r);
	count_lost(set, t, r);
	for (size_t i = 0; !rc && i < l->nr_notes; i++)
		rc = keep_note(set, t, trace, &l->notes[i], r);
	if (!rc)
		rc = keep_items(set, t);
	if (rc)
		return rc;
	t->threads = copy_of(l->threads, l->nr_threads * sizeof(*l->threads));
	t->nr_threads = l->nr_threads;
	if (t->threads)
		qsort(t->threads, t->nr_threads, sizeof(*t->threads), thread_by_tid);
	t->streams = copy_of(l->streams, l->nr_streams * sizeof(*l->streams));
	t->nr_streams = l->nr_streams;
	nr = l->nr_threads * DF_POLLS_MAX;
	for (size_t i = 0; i < l->nr_calls; i++)
		nr += l->calls[i].open;
	t->calls = malloc((nr + 1) * sizeof(*t->calls));
	if (!t->threads || !t->streams || !t->calls)
		return -ENOMEM;
	for (size_t i = 0; i < l->nr_calls; i++)
		if (l->calls[i].open)
			t->calls[t->nr_calls++] = l->calls[i];
	df_trc_keep_outside(t);
	return 0;
}

static int add(struct df_check_set *set, struct df_reader *r, const char *name, const char *path,
	       void *image, size_t bytes)
{
	struct df_trc *t = NULL;
	int rc;

	if (!set->sealed)
		t = DF_VEC_PUSH(set->traces, set->nr_traces, set->cap_traces);
	if (!t) {
		free(image);
		return set->sealed ? -EINVAL : -ENOMEM;
	}
	memset(t, 0, sizeof(*t));
	t->name = strdup(name ? name : "trace");
	if (t->name)
		df_text_clean(t->name, strlen(t->name));
	t->path = path ? strdup(path) : NULL;
	t->image = image;
	t->image_bytes = bytes;
	if (!t->name || (path && !t->path))
		return -ENOMEM;
	rc = digest(set, t, (uint32_t)set->nr_traces - 1, r);
	if (rc)
		refuse(set, t->name, strerror(-rc));
	return rc;
}

int df_set_take_image(struct df_check_set *set, void *image, size_t bytes, const char *name)
{
	const char *why = "";
	struct df_reader r;
	int rc;

	if (!image)
		return -ENOMEM;
	rc = df_reader_open_image(&r, image, bytes, &why);
	if (rc) {
		refuse(set, name ? name : "image", why);
		free(image);
		return rc;
	}
	rc = add(set, &r, name, NULL, image, bytes);
	df_reader_close(&r);
	return rc;
}

int df_check_add_image(struct df_check_set *set, const void *image, size_t bytes, const char *name)
{
	return df_set_take_image(set, copy_of(image, bytes), bytes, name);
}

void df_check_add_progress(struct df_check_set *set, uint64_t progress)
{
	if (set->nr_traces)
		set->traces[set->nr_traces - 1].progress = progress;
}

int df_check_add_file(struct df_check_set *set, const char *path)
{
	const char *why = "", *slash = strrchr(path, '/');
	struct df_reader r;
	int rc = df_reader_open(&r, path, &why);

	if (rc) {
		refuse(set, path, why);
		return rc;
	}
	rc = add(set, &r, slash ? slash + 1 : path, path, NULL, 0);
	df_reader_close(&r);
	return rc;
}

int df_set_open(const struct df_trc *t, struct df_reader *r)
{
	return t->image ? df_reader_open_image(r, t->image, t->image_bytes, NULL)
			: df_reader_open(r, t->path, NULL);
}

int df_set_until(struct df_check_set *set, uint64_t at_ns)
{
	struct df_check_set *again = df_check_set_new(), old;
	int rc = again ? 0 : -ENOMEM;

	for (size_t i = 0; !rc && i < set->nr_traces; i++) {
		const struct df_trc *t = &set->traces[i];

		again->load.until_ns = at_ns - (uint64_t)t->skew_ns;
		rc = t->image ? df_check_add_image(again, t->image, t->image_bytes, t->name)
			      : df_check_add_file(again, t->path);
	}
	if (!rc) {
		again->load.until_ns = 0;
		again->refs = set->refs;
		again->proof = set->proof;
		again->polls_are_free = set->polls_are_free;
		memcpy(again->error, set->error, sizeof(again->error));
		old = *set;
		*set = *again;
		*again = old;
		again->refs = 1;
	}
	df_check_set_free(again);
	/* Other errors: a file was removed since it was first read. The set is unchanged. */
	return rc == -ENOMEM ? rc : 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int is_trace(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > 4 && !strcmp(d->d_name + n - 4, ".dft");
}

static int is_other(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

/* Returns the number of added traces. *bad: the error of the last unreadable one. */
static int add_dir(struct df_check_set *set, const char *dir, int depth, int *bad)
{
	struct dirent **list;
	struct stat st;
	char path[PATH_MAX];
	int n, rc, found = 0;

	n = scandir(dir, &list, depth ? is_other : is_trace, by_name);
	if (n < 0) {
		*bad = -errno;
		refuse(set, dir, strerror(-*bad));
		return 0;
	}
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
		if (!stat(path, &st) && S_ISDIR(st.st_mode) && depth) {
			found += add_dir(set, path, depth - 1, bad);
		} else if (!stat(path, &st) && S_ISREG(st.st_mode) && is_trace(list[i])) {
			rc = df_check_add_file(set, path);
			found += !rc;
			*bad = rc ? rc : *bad;
		}
		free(list[i]);
	}
	free(list);
	return found;
}

int df_check_add_dir(struct df_check_set *set, const char *dir)
{
	int bad = 0, found = add_dir(set, dir, 3, &bad);

	if (found)
		return 0;
	if (!bad)
		refuse(set, dir, "no trace files (*.dft) in it");
	return bad ? bad : -ENOENT;
}

struct df_uop *df_trc_op(const struct df_check_set *set, const struct df_trc *t, uint64_t serial)
{
	struct df_uop *ops = set->ops + t->first_op;
	size_t lo = 0, hi = t->nr_uops;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (ops[mid].l.serial < serial)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < t->nr_uops && ops[lo].l.serial == serial)
		return &ops[lo];
	/*
	 * Serials ascend, except for threads that raced between taking a serial and recording it.
	 */
	for (size_t i = lo > 64 ? lo - 64 : 0; i < t->nr_uops && i < lo + 64; i++)
		if (ops[i].l.serial == serial)
			return &ops[i];
	return NULL;
}

uint64_t df_trc_number(const struct df_trc *t, uint64_t rec)
{
	uint64_t at = t->h.off_numbers, number;

	if (!at || !t->image || rec >= t->h.next || at > t->image_bytes ||
	    rec >= (t->image_bytes - at) / sizeof(number))
		return rec;
	memcpy(&number, (const char *)t->image + at + rec * sizeof(number), sizeof(number));
	return number;
}
