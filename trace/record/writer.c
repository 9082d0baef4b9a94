/*
 * Writes the trace: one ring per process, in a mapped file or in anonymous memory.
 *
 * Invariants: a slot is written by at most one thread at a time, and a record with the right commit
 * word is complete. To write a slot of a later lap, a thread claims it by exchanging the old commit
 * word for 0. If the slot still has 0, because its writer of the previous lap was interrupted, the
 * new record is not written but counted as lost, since this code must never wait. The mapping is
 * never removed, so a slow thread may still write after df_trace_close().
 *
 * Any thread, at any time. No locks in df_trace(); open and close take `open_lock`.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/exit_status.h"
#include "runtime/base/file_size.h"
#include "trace/record/clock.h"
#include "trace/record/names.h"
#include "trace/record/trace_hash.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define NR_COMMS 8192u
/* a limit, because an operation has 24 bits for a string's number */
#define STRING_BYTES (512u << 10)

static _Atomic(struct df_trace_header *) ring;
static _Atomic(uint64_t) serials;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ring_bytes;
static char ring_path[PATH_MAX];
static _Thread_local uint32_t my_tid;

#define NR_TIDS 256
static _Atomic(uint32_t)
	tids[NR_TIDS]; /* threads of the application that have recorded something */
/* by the same index: the word that df_trace_thread_ends_at() compares */
static _Atomic(uint64_t) tid_words[NR_TIDS];

/* Counts of a communicator that its entry in the file does not have. */
static struct more {
	uint64_t bytes[DF_KIND_NR];
	uint64_t rest[DF_KIND_NR]; /* operations of the kinds for which the entry has no place */
} more[NR_COMMS];

#define AHEAD 16 /* number of records to prefetch, a cache line each: several operations */

static inline uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline struct df_trace_header *ring_get(void)
{
	/*
	 * Acquire pairs with the release in publish(): without it a thread could see the pointer
	 * while the geometry is still zero, and write to a wrong place.
	 */
	return atomic_load_explicit(&ring, memory_order_acquire);
}

/* Accesses words of mapped structures as atomics, because a reader may read them at any time. */
#define WORD(p)	      ((_Atomic(__typeof__(*(p))) *)(p))
#define PUT(p, v)     atomic_store_explicit(WORD(p), (v), memory_order_relaxed)
#define GET(p)	      atomic_load_explicit(WORD(p), memory_order_relaxed)
#define ADD(p, v)     atomic_fetch_add_explicit(WORD(p), (v), memory_order_relaxed)
#define PUT_REL(p, v) atomic_store_explicit(WORD(p), (v), memory_order_release)

/*
 * Copies text into a table in whole words. `to` has room for `bytes` rounded up to 8; the rest of
 * the last word becomes 0.
 */
static void put_text(void *to, const char *text, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at += 8) {
		uint64_t word = 0;

		memcpy(&word, text + at, bytes - at < 8 ? bytes - at : 8);
		PUT((uint64_t *)((char *)to + at), word);
	}
}

static inline struct df_trace_comm *comm_at(struct df_trace_header *h, uint32_t comm)
{
	return (struct df_trace_comm *)((char *)h + h->off_comms) + (comm - 1);
}

/* Counts the record that is about to be overwritten in the entry of its communicator. */
static void count_drop(struct df_trace_header *h, struct df_rec *old)
{
	uint32_t comm = GET(&old->comm);
	uint16_t type = GET(&old->type);
	struct df_rec_rest *rest = (struct df_rec_rest *)old;
	struct df_trace_comm *c;

	if (!comm || comm > h->nr_comms)
		return;
	c = comm_at(h, comm);
	ADD(&c->drops, 1);
	if (type == DF_REC_OP_MATCH || (type == DF_REC_OP_REST && GET(&rest->matched))) {
		uint64_t index = type == DF_REC_OP_REST ? GET(&rest->index) : GET(&old->c),
			 seen = GET(&c->last_dropped);

		while (index > seen && !atomic_compare_exchange_weak_explicit(
					       WORD(&c->last_dropped), &seen, index,
					       memory_order_relaxed, memory_order_relaxed))
			;
	}
}

static uint32_t thread_enter(struct df_trace_header *h);

/*
 * The time of all records of this thread between df_trace_hold_time() and df_trace_let_time(); else
 * 0.
 */
