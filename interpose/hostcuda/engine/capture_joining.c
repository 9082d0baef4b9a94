/*
 * Checks calls that captures forbid to other streams and threads, and lets streams join a capture
 * by events.
 */
#include "interpose/hostcuda/engine/capture.h"

#include <stdlib.h>

/* -- forbidden calls --------------------------------------------------------------------------- */

cudaError_t df_hunsafe(void)
{
	struct df_hcapture *c;
	int hit = 0;

	if (df_likely(!df_hcapture_any()) || df_htls.capture_mode == cudaStreamCaptureModeRelaxed)
		return cudaSuccess;
	df_mutex_lock(&df_hcaptures.lock);
	df_list_each(c, &df_hcaptures.list, node)
	{
		if (c->mode == cudaStreamCaptureModeRelaxed)
			continue;
		if (c->thread != &df_htls && (c->mode != cudaStreamCaptureModeGlobal ||
					      df_htls.capture_mode != cudaStreamCaptureModeGlobal))
			continue;
		c->spoiled = 1;
		hit = 1;
	}
	df_mutex_unlock(&df_hcaptures.lock);
	return hit ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

/* spoil: the call would disturb the captures and invalidates them; else it only queries. */
cudaError_t df_hcapture_legacy(struct df_hstream *s, int spoil)
{
	struct df_hcapture *c;
	struct df_hstream *t;
	int hit = 0;

	if (df_likely(!s->legacy || !df_hcapture_any()))
		return cudaSuccess;
	df_mutex_lock(&df_hcaptures.lock);
	df_list_each(c, &df_hcaptures.list, node)
	{
		df_list_each(t, &c->members, members)
		{
			if (!t->blocking || t->device != s->device)
				continue;
			hit = 1;
			c->spoiled |= spoil;
		}
	}
	df_mutex_unlock(&df_hcaptures.lock);
	return hit ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t df_hcapture_check_legacy(struct df_hstream *s)
{
	return df_hcapture_legacy(s, 1);
}

cudaError_t df_hcapture_check_sync(struct df_hstream *s)
{
	cudaError_t err = cudaSuccess;

	if (df_likely(!df_hstream_capturing(s)))
		return df_hcapture_check_legacy(s);
	df_mutex_lock(&df_hcaptures.lock);
	if (s->capture) {
		s->capture->spoiled = 1;
		err = cudaErrorStreamCaptureUnsupported;
	}
	df_mutex_unlock(&df_hcaptures.lock);
	return err;
}

void df_hcapture_stream_gone(struct df_hstream *s)
{
	struct df_hcapture *c;

	if (df_hstream_capturing(s)) {
		df_mutex_lock(&df_hcaptures.lock);
		c = s->capture;
		if (c) {
			c->spoiled = 1;
			df_hcapture_leave(s);
			if (c->origin == s) {
				/* No stream is left that could end the capture. */
				while (!df_list_empty(&c->members))
					df_hcapture_leave(df_list_first(
						&c->members, struct df_hstream, members));
				df_list_del(&c->node);
				__atomic_fetch_sub(&df_hcaptures.nr, 1, __ATOMIC_RELAXED);
			} else {
				c = NULL;
			}
		}
		df_mutex_unlock(&df_hcaptures.lock);
		if (c && c->own_graph)
			df_hgraph_delete(c->graph);
		free(c);
	}
	df_hnodes_fini(&s->frontier);
}

/* -- events ------------------------------------------------------------------------------------ */

/*
 * Adds an event as a node of its own, because streams outside of the capture use the event. The
 * caller holds the lock.
 */
static cudaError_t add_event(struct df_hstream *s, struct df_hevent *e, enum cudaGraphNodeType type)
{
	struct df_hnode *node;
	cudaError_t err = df_hcapture_node(s, type, &node);

	if (!err) {
		node->event = e;
		node->event_id = e->id;
	}
	return err;
}

cudaError_t df_hcapture_record(struct df_hevent *e, struct df_hstream *s, int external)
{
	cudaError_t err = cudaSuccess;

	df_mutex_lock(&df_hcaptures.lock);
	if (!s->capture) {
		err = cudaErrorStreamCaptureInvalidated;
	} else if (external) {
		err = add_event(s, e, cudaGraphNodeTypeEventRecord);
	} else if (s->capture->spoiled) {
		err = cudaErrorStreamCaptureInvalidated;
	} else {
		e->frontier.nr = 0;
		/* RELAXED: see record(). */
		__atomic_store_n(&e->capture_id, s->capture->id, __ATOMIC_RELAXED);
		if (df_hnodes_copy(&e->frontier, &s->frontier))
			err = cudaErrorMemoryAllocation;
	}
	df_mutex_unlock(&df_hcaptures.lock);
	return err;
}

int df_hcapture_wait(struct df_hstream *s, struct df_hevent *e, int external)
{
	struct df_hcapture *c, *mine;
	int ret = 1;

	df_mutex_lock(&df_hcaptures.lock);
	mine = s->capture;
	c = e->capture_id ? df_hcapture_by_id(e->capture_id) : NULL;
	if (mine && mine->spoiled) {
		ret = -(int)cudaErrorStreamCaptureInvalidated;
	} else if (mine && external) {
		ret = -(int)add_event(s, e, cudaGraphNodeTypeWaitEvent);
		ret = ret ? ret : 1;
	} else if (e->capture_id && !c) {
		ret = -(int)cudaErrorCapturedEvent;
	} else if (!c && !mine) {
		ret = 0;
	} else if (!c) {
		/* RELAXED: an event that was never recorded is finished. */
		if (__atomic_load_n(&e->point, __ATOMIC_RELAXED)) {
			mine->spoiled = 1;
			ret = -(int)cudaErrorStreamCaptureIsolation;
		}
	} else if (mine && mine != c) {
		mine->spoiled = c->spoiled = 1;
		ret = -(int)cudaErrorStreamCaptureMerge;
	} else if (s->legacy) {
		c->spoiled = 1;
		ret = -(int)cudaErrorStreamCaptureImplicit;
	} else {
		if (!mine)
			df_hcapture_join(c, s);
		if (df_hnodes_copy(&s->frontier, &e->frontier))
			ret = -(int)cudaErrorMemoryAllocation;
	}
	df_mutex_unlock(&df_hcaptures.lock);
	return ret;
}

cudaError_t df_hcapture_event_check(struct df_hevent *e)
{
	struct df_hcapture *c;

	/* RELAXED for the reason given in record(). */
	if (df_likely(!__atomic_load_n(&e->capture_id, __ATOMIC_RELAXED)))
		return cudaSuccess;
	df_mutex_lock(&df_hcaptures.lock);
	c = df_hcapture_by_id(e->capture_id);
	if (c)
		c->spoiled = 1;
	df_mutex_unlock(&df_hcaptures.lock);
	return cudaErrorCapturedEvent;
}

void df_hcapture_event_gone(struct df_hevent *e)
{
	/* RELAXED: only the caller still uses the event. */
	if (df_likely(!__atomic_load_n(&e->capture_id, __ATOMIC_RELAXED)))
		return;
	df_mutex_lock(&df_hcaptures.lock);
	__atomic_store_n(&e->capture_id, 0, __ATOMIC_RELAXED);
	df_hnodes_fini(&e->frontier);
	df_mutex_unlock(&df_hcaptures.lock);
}
