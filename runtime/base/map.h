/*
 * A map from two words to one, open-addressed, which only grows. New values are zero. No locking:
 * one thread at a time.
 */
#ifndef DF_BASE_MAP_H
#define DF_BASE_MAP_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/hash.h"

struct df_map_slot {
	uint64_t a, b, value;
	uint64_t used;
};

struct df_map {
	struct df_map_slot *slots;
	size_t nr, cap; /* cap: a power of two, or 0 */
};

static inline struct df_map_slot *df_map_slot_of(const struct df_map *m, uint64_t a, uint64_t b)
{
	size_t at = (size_t)df_hash_u64(df_mix64(a), b) & (m->cap - 1);

	while (m->slots[at].used && (m->slots[at].a != a || m->slots[at].b != b))
		at = (at + 1) & (m->cap - 1);
	return &m->slots[at];
}

/* Returns the value of a key, valid until the next df_map_at(), or NULL. */
static inline uint64_t *df_map_find(const struct df_map *m, uint64_t a, uint64_t b)
{
	struct df_map_slot *s = m->cap ? df_map_slot_of(m, a, b) : NULL;

	return s && s->used ? &s->value : NULL;
}

/* Returns the value of a key, which it inserts if needed, or NULL without memory. */
static inline uint64_t *df_map_at(struct df_map *m, uint64_t a, uint64_t b)
{
	struct df_map_slot *s;

	if (2 * (m->nr + 1) > m->cap) {
		struct df_map bigger = {.nr = m->nr, .cap = m->cap ? 2 * m->cap : 16};

		bigger.slots = calloc(bigger.cap, sizeof(*bigger.slots));
		if (!bigger.slots)
			return NULL;
		for (size_t i = 0; i < m->cap; i++)
			if (m->slots[i].used)
				*df_map_slot_of(&bigger, m->slots[i].a, m->slots[i].b) =
					m->slots[i];
		free(m->slots);
		*m = bigger;
	}
	s = df_map_slot_of(m, a, b);
	if (!s->used) {
		*s = (struct df_map_slot){.a = a, .b = b, .used = 1};
		m->nr++;
	}
	return &s->value;
}

/* Returns 0, or -1 without memory; `to` is then empty. */
static inline int df_map_copy(struct df_map *to, const struct df_map *from)
{
	*to = (struct df_map){0};
	if (!from->cap)
		return 0;
	to->slots = malloc(from->cap * sizeof(*to->slots));
	if (!to->slots)
		return -1;
	memcpy(to->slots, from->slots, from->cap * sizeof(*to->slots));
	to->nr = from->nr;
	to->cap = from->cap;
	return 0;
}

static inline void df_map_fini(struct df_map *m)
{
	free(m->slots);
	*m = (struct df_map){0};
}

#endif
