#include "runtime/transport/arena/pool.h"

#include <errno.h>
#include <stdlib.h>

#define PAGE	  4096ull
#define SMALLEST  512ull
#define LOG_SMALL 9

struct df_pool_free {
	struct df_pool_free *next;
	uint32_t seg;
	uint64_t offset;
};

/* Sizes: 512, 640, 768, 896, 1024, 1280, ... */
static unsigned class_of(uint64_t bytes, uint64_t *size)
{
	unsigned log;
	uint64_t step;

	if (bytes < SMALLEST)
		bytes = SMALLEST;
	log = 63 - (unsigned)__builtin_clzll(bytes);
	step = 1ull << (log - 2);
	bytes = (bytes + step - 1) & ~(step - 1);
	log = 63 - (unsigned)__builtin_clzll(bytes);
	*size = bytes;
	return (log - LOG_SMALL) * 4 + (unsigned)((bytes >> (log - 2)) & 3);
}

int df_pool_take(struct df_pool *p, uint64_t bytes, struct df_pool_piece *out)
{
	struct df_pool_free *f;
	uint64_t align, at;
	unsigned class;

	if (bytes > 1ull << 40)
		return -ENOMEM;
	class = class_of(bytes, &out->bytes);
	f = p->lists[class];
	if (f) {
		p->lists[class] = f->next;
		out->seg = f->seg;
		out->offset = f->offset;
		free(f);
		p->out += out->bytes;
		return 0;
	}
	align = out->bytes >= PAGE ? PAGE : 256;
	at = (p->seg_used + align - 1) & ~(align - 1);
	if (!p->nr_segs || at + out->bytes > p->seg_bytes)
		return -ENOSPC;
	out->seg = p->nr_segs - 1;
	out->offset = at;
	p->seg_used = at + out->bytes;
	p->out += out->bytes;
	return 1;
}

void df_pool_give(struct df_pool *p, const struct df_pool_piece *piece)
{
	struct df_pool_free *f = malloc(sizeof(*f));
	uint64_t size;
	unsigned class;

	p->out -= piece->bytes;
	if (!f)
		return; /* without memory for the list, the piece is lost */
	class = class_of(piece->bytes, &size);
	f->seg = piece->seg;
	f->offset = piece->offset;
	f->next = p->lists[class];
	p->lists[class] = f;
}

void df_pool_seg(struct df_pool *p, uint64_t bytes)
{
	p->nr_segs++;
	p->seg_bytes = bytes;
	p->seg_used = 0;
}

void df_pool_drop(struct df_pool *p)
{
	p->nr_segs--;
	/* The rest of the segment before it is lost already. */
	p->seg_bytes = p->seg_used = 0;
}

uint64_t df_pool_left(const struct df_pool *p)
{
	return p->nr_segs ? p->seg_bytes - p->seg_used : 0;
}
