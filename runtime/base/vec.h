/*
 * Growing arrays. Pointer, number and capacity are plain fields or variables, of any integer types;
 * their owner locks them.
 */
#ifndef DF_BASE_VEC_H
#define DF_BASE_VEC_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

/*
 * For the macros below. *array points to elements of `size` bytes; `most` is the largest value of
 * the capacity's type.
 */
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

/*
 * Makes room for `need` elements in all; new ones are uninitialised. Returns 0, or -ENOMEM and
 * leaves the array as it was.
 */
#define DF_VEC_ROOM(v, cap, need)                                                                  \
	({                                                                                         \
		size_t cap_ = (size_t)(cap), need_ = (size_t)(need);                               \
		int rc_ = need_ <= cap_ ? 0                                                        \
					: df_vec_grow(&(v), &cap_, need_, sizeof(*(v)),            \
						      SIZE_MAX >> (65 - 8 * sizeof(cap)));         \
		(cap) = (__typeof__(cap))cap_;                                                     \
		rc_;                                                                               \
	})

/* Returns a pointer to a new, uninitialised last element, or NULL without memory. */
#define DF_VEC_PUSH(v, nr, cap) (DF_VEC_ROOM(v, cap, (size_t)(nr) + 1) ? NULL : &(v)[(nr)++])

#endif