static __thread uint64_t held_ns __attribute__((tls_model("initial-exec")));

void df_trace_hold_time(void)
{
	held_ns = df_trace_clock();
}

void df_trace_let_time(void)
{
	held_ns = 0;
}

static inline uint64_t now_ns(void)
{
	return held_ns ? held_ns : df_trace_clock();
}

uint64_t df_trace_time(void)
{
	return now_ns();
}

static inline struct df_rec *slot_of(struct df_trace_header *h, uint64_t index)
{
	return (struct df_rec *)((char *)h + h->off_recs) + (index & (h->nr_recs - 1));
}

/*
 * Claims the slot for this thread. Stores its previous commit word in *old, to undo the claim.
 * Returns 0 if the slot cannot be claimed.
 */
static inline int claim(struct df_trace_header *h, uint64_t index, uint32_t *old)
{
	struct df_rec *r = slot_of(h, index);

	if (index < h->nr_recs)
		return 1;
	*old = GET(&r->commit);
	/*
	 * Acquire pairs with the release store of the commit word in fill(), by the thread that
	 * used this slot in the previous lap. Without it, one record could mix fields of both
	 * threads, and its commit word would say that it is complete. Release orders nothing here.
	 */
	return *old && (int32_t)(*old - (uint32_t)(index + 1)) <= 0 &&
	       atomic_compare_exchange_strong_explicit(WORD(&r->commit), old, 0,
						       memory_order_acq_rel, memory_order_relaxed);
}

static inline void fill(struct df_trace_header *h, uint64_t index, const struct df_rec *v)
{
	struct df_rec *r = slot_of(h, index);

	/*
	 * Prefetch, because the ring exceeds the cache, and a memory access takes longer than
	 * writing a record.
	 */
	__builtin_prefetch(slot_of(h, index + AHEAD), 1);
	if (index >= h->nr_recs)
		count_drop(h, r);
	/*
	 * Release of each field pairs with the acquire loads in the copy that compact.c takes:
	 * without it a reader could see a new field, and afterwards still the old commit word.
	 */
	PUT_REL(&r->time_ns, v->time_ns);
	PUT_REL(&r->type, v->type);
	PUT_REL(&r->device, v->device);
	PUT_REL(&r->thread, v->thread);
	PUT_REL(&r->comm, v->comm);
	PUT_REL(&r->rank, v->rank);
	/*
	 * Release of each field pairs with compact.c's acquire, like the ones above: without it a
	 * mixed record could look complete.
	 */
	PUT_REL(&r->op, v->op);
	PUT_REL(&r->a, v->a);
	PUT_REL(&r->b, v->b);
	PUT_REL(&r->c, v->c);
	PUT_REL(&r->site, v->site);
	/*
	 * Release pairs with the reader's acquire of the commit word: without it a process killed
	 * here could leave a record that looks complete, with fields of the previous lap.
	 */
	PUT_REL(&r->commit, (uint32_t)(index + 1));
}

static inline void append(struct df_trace_header *h, const struct df_rec *v)
{
	uint64_t index = ADD(&h->next, 1);
	uint32_t old;

	if (claim(h, index, &old))
		fill(h, index, v);
	else
		ADD(&h->lost, 1);
}

/*
 * Appends both records or none. Writes the second one first, so a reader that sees the first one
 * also sees the second.
 */
static void append_two(struct df_trace_header *h, const struct df_rec *first,
		       const struct df_rec *second)
{
	uint64_t index = ADD(&h->next, 2);
	uint32_t old, other;

	if (!claim(h, index, &old)) {
		ADD(&h->lost, 2);
		return;
	}
	if (!claim(h, index + 1, &other)) {
		ADD(&h->lost, 2);
		/*
		 * Undoes the claim. Only a slot of a later lap needs this: no thread could claim it
		 * again otherwise. Release pairs with the acquire of the thread that claims the
		 * slot next.
		 */
		if (index >= h->nr_recs)
			PUT_REL(&slot_of(h, index)->commit, old);
		return;
	}
	fill(h, index + 1, second);
	fill(h, index, first);
}

/*
 * Returns the address of the word that the kernel clears when this thread ends, or 0 if it is
 * unknown.
 */
static uint64_t tid_word(void)
{
	int *word = NULL;

	return prctl(PR_GET_TID_ADDRESS, &word) ? 0 : (uint64_t)(uintptr_t)word;
}

