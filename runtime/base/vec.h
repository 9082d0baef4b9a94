/*
 * Growing arrays: pointer, number and capacity are plain fields or variables, of any integer types, of whoever owns
 * and locks them.
 */
#ifndef DF_BASE_VEC_H
#define DF_BASE_VEC_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/* For the macros below: *array is a pointer to elements of this size, `most` what the capacity's type can hold. */
static inline int df_vec_grow(void *array, size_t *cap, size_t need, size_t size, size_t most)
{
	size_t want = *cap ? *cap : 8;
	void *p;

	while (want < need && want <= most / 2)
		want *= 2;
	p = want < need || want > SIZE_MAX / size ? NULL : realloc(*(void **)array, want * size);
	if (!p)
		return -ENOMEM;
	*(void **)array = p;
	*cap = want;
	return 0;
}

/* Room for `need` elements in all, the new ones uninitialised. 0, or -ENOMEM with the array as before. */
#define DF_VEC_ROOM(v, cap, need)                                                                  \
	({                                                                                         \
		size_t cap_ = (size_t)(cap), need_ = (size_t)(need);                               \
		int rc_ = need_ <= cap_ ? 0                                                        \
					: df_vec_grow(&(v), &cap_, need_, sizeof(*(v)),            \
						      SIZE_MAX >> (65 - 8 * sizeof(cap)));         \
		(cap) = (__typeof__(cap))cap_;                                                     \
		rc_;                                                                               \
	})

/* Pointer to a fresh, uninitialised last element, or NULL without memory. */
#define DF_VEC_PUSH(v, nr, cap) (DF_VEC_ROOM(v, cap, (size_t)(nr) + 1) ? NULL : &(v)[(nr)++])

#endif
