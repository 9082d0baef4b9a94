/*
 * Growing arrays for the judge and the tools: pointer, count and capacity are plain fields.
 */
#ifndef DF_TRACE_READ_VEC_H
#define DF_TRACE_READ_VEC_H

#include <errno.h>
#include <stdlib.h>

/* Room for one more element; 0 or -ENOMEM, the array then as before. */
static inline int df_vec_grow(void **base, size_t nr, size_t *cap, size_t size)
{
	size_t want;
	void *p;

	if (nr < *cap)
		return 0;
	want = *cap ? *cap * 2 : 64;
	p = want > SIZE_MAX / size ? NULL : realloc(*base, want * size);
	if (!p)
		return -ENOMEM;
	*base = p;
	*cap = want;
	return 0;
}

/* Pointer to a fresh, uninitialised last element, or NULL without memory. */
#define DF_VEC_PUSH(base, nr, cap)                                                                 \
	(df_vec_grow((void **)&(base), (nr), &(cap), sizeof(*(base))) ? NULL : &(base)[(nr)++])

#endif