/*
 * Called at a thread's first record: gets the thread's id, and appends a THREAD record with its
 * name.
 */
static uint32_t thread_enter(struct df_trace_header *h)
{
	uint64_t name[2] = {0, 0};
	int saved = errno;

	my_tid = (uint32_t)syscall(SYS_gettid);
	prctl(PR_GET_NAME, name);
	errno = saved;
	for (int i = 0;
	     i < NR_TIDS && strncmp((const char *)name, DF_OUR_THREADS, strlen(DF_OUR_THREADS));
	     i++) {
		uint32_t none = 0;

		if (atomic_compare_exchange_strong_explicit(
			    &tids[i], &none, my_tid, memory_order_relaxed, memory_order_relaxed)) {
			atomic_store_explicit(&tid_words[i], tid_word(), memory_order_relaxed);
			break;
		}
	}
	append(h, &(struct df_rec){.time_ns = now_ns(),
				   .type = DF_REC_THREAD,
				   .device = 0xffff,
				   .thread = my_tid,
				   .rank = -1,
				   .a = my_tid,
				   .b = name[0],
				   .c = name[1]});
	return my_tid;
}

static inline uint32_t tid_of_me(struct df_trace_header *h)
{
	return my_tid ? my_tid : thread_enter(h);
}

void df_trace_enter(void)
{
	struct df_trace_header *h = ring_get();

	if (h)
		tid_of_me(h);
}

void df_trace(enum df_rec_type type, int device, uint32_t comm, int rank, uint64_t op, uint64_t a,
	      uint64_t b, uint64_t c, uint32_t site)
{
	struct df_trace_header *h = ring_get();

	if (!h)
		return;
	append(h, &(struct df_rec){.time_ns = now_ns(),
				   .type = (uint16_t)type,
				   .device = (uint16_t)device,
				   .thread = tid_of_me(h),
				   .comm = comm,
				   .rank = rank,
				   .op = op,
				   .a = a,
				   .b = b,
				   .c = c,
				   .site = site});
}

static void count_issued(struct df_trace_header *h, const struct df_trace_op *o)
{
	struct df_trace_comm *c = o->comm && o->comm <= h->nr_comms ? comm_at(h, o->comm) : NULL;

	if (!c)
		return;
	ADD(&c->issued, 1);
	if (o->kind < sizeof(c->kinds) / sizeof(c->kinds[0]))
		ADD(&c->kinds[o->kind], 1);
	else if (o->kind < DF_KIND_NR)
		ADD(&more[o->comm - 1].rest[o->kind], 1);
	if (o->kind < DF_KIND_NR)
		ADD(&more[o->comm - 1].bytes[o->kind], o->count * df_dtype_bytes(o->type));
}

int df_trace_comm_count(uint32_t comm, uint32_t kind, struct df_trace_count *out)
{
	struct df_trace_header *h = ring_get();
	struct df_trace_comm *c = h && comm && comm <= h->nr_comms ? comm_at(h, comm) : NULL;

	/*
	 * Acquire pairs with the release of `used` in df_trace_comm(): without it the name could be
	 * incomplete.
	 */
	if (!c || kind >= DF_KIND_NR || !atomic_load_explicit(WORD(&c->used), memory_order_acquire))
		return 0;
	out->name = c->name;
	out->issued = kind < sizeof(c->kinds) / sizeof(c->kinds[0])
			      ? GET(&c->kinds[kind])
			      : GET(&more[comm - 1].rest[kind]);
	out->bytes = GET(&more[comm - 1].bytes[kind]);
	out->done = GET(&c->done);
	return 1;
}

