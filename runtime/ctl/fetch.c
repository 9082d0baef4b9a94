/*
 * Passes descriptors of shared memory over unix sockets: one connection per request. The owner
 * answers at once and closes it. Guarded by the control plane's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/ctl/accept.h"
#include "runtime/ctl/ctl.h"
#include "runtime/ctl/ctl_int.h"
#include "runtime/ctl/link.h"

struct fetch_ask {
	uint64_t first;
};

struct fetch_reply {
	uint32_t nr, pad;
	uint64_t bytes[DF_FETCH_MAX];
};

struct fetch {
	df_fetch_done_fn done;
	void *arg;
};

static df_fetch_serve_fn server;

void df_fetch_set_server(df_fetch_serve_fn fn)
{
	df_ctl_lock();
	server = fn;
	df_ctl_unlock();
}

int df_fetch_introduce(struct df_link *link, const void *data, size_t bytes)
{
	const struct fetch_ask *a = data;
	struct fetch_reply r = {0};
	int fds[DF_FETCH_MAX], nr = 0, ret;

	if (bytes != sizeof(*a))
		return -EPROTO;
	if (server)
		nr = server((uint32_t)a->first, fds, r.bytes, DF_FETCH_MAX);
	if (nr < 0)
		return nr;
	r.nr = (uint32_t)nr;
	ret = df_link_send_fds(link, DF_FRAME_FETCHED, &r, sizeof(r), fds, nr);
	df_link_finish(link);
	return ret;
}

static void fetch_end(struct df_link *link, int error, const int *fds, const uint64_t *bytes,
		      int nr)
{
	struct fetch *f = link->owner;

	link->owner = NULL;
	if (!f)
		return;
	f->done(f->arg, error, fds, bytes, nr);
	free(f);
}

static int fetch_input(struct df_link *link, unsigned type, const void *data, size_t bytes)
{
	const struct fetch_reply *r = data;
	int nr = link->nr_fds;

	if (link->lost_fds) {
		errno = EMFILE;
		fetch_end(link, df_link_no_file() ? -EAGAIN : -EMFILE, NULL, NULL, 0);
		df_link_finish(link);
		return 0;
	}
	if (type != DF_FRAME_FETCHED || bytes != sizeof(*r) || (int)r->nr != nr)
		return -EPROTO;
	link->nr_fds = 0;
	fetch_end(link, 0, link->fds, r->bytes, nr);
	df_link_finish(link);
	return 0;
}

/*
 * If the process has ended, the next connection will be refused. If it is alive, it may lack
 * descriptors.
 */
static void fetch_closed(struct df_link *link, int error)
{
	fetch_end(link, error == -ECONNREFUSED ? -ECONNRESET : -EAGAIN, NULL, NULL, 0);
}

static const struct df_link_ops fetch_ops = {
	.name = "fetch", .input = fetch_input, .closed = fetch_closed};

int df_fetch_start(const struct df_member *peer, uint32_t first, df_fetch_done_fn done, void *arg)
{
	struct fetch_ask a = {.first = first};
	struct fetch *f = malloc(sizeof(*f));
	struct df_link *link;
	int error = 0;

	if (!f)
		return -ENOMEM;
	f->done = done;
	f->arg = arg;
	df_ctl_lock();
	link = df_link_open_member(peer, &fetch_ops, f, &error);
	if (!link) {
		df_ctl_unlock();
		free(f);
		if (error == -EMFILE || error == -ENFILE)
			return -EMFILE;
		return error == -ECONNREFUSED || error == -ENOENT ? -ECONNRESET : -EAGAIN;
	}
	link->wants_fds = 1;
	df_link_send(link, DF_FRAME_FETCH, &a, sizeof(a), NULL, 0);
	df_ctl_unlock();
	return 0;
}
