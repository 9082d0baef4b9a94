#include <stdlib.h>
#include "kernels/abi.h"
#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/vec.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/process.h"
#include "runtime/ctl/ctl.h"
#include "runtime/watch/snapshot.h"
#include "runtime/watch/tied.h"

/*
 * The processes of the last question, some of which may have ended. For the watchdog's thread only.
 */
static struct df_procs asked;
static void (*also)(struct df_procs *p);

void df_tied_by(void (*add)(struct df_procs *p))
{
	also = add;
}

int df_procs_add(struct df_procs *p, uint64_t proc)
{
	uint32_t i;

	for (i = 0; i < p->nr; i++)
		if (p->v[i] == proc)
			return 0;
	if (DF_VEC_ROOM(p->v, p->cap, p->nr + 1))
		return 0;
	p->v[p->nr++] = proc;
	return 1;
}

void df_tied_peers(struct df_procs *p)
{
	struct df_comm *comm;
	uint64_t last = 0;
	uint32_t n = 0;
	int i;

	df_mutex_lock(&df_rt.lock);
	df_list_each(comm, &df_rt.comms, node)
	{
		for (i = 0; df_comm_is_open(comm) && i < comm->nranks; i++) {
			uint64_t proc = comm->members[i].proc;

			if (proc != df_rt.self.proc && proc != last)
				df_procs_add(p, proc);
			last = proc;
		}
	}
	df_mutex_unlock(&df_rt.lock);
	if (also)
		also(p);
	for (uint32_t k = 0; k < p->nr; k++)
		if (!df_ctl_is_dead(p->v[k]))
			p->v[n++] = p->v[k];
	p->nr = n;
}

uint64_t *df_tied_processes(uint32_t *nr)
{
	struct df_procs p = {0};

	df_tied_peers(&p);
	*nr = p.nr;
	return p.v;
}

void df_tied_known(struct df_procs *p)
{
	df_tied_peers(p);
	for (uint32_t i = 0; i < asked.nr; i++)
		if (!df_ctl_is_dead(asked.v[i]))
			df_procs_add(p, asked.v[i]);
}

void df_tied_keep(const struct df_procs *p)
{
	free(asked.v);
	asked = *p;
}

uint64_t df_tied_leader(void)
{
	uint64_t least = df_rt.self.proc;
	struct df_procs p = {0};

	df_tied_known(&p);
	for (uint32_t i = 0; i < p.nr; i++)
		least = DF_MIN(least, p.v[i]);
	free(p.v);
	return least;
}

uint32_t df_tied_before(void)
{
	struct df_procs p = {0};
	uint32_t nr = 0;

	df_tied_known(&p);
	for (uint32_t i = 0; i < p.nr; i++)
		nr += p.v[i] < df_rt.self.proc;
	free(p.v);
	return nr;
}

void df_tied_tell(const void *data, size_t bytes)
{
	struct df_procs p = {0};

	if (df_tied_all()) {
		df_ctl_send(NULL, 0, DF_MSG_TOLD, data, bytes);
		return;
	}
	df_tied_known(&p);
	for (uint32_t i = 0; i < p.nr; i++)
		df_ctl_send(NULL, p.v[i], DF_MSG_TOLD, data, bytes);
	free(p.v);
}

int df_tied_all(void)
{
	return also != NULL;
}