void df_trace_op(const struct df_trace_op *o)
{
	struct df_trace_header *h = ring_get();
	uint64_t back = o->after ? o->op - o->after : 0;
	struct df_rec first;
	union {
		struct df_rec_rest rest;
		struct df_rec rec;
	} second;

	if (!h)
		return;
	first = (struct df_rec){
		.time_ns = now_ns(),
		.type = DF_REC_OP_ISSUE,
		.device = (uint16_t)o->device,
		.thread = tid_of_me(h),
		.comm = o->comm,
		.rank = o->rank,
		.op = o->op,
		.a = o->kind | (uint64_t)o->type << 8 | (uint64_t)o->redop << 16 |
		     (uint64_t)o->flags << 24 | (uint64_t)o->proto << 32 |
		     (uint64_t)o->program << 40,
		.b = o->count,
		.c = o->stream,
		.site = o->site,
	};
	second.rest = (struct df_rec_rest){
		.send = (uintptr_t)o->send,
		.type = DF_REC_OP_REST,
		.matched = o->matched,
		.group = o->group,
		.comm = o->comm,
		.peer = o->peer,
		.recv = (uintptr_t)o->recv,
		.sig = o->sig,
		.inst = o->inst,
		.index = o->index,
		.back = back <= UINT32_MAX ? (uint32_t)back : 0,
	};
	append_two(h, &first, &second.rec);
	count_issued(h, o);
	if (back > UINT32_MAX)
		df_trace(DF_REC_OP_DEP, o->device, o->comm, o->rank, o->op, o->after, 0, 0, 0);
}

size_t df_trace_threads(uint32_t *out, size_t max)
{
	size_t nr = 0;

	for (int i = 0; i < NR_TIDS && nr < max; i++) {
		out[nr] = atomic_load_explicit(&tids[i], memory_order_relaxed);
		nr += out[nr] != 0;
	}
	return nr;
}

int df_trace_thread_ends_at(uint32_t tid, uint64_t word)
{
	for (int i = 0; i < NR_TIDS; i++)
		if (atomic_load_explicit(&tids[i], memory_order_relaxed) == tid &&
		    atomic_load_explicit(&tid_words[i], memory_order_relaxed) == word)
			return 1;
	return 0;
}

void df_trace_thread_gone(uint32_t tid)
{
	for (int i = 0; i < NR_TIDS; i++) {
		uint32_t it = tid;

		if (atomic_load_explicit(&tids[i], memory_order_relaxed) == tid)
			atomic_store_explicit(&tid_words[i], 0, memory_order_relaxed);
		if (atomic_compare_exchange_strong_explicit(&tids[i], &it, 0, memory_order_relaxed,
							    memory_order_relaxed))
			return;
	}
}

uint64_t df_trace_serial(void)
{
	return atomic_fetch_add_explicit(&serials, 1, memory_order_relaxed) + 1;
}

uint32_t df_trace_comm(uint64_t hash, int nranks, int rank, int device, uint64_t parent,
		       const char *name)
{
	struct df_trace_header *h = ring_get();
	struct df_trace_comm *c;
	uint32_t i;

	if (!h)
		return 0;
	i = GET(&h->comms_used);
	do {
		if (i >= h->nr_comms)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(
		WORD(&h->comms_used), &i, i + 1, memory_order_relaxed, memory_order_relaxed));
	c = comm_at(h, i + 1);
	PUT(&c->hash, hash);
	PUT(&c->nranks, nranks);
	PUT(&c->rank, rank);
	PUT(&c->device, device);
	PUT(&c->parent, parent);
	if (name)
		put_text(c->name, name, (uint32_t)strnlen(name, sizeof(c->name) - 1));
	/*
	 * Release pairs with the reader's acquire of `used`: without it a live reader could accept
	 * a half-filled entry.
	 */
	PUT_REL(&c->used, 1);
	return i + 1;
}

void df_trace_comm_done(uint32_t comm)
{
	struct df_trace_header *h = ring_get();

	if (h && comm && comm <= h->nr_comms)
		ADD(&comm_at(h, comm)->done, 1);
}

uint32_t df_trace_text(const char *text)
{
	struct df_trace_header *h = ring_get();
	struct df_trace_string *s;
	uint32_t bytes, need, at, done = 0;
	uint64_t hash;

	if (!h || !text)
		return 0;
	bytes = (uint32_t)strnlen(text, 4096);
	need = (uint32_t)sizeof(*s) + ((bytes + 7) & ~7u);
	hash = df_hash64(text, bytes);
	at = GET(&h->strings_used);
	do {
		for (; done < at; done += (uint32_t)sizeof(*s) + ((s->bytes + 7) & ~7u)) {
			s = (struct df_trace_string *)((char *)h + h->off_strings + done);
			/*
			 * Acquire pairs with the release of `used` below: without it the length
			 * could still be zero, and the walk would lose the entries' boundaries.
			 */
			if (!atomic_load_explicit(WORD(&s->used), memory_order_acquire))
				break;
			if (s->hash == hash && s->bytes == bytes)
				return done + 1;
		}
		if (need > h->nr_string_bytes - at)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(WORD(&h->strings_used), &at, at + need,
							memory_order_relaxed,
							memory_order_relaxed));
	s = (struct df_trace_string *)((char *)h + h->off_strings + at);
	PUT(&s->hash, hash);
	PUT(&s->bytes, bytes);
	put_text(s + 1, text, bytes);
	/*
	 * Release pairs with the acquire above and in the reader: without it half a string could be
	 * read.
	 */
	PUT_REL(&s->used, 1);
	return at + 1;
}

