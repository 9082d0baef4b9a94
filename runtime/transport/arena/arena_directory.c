/*
 * The directory: hash tables in the shared segments of their owner. Only the owner writes them,
 * under the arena's lock; every process of the node reads them without a lock. A table is never
 * moved: when it has no place for a key, a table of twice the size is added. An entry stays an
 * entry, and the generation of its gate grows with each use, so a stale pointer does no harm.
 */
#include "runtime/transport/arena/arena.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/hash.h"
#include "runtime/transport/arena/arena_int.h"

#define FIRST_ENTRIES 1024ull
#define PROBES	      32u

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void store(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* Returns the entries of table t, or NULL if its segment is not in the view. */
static struct df_arena_entry *table_at(const struct df_view *v, const struct df_table *t,
				       uint64_t *mask)
{
	uint64_t where = load(&t->where), offset = DF_WHERE_OFFSET(where);
	char *base = df_view_base(v, DF_WHERE_SEG(where));

	*mask = load(&t->mask);
	if (!base || *mask >= 1ull << 32 ||
	    offset + (*mask + 1) * sizeof(struct df_arena_entry) > v->bytes[DF_WHERE_SEG(where)])
		return NULL;
	return (struct df_arena_entry *)(void *)(base + offset);
}

/* ---- the owner ------------------------------------------------------------------------------- */

static int add_table(struct df_seg0 *s)
{
	uint32_t n = s->nr_tables;
	uint64_t entries = FIRST_ENTRIES << n;
	struct df_block b;
	int ret, fresh;

	if (n == DF_TABLES_MAX)
		return -ENOMEM;
	ret = df_arena_take_locked(entries * sizeof(struct df_arena_entry), &b, &fresh);
	if (ret)
		return ret;
	/* Rare and bounded, so the lock is kept. */
	ret = df_arena_back(&b);
	if (ret)
		return ret;
	/* Blocks are reused, and old contents must not look like entries. */
	memset(b.ptr, 0, entries * sizeof(struct df_arena_entry));
	store(&s->tables[n].where, DF_WHERE(b.seg, b.offset));
	store(&s->tables[n].mask, entries - 1);
	/*
	 * RELEASE pairs with the ACQUIRE in df_dir_find(): without it a reader could probe garbage.
	 */
	__atomic_store_n(&s->nr_tables, n + 1, __ATOMIC_RELEASE);
	return 0;
}

/* Returns a free entry for the key, or NULL. *exists: the key is already announced. */
static struct df_arena_entry *find_free(struct df_seg0 *s, uint64_t key, int *exists)
{
	struct df_arena_entry *free_entry = NULL, *e, *entries;
	uint64_t mask, at = df_mix64(key);
	uint32_t t, i;
	unsigned state;

	*exists = 0;
	for (t = 0; t < s->nr_tables; t++) {
		entries = table_at(&df_arena.view, &s->tables[t], &mask);
		for (i = 0; i < PROBES; i++) {
			e = &entries[(at + i) & mask];
			state = DF_GATE_STATE(load(&e->gate));
			if (state <= DF_GATE_FREE) {
				if (!free_entry)
					free_entry = e;
				if (state == DF_GATE_NEVER)
					break;
			} else if (load(&e->key) == key) {
				*exists = 1;
				return NULL;
			}
		}
	}
	return free_entry;
}

int df_dir_insert(uint64_t key, const struct df_block *b, uint32_t nr_slots, uint32_t slot_bytes,
		  uint32_t far, struct df_arena_entry **entry, uint64_t *gen)
{
	struct df_seg0 *s = df_arena.seg0;
	struct df_arena_entry *e;
	uint64_t g;
	int exists, ret = 0;

	df_mutex_lock(&df_arena.lock);
	while (!(e = find_free(s, key, &exists)) && !exists && !ret)
		ret = add_table(s);
	if (exists)
		ret = -EEXIST;
	if (ret)
		goto out;
	g = DF_GATE_GEN(load(&e->gate)) + 1;
	store(&e->gate, DF_GATE_WORD(g, DF_GATE_WRITING));
	/*
	 * RELEASE of each field pairs with the ACQUIRE in look(): a reader that reads a field while
	 * we write it also sees that the gate has changed, and drops the field.
	 */
	__atomic_store_n(&e->key, key, __ATOMIC_RELEASE);
	__atomic_store_n(&e->where, DF_WHERE(b->seg, b->offset), __ATOMIC_RELEASE);
	__atomic_store_n(&e->bytes, b->bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&e->nr_slots, nr_slots, __ATOMIC_RELEASE);
	__atomic_store_n(&e->slot_bytes, slot_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&e->far, far, __ATOMIC_RELEASE);
	/*
	 * RELEASE pairs with the ACQUIRE in look() and df_gate_use(): readers that see the gate
	 * open see the entry and the connector's header as written.
	 */
	__atomic_store_n(&e->gate, DF_GATE_WORD(g, DF_GATE_OPEN), __ATOMIC_RELEASE);
	*entry = e;
	*gen = g;
out:
	df_mutex_unlock(&df_arena.lock);
	return ret;
}

int df_dir_remove(struct df_arena_entry *e, uint64_t gen, int force)
{
	uint64_t word = DF_GATE_WORD(gen, DF_GATE_OPEN), gone = DF_GATE_WORD(gen, DF_GATE_FREE);

	/*
	 * ACQUIRE pairs with the RELEASE in df_gate_unuse(): all accesses of the other side are
	 * over before the memory gets another owner.
	 */
	if (__atomic_compare_exchange_n(&e->gate, &word, gone, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return 0;
	if (!force || word != DF_GATE_WORD(gen, DF_GATE_USED))
		return -EBUSY;
	return __atomic_compare_exchange_n(&e->gate, &word, gone, 0, __ATOMIC_ACQ_REL,
					   __ATOMIC_ACQUIRE)
		       ? 0
		       : -EBUSY;
}

/* ---- readers --------------------------------------------------------------------------------- */

/*
 * Reads an entry. Returns -ENOENT if it is not for this key, or -EAGAIN if its segment is not in
 * the view.
 */
static int look(const struct df_view *v, struct df_arena_entry *e, uint64_t key,
		struct df_found *out)
{
	uint64_t gate, where, offset, bytes, again;
	uint32_t nr_slots, slot_bytes, far;
	char *base;

	/*
	 * ACQUIRE pairs with the RELEASE of OPEN in df_dir_insert(): the fields belong to this
	 * gate.
	 */
	gate = __atomic_load_n(&e->gate, __ATOMIC_ACQUIRE);
	if (DF_GATE_STATE(gate) < DF_GATE_OPEN ||
	    __atomic_load_n(&e->key, __ATOMIC_ACQUIRE) != key) /* pairs as the other fields do */
		return -ENOENT;
	/*
	 * ACQUIRE of each field pairs with its RELEASE in df_dir_insert(): if a field were from a
	 * later use of the entry, the second read of the gate would show a later generation.
	 */
	where = __atomic_load_n(&e->where, __ATOMIC_ACQUIRE);
	bytes = __atomic_load_n(&e->bytes, __ATOMIC_ACQUIRE);
	nr_slots = __atomic_load_n(&e->nr_slots, __ATOMIC_ACQUIRE);
	slot_bytes = __atomic_load_n(&e->slot_bytes, __ATOMIC_ACQUIRE);
	far = __atomic_load_n(&e->far, __ATOMIC_ACQUIRE);
	again = load(&e->gate);
	if (DF_GATE_GEN(again) != DF_GATE_GEN(gate))
		return -ENOENT;
	offset = DF_WHERE_OFFSET(where);
	base = df_view_base(v, DF_WHERE_SEG(where));
	if (!base)
		return -EAGAIN;
	/* Do not trust the other process: accept only addresses inside its segments. */
	if (offset + bytes > v->bytes[DF_WHERE_SEG(where)] || offset % 64 ||
	    DF_CONN_SLOTS + (far ? sizeof(struct df_conn_far) : (uint64_t)nr_slots * slot_bytes) >
		    bytes ||
	    !nr_slots)
		return -ENOENT;
	out->entry = e;
	out->gen = DF_GATE_GEN(gate);
	out->hdr = (struct df_conn_hdr *)(void *)(base + offset);
	out->bytes = bytes;
	out->nr_slots = nr_slots;
	out->slot_bytes = slot_bytes;
	out->far = far;
	return 0;
}

int df_dir_find(const struct df_view *v, uint64_t key, struct df_found *out)
{
	const struct df_seg0 *s = df_view_base(v, 0);
	uint64_t mask, at = df_mix64(key);
	struct df_arena_entry *entries, *e;
	uint32_t t, nr, i;
	int ret, missing = 0;

	if (!s)
		return -EAGAIN;
	/* ACQUIRE pairs with the RELEASE in add_table(): tables below nr are initialised. */
	nr = __atomic_load_n(&s->nr_tables, __ATOMIC_ACQUIRE);
	for (t = 0; t < nr && t < DF_TABLES_MAX; t++) {
		entries = table_at(v, &s->tables[t], &mask);
		if (!entries) {
			missing = 1;
			continue;
		}
		for (i = 0; i < PROBES; i++) {
			e = &entries[(at + i) & mask];
			if (DF_GATE_STATE(load(&e->gate)) == DF_GATE_NEVER)
				break;
			ret = look(v, e, key, out);
			if (ret != -ENOENT)
				return ret;
		}
	}
	return missing ? -EAGAIN : -ENOENT;
}

int df_gate_use(struct df_arena_entry *e, uint64_t gen)
{
	uint64_t word = DF_GATE_WORD(gen, DF_GATE_OPEN);

	/*
	 * ACQUIRE pairs with the RELEASE of OPEN in df_dir_insert() and df_gate_unuse(): the header
	 * and positions are as the owner, or our own last use, left them.
	 */
	return __atomic_compare_exchange_n(&e->gate, &word, DF_GATE_WORD(gen, DF_GATE_USED), 0,
					   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)
		       ? 0
		       : -EAGAIN;
}

void df_gate_unuse(struct df_arena_entry *e, uint64_t gen)
{
	uint64_t word = DF_GATE_WORD(gen, DF_GATE_USED);

	/*
	 * RELEASE pairs with the ACQUIRE in df_dir_remove(): our last access is before the owner's
	 * reuse. The exchange fails only if the owner took us for dead.
	 */
	__atomic_compare_exchange_n(&e->gate, &word, DF_GATE_WORD(gen, DF_GATE_OPEN), 0,
				    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
