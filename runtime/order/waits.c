/* What streams have been made to wait for, by device: see waits.h. Every wait of a stream for an operation goes through here. */
#include "runtime/order/waits.h"

#include "runtime/backend.h"
#include "runtime/base/err.h"
#include "runtime/base/lock.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"
#include "runtime/order/flights.h"
#include "runtime/order/stream.h"

#define NAP_NS (20 * DF_NS_PER_US)

struct waits {
	struct df_flights set;
	uint32_t putting; /* threads that are making a stream wait */
	uint32_t stopped; /* threads from begin to end */
};

/* Devices whose numbers are equal in the last bits share one: then a call waits for the streams of both. */
static struct waits of[64];
static struct df_mutex lock = DF_MUTEX_INIT(DF_RANK_LEAF, "waits");

static struct waits *waits_of(int device)
{
	return &of[(unsigned int)device % DF_ARRAY_LEN(of)];
}

/* Lock held. */
static void add(struct waits *w, const struct df_flight *f)
{
	if (df_flights_add(&w->set, f))
		df_warn_once(
			"out of memory: the driver may block while streams wait for collectives");
}

int df_waits_put(int device, struct df_mstream *on, const struct df_flight *v, uint32_t nr)
{
	struct waits *w = waits_of(device);
	uint32_t i;
	int ret = 0;

	df_mutex_lock(&lock);
	/* Such a call ends by itself: nothing that it waits for waits for us. */
	while (w->stopped) {
		df_mutex_unlock(&lock);
		df_sleep_ns(NAP_NS);
		df_mutex_lock(&lock);
	}
	for (i = 0; i < nr; i++)
		add(w, &v[i]);
	w->putting++;
	df_mutex_unlock(&lock);
	for (i = 0; i < nr; i++) {
		int err = df_backend->stream_wait(on, v[i].done, v[i].value);

		ret = ret ? ret : err;
	}
	df_mutex_lock(&lock);
	w->putting--;
	df_mutex_unlock(&lock);
	return ret;
}

void df_waits_note(int device, const struct df_flight *f)
{
	df_mutex_lock(&lock);
	add(waits_of(device), f);
	df_mutex_unlock(&lock);
}

int df_waits_stop(int device, int wait)
{
	struct df_dev *dev = df_stream_dev(device);
	struct waits *w = waits_of(device);
	struct df_flights now = {0};
	int none;

	for (;;) {
		df_mutex_lock(&lock);
		df_flights_prune(&w->set);
		none = !w->set.nr && !w->putting;
		w->stopped += (uint32_t)none;
		if (!none && wait && df_flights_join(&now, &w->set))
			df_warn_once("out of memory: cannot wait for collectives");
		df_mutex_unlock(&lock);
		if (none || !wait)
			break;
		if (dev && now.nr)
			df_sync_set(dev, &now);
		else
			df_sleep_ns(NAP_NS);
		df_flights_prune(&now);
	}
	df_flights_free(&now);
	return none;
}

void df_waits_go(int device)
{
	df_mutex_lock(&lock);
	waits_of(device)->stopped--;
	df_mutex_unlock(&lock);
}
