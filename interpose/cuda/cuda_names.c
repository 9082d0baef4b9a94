#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/cuda/cuda_names.h"
#include "runtime/base/demangle.h"
#include "runtime/base/hash.h"

#define NR_NAMES   16384u
#define MAX_PROBES 16
#define NAME_BYTES 255 /* maximum length of a name; of a longer name the beginning is kept */
#define READ_BYTES 511 /* maximum length of a mangled name that is read; its beginning suffices */

/*
 * The names, by handle. A driver that unloads a module may give a handle out again, for another
 * kernel.
 */
static struct {
	const void *fn;
	const char *name;
} handles[NR_NAMES];

static const char *names[NR_NAMES];

/*
 * Returns the copy of a name, or NULL if the table is full. Copies are never freed, because other
 * threads may read them.
 */
static const char *copy_of(const char *name)
{
	char text[READ_BYTES + 1], *copy = NULL;
	size_t bytes = strnlen(name, READ_BYTES);
	uint64_t at;

	memcpy(text, name, bytes);
	text[bytes] = 0;
	df_demangle_name(text, sizeof(text));
	bytes = strnlen(text, NAME_BYTES);
	at = df_hash_bytes(text, bytes, 0);

	for (int i = 0; i < MAX_PROBES; i++, at++) {
		const char **slot = &names[at % NR_NAMES];
		/* ACQUIRE pairs with the RELEASE below: without it the text could be incomplete. */
		const char *seen = __atomic_load_n(slot, __ATOMIC_ACQUIRE);

		if (!seen && !copy)
			copy = strndup(text, bytes);
		if (!seen && !copy)
			return NULL;
		/*
		 * RELEASE pairs with the ACQUIRE above and on failure here: without it another
		 * thread could read half a name.
		 */
		if (!seen && __atomic_compare_exchange_n(slot, &seen, copy, 0, __ATOMIC_RELEASE,
							 __ATOMIC_ACQUIRE))
			return copy;
		if (!strncmp(seen, text, bytes) && !seen[bytes]) {
			free(copy);
			return seen;
		}
	}
	free(copy);
	return NULL;
}

void df_cuda_name_put(const void *fn, const char *name)
{
	uint64_t at = df_mix64((uintptr_t)fn);
	const char *copy = name ? copy_of(name) : NULL;

	for (int i = 0; i < MAX_PROBES; i++, at++) {
		const void **slot = &handles[at % NR_NAMES].fn, *seen = NULL;

		if (!__atomic_compare_exchange_n(slot, &seen, fn, 0, __ATOMIC_RELAXED,
						 __ATOMIC_RELAXED) &&
		    seen != fn)
			continue;
		/*
		 * RELEASE pairs with the ACQUIRE in df_cuda_name_of(): without it a caller could
		 * read an incomplete text.
		 */
		__atomic_store_n(&handles[at % NR_NAMES].name, copy, __ATOMIC_RELEASE);
		return;
	}
}

const char *df_cuda_name_of(const void *fn)
{
	uint64_t at = df_mix64((uintptr_t)fn);

	for (int i = 0; i < MAX_PROBES; i++, at++) {
		const void *seen = __atomic_load_n(&handles[at % NR_NAMES].fn, __ATOMIC_RELAXED);

		if (seen == fn)
			/* ACQUIRE pairs with the RELEASE in df_cuda_name_put(), which says why. */
			return __atomic_load_n(&handles[at % NR_NAMES].name, __ATOMIC_ACQUIRE);
		if (!seen)
			return NULL;
	}
	return NULL;
}
