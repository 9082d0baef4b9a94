/* The library's state for a test that provides its own kernels (code.h). Any thread. */
#include "interpose/hostcuda/code.h"
#include "interpose/hostcuda/driver/driver.h"
#include "interpose/hostcuda/mem/mem.h"
#include "interpose/hostcuda/mem/vmm.h"

struct count {
	unsigned long pending, waiting;
};

/* Counts the operations of one stream, or (NULL) of all streams of a device. */
static struct count count(int device, const struct df_hstream *it)
{
	struct df_hdev *dev = df_hdev(device);
	struct count n = {0, 0};
	struct df_hstream *s;

	if (!dev)
		return n;
	df_mutex_lock(&dev->lock);
	df_list_each(s, &dev->streams, all)
	{
		if (it && s != it)
			continue;
		n.pending += s->submitted - s->completed;
		n.waiting += s->head && s->head->kind == DF_HOP_WAIT && !s->busy &&
			     !df_hop_word_is(s->head);
	}
	df_mutex_unlock(&dev->lock);
	return n;
}

static struct count count_all(int device, void *stream)
{
	struct count all = {0, 0}, one;
	struct df_hstream *s;
	int i;

	if (df_henter())
		return all;
	s = stream ? df_hstream_find(stream) : NULL;
	if (stream && !s)
		return all;
	if (s)
		return count(s->device, s);
	for (i = 0; i < df_h.nr_devices; i++) {
		if (device >= 0 && i != device)
			continue;
		one = count(i, NULL);
		all.pending += one.pending;
		all.waiting += one.waiting;
	}
	return all;
}

static unsigned long pending(int device, void *stream)
{
	return count_all(device, stream).pending;
}

static unsigned long waiting(void *stream)
{
	return count_all(-1, stream).waiting;
}

static const struct df_hinside inside = {df_hdriver_symbol, pending, waiting, df_hmem_hide};

DF_H_API const struct df_hinside *df_hostcuda_code(const struct df_hcode *code)
{
	df_hcode = code;
	return &inside;
}
