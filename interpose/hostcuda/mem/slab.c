/*
 * Slabs of handles: every cudaStream_t, cudaEvent_t, graph and pool is a slot in reserved memory.
 * So a handle is checked with arithmetic and one load, and an invalid one is refused instead of
 * followed. Slots are never unmapped. Any thread; the lock guards only the list of free slots.
 */
#include "interpose/hostcuda/internal.h"

#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>

/*
 * Registers the slots in use with LeakSanitizer, many at a time. It does not search mapped memory,
 * so it would report memory to which only a slot points. The caller holds the lock.
 */
static void show_leak_checker(struct df_hslab *slab)
{
	enum { LOT = 1024 };

	if (slab->nr_used % LOT == 0)
		__lsan_register_root_region(df_hslab_at(slab, (uint32_t)slab->nr_used),
					    DF_MIN(slab->nr_slots - slab->nr_used, (size_t)LOT) *
						    slab->slot_bytes);
}
#else
#define show_leak_checker(slab) ((void)0)
#endif

int df_hslab_init(struct df_hslab *slab, const char *name, size_t object_bytes, size_t nr_slots)
{
	size_t slot = 64;
	void *base;

	while (slot < object_bytes)
		slot *= 2;
	base = mmap(NULL, slot * nr_slots, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -ENOMEM;
	slab->name = name;
	slab->slot_bytes = slot;
	slab->nr_slots = nr_slots;
	slab->base = base;
	slab->nr_used = 0;
	slab->free = NULL;
	df_mutex_init(&slab->lock, DF_RANK_LEAF, name);
	return 0;
}

void *df_hslab_get(struct df_hslab *slab)
{
	struct df_hslot *slot;

	df_mutex_lock(&slab->lock);
	slot = slab->free;
	if (slot) {
		slab->free = slot->next_free;
	} else if (slab->nr_used < slab->nr_slots) {
		show_leak_checker(slab);
		slot = df_hslab_at(slab, (uint32_t)slab->nr_used);
		slot->index = (uint32_t)slab->nr_used++;
	}
	df_mutex_unlock(&slab->lock);
	if (!slot)
		df_warn_once("host CUDA: all %zu %s are in use", slab->nr_slots, slab->name);
	return slot;
}

void df_hslab_put(struct df_hslab *slab, void *object)
{
	struct df_hslot *slot = object;

	df_mutex_lock(&slab->lock);
	slot->next_free = slab->free;
	slab->free = slot;
	df_mutex_unlock(&slab->lock);
}