/* ---- open and close -------------------------------------------------------------------------- */

uint64_t df_trace_boot_hash(void)
{
	char buf[128];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof(buf));
	close(fd);
	return n > 0 ? df_hash64(buf, (size_t)n) : 0;
}

static int make_dirs(const char *dir)
{
	char path[PATH_MAX];
	size_t n = strlen(dir);

	if (!n || n >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, dir, n + 1);
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		if (mkdir(path, 0777) && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(path, 0777) && errno != EEXIST ? -errno : 0;
}

/*
 * Opens a file and allocates all its blocks, so that a full disk is an error here and not a SIGBUS
 * later.
 */
static int open_file(const struct df_trace_config *cfg, const char *host, uint64_t bytes, int *out)
{
	char dir[PATH_MAX];
	int rc = df_env_expand(dir, sizeof(dir), cfg->dir, cfg->rank), fd, n;

	if (!rc)
		rc = make_dirs(dir);
	if (!rc)
		rc = df_file_fits(bytes, "a trace");
	if (rc)
		return rc;
	if (cfg->rank >= 0)
		n = snprintf(ring_path, sizeof(ring_path), "%s/rank%d-%s-%ld.dft", dir, cfg->rank,
			     host, (long)getpid());
	else
		n = snprintf(ring_path, sizeof(ring_path), "%s/%s-%ld.dft", dir, host,
			     (long)getpid());
	if (n < 0 || (size_t)n >= sizeof(ring_path))
		return -ENAMETOOLONG;
	unlink(ring_path);
	fd = open(ring_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	rc = posix_fallocate(fd, 0, (off_t)bytes);
	if (rc) {
		close(fd);
		unlink(ring_path);
		return -rc;
	}
	*out = fd;
	return 0;
}

static void fork_child(void)
{
	/* The ring belongs to the parent, and a child is not part of the job. */
	atomic_store_explicit(&ring, NULL, memory_order_relaxed);
	my_tid = 0;
	pthread_mutex_init(&open_lock, NULL);
}

static void publish(struct df_trace_header *h)
{
	h->magic = DF_TRACE_MAGIC;
	/*
	 * Release pairs with the acquire in ring_get(): without it another thread could use the
	 * header before its geometry is set.
	 */
	atomic_store_explicit(&ring, h, memory_order_release);
}

static int map_ring(const struct df_trace_config *cfg, const char *host, uint64_t bytes, void **out)
{
	int fd = -1, rc = 0;
	void *p;

	ring_path[0] = 0;
	if (cfg->dir && cfg->dir[0]) {
		rc = open_file(cfg, host, bytes, &fd);
		if (rc) {
			ring_path[0] = 0;
			return rc;
		}
	}
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		 fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		rc = -errno;
	else if (fd < 0)
		/*
		 * Ask for huge pages: a page fault every 64 records would cost more than the
		 * records.
		 */
		madvise(p, bytes, MADV_HUGEPAGE);
	if (fd >= 0) {
		close(fd);
		if (rc)
			unlink(ring_path);
	}
	if (!rc)
		*out = p;
	return rc;
}

int df_trace_open(const struct df_trace_config *cfg)
{
	static int forks_watched;
	long mb = cfg->mb > 0 ? cfg->mb : 16;
	uint64_t recs = 1, bytes, off_strings, off_recs;
	struct df_trace_header *h;
	char host[64] = "";
	struct stat ns;
	ssize_t n;
	void *map;
	int rc;

	if (mb > 65536)
		return -EINVAL;
	/* This is needed even without a trace: the exit status is sent to the other ranks. */
	df_exit_status_watch();
	pthread_mutex_lock(&open_lock);
	if (ring_get()) {
		rc = -EALREADY;
		goto out;
	}
	while (recs * 2 * sizeof(struct df_rec) <= (uint64_t)mb << 20)
		recs *= 2;
	gethostname(host, sizeof(host) - 1);
	off_strings = 4096 + (uint64_t)NR_COMMS * sizeof(struct df_trace_comm);
	off_recs = off_strings + STRING_BYTES;
	bytes = off_recs + recs * sizeof(struct df_rec);
	rc = map_ring(cfg, host, bytes, &map);
	if (rc)
		goto out;
	h = map;
	h->version = DF_TRACE_VERSION;
	h->header_bytes = 4096;
	h->rec_bytes = sizeof(struct df_rec);
	h->comm_bytes = sizeof(struct df_trace_comm);
	h->nr_recs = recs;
	h->nr_comms = NR_COMMS;
	h->nr_string_bytes = STRING_BYTES;
	h->off_comms = 4096;
	h->off_strings = off_strings;
	h->off_recs = off_recs;
	h->pid = (uint32_t)getpid();
	h->rank = cfg->rank;
	h->world = cfg->world > 0 ? (uint32_t)cfg->world : 0;
	h->host_hash = cfg->host;
	h->boot_hash = df_trace_boot_hash();
	h->pid_ns = stat("/proc/self/ns/pid", &ns) ? 0 : (uint64_t)ns.st_ino;
	h->mono_ns = clock_ns(CLOCK_MONOTONIC);
	h->real_ns = clock_ns(CLOCK_REALTIME);
	h->rules = cfg->rules;
	h->mode = cfg->mode;
	h->executor = cfg->executor;
	h->slots = cfg->slots;
	h->queues = cfg->queues;
	h->sms = cfg->sms;
	memcpy(h->host, host, sizeof(h->host));
	n = readlink("/proc/self/exe", h->exe, sizeof(h->exe) - 1);
	if (n < 0)
		h->exe[0] = 0;
	snprintf(h->version_text, sizeof(h->version_text), "dfshim trace format %d",
		 DF_TRACE_VERSION);
	ring_bytes = bytes;
	df_trace_clock_start();
	df_site_preload();
	if (!forks_watched) {
		pthread_atfork(NULL, NULL, fork_child);
		forks_watched = 1;
	}
	publish(h);
	df_trace(DF_REC_PROC_START, -1, 0, -1, 0, h->pid,
		 cfg->rules | (uint64_t)cfg->mode << 8 | (uint64_t)cfg->executor << 16,
		 cfg->slots | (uint64_t)cfg->queues << 32, 0);
	df_trace(DF_REC_CLOCK, -1, 0, -1, 0, h->real_ns, h->mono_ns, 0, 0);
out:
	pthread_mutex_unlock(&open_lock);
	return rc;
}

void df_trace_clocks(void)
{
	df_trace(DF_REC_CLOCK, -1, 0, -1, 0, clock_ns(CLOCK_REALTIME), clock_ns(CLOCK_MONOTONIC), 0,
		 0);
}

void df_trace_close(void)
{
	struct df_trace_header *h;

	/*
	 * The lock can be taken if a signal handler ends the process during open or close. Do
	 * nothing then.
	 */
	if (pthread_mutex_trylock(&open_lock))
		return;
	h = ring_get();
	if (h) {
		df_trace_clocks();
		df_trace(DF_REC_PROC_EXIT, -1, 0, -1, (uint64_t)df_exit_status(), 0, 0, 0, 0);
		PUT(&h->closed, 1 + (uint32_t)df_exit_status());
		atomic_store_explicit(&ring, NULL, memory_order_relaxed);
	}
	pthread_mutex_unlock(&open_lock);
}

void df_trace_told(uint32_t verdict, const char *line)
{
	struct df_trace_header *h = ring_get();

	if (!h)
		return;
	snprintf(h->told_line, sizeof(h->told_line), "%s", line);
	PUT(&h->told_ns, clock_ns(CLOCK_REALTIME));
	PUT(&h->told, verdict + 1);
}

const struct df_trace_header *df_trace_ring(void)
{
	return ring_get();
}

uint64_t df_trace_ring_bytes(void)
{
	return ring_get() ? ring_bytes : 0;
}

const char *df_trace_path(void)
{
	return ring_get() ? ring_path : "";
}
