/*
 * The control plane: how ranks find each other, exchange small things, and learn that one has died. One
 * control thread per process (started on first need) serves the rendezvous of ids made here, the links to
 * other processes (unix sockets inside a node, TCP between nodes) and requests for shared memory.
 *
 * A *process* is named by a random 64-bit number; a *member* is one rank of one communicator. Ranks of one
 * process meet in memory, without a socket. After the rendezvous the processes of a communicator form a
 * k-ary tree of links that is shared between communicators; it carries gathers, messages and death.
 *
 * Blocking functions take `stop`: they return -ECANCELED soon after *stop becomes non-zero (and
 * df_ctl_poke() was called). -ECONNRESET: a process that is needed has died. No function is called with
 * a lock of the runtime held, callbacks hold none of ours.
 */
#ifndef DF_CTL_H
#define DF_CTL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/net/auth.h"

#define DF_CTL_VERSION 8

/* What every rank tells all others at the rendezvous: 296 bytes. */
struct df_member {
	uint64_t proc; /* names its process: random, public */
	uint64_t host; /* hash of host and boot id: equal means one node, shared memory works */
	uint32_t pid;
	int32_t rank;	    /* in this communicator */
	int32_t device;	    /* ordinal in its process */
	uint32_t version;   /* DF_CTL_VERSION and ABI, must be equal */
	uint64_t device_id; /* equal for two ranks on one physical device */
	uint32_t avoid;	    /* networks that its communicator does not take; opaque here */
	uint16_t blocks;    /* blocks of its daemon; the communicator uses the smallest */
	uint8_t gpu;	    /* 1: its daemon runs on a GPU */
	uint8_t unable;	    /* 1: its daemon could not start; see struct df_ctl_limits */
	uint64_t settings;  /* hash of what must agree (slots, slot size, programs loaded) */
	uint64_t sock; /* names the unix socket of its control thread (df_addr_unix()); 0 none */
	char tcp[64];  /* host:port of it, "" none */
	char hostname[64];
	uint64_t node;	 /* equal: no network in between; host, unless nodes are emulated */
	uint8_t cal[16]; /* struct df_cal: what it measured of its machine; opaque here */
	char net[64];	 /* host:port where its device takes data from other nodes, "" nowhere */
	/*
	 * Secret of its process: a connection to the process proves that it knows it (base/net/auth.h). Only processes
	 * of the job know it; it is in no log, trace or name.
	 */
	struct df_key key;
};

_Static_assert(sizeof(struct df_member) == 296, "part of the protocol");

/* This process: name, key, host hash, sockets. rank, device, ... are left zero. Starts the thread. */
int df_ctl_self(struct df_member *out);

/* Ids: see runtime/dfshim.h, which declares df_id_create() and its sisters; implemented here. */

struct df_ctl_comm;

/*
 * What a rank can't do, as a reason, or NULL. A communicator is executed by us or by the real library, on all its
 * ranks: where one rank can't do the one and one can't do the other, the rendezvous fails, as soon as it knows.
 */
struct df_ctl_limits {
	const char *unable; /* why its daemon can't start */
	const char *bound;  /* why it can't go over to the real library */
};

/*
 * The rendezvous. me: filled by df_ctl_self() and the caller. limits: NULL for none. Blocks until all nranks have
 * come. -EPROTO: a stranger, other version or settings, rank taken twice, nranks differ; -EOPNOTSUPP: the ranks'
 * limits (the reason is logged on every rank, none hangs). On success *out holds the member table of all ranks.
 */
int df_ctl_join(int nr_ids, const unsigned char (*ids)[128], int nranks, const struct df_member *me,
		const struct df_ctl_limits *limits, const uint32_t *stop, struct df_ctl_comm **out);

/*
 * Who has not come to the rendezvous of the id with this hash (df_id_hash()), as far as this process knows:
 * it serves it, or the server told it (every half second while that changes). Ranks written, at most max,
 * or -ENOENT: no such rendezvous is under way here. Does not block.
 */
int df_ctl_missing(uint64_t id_hash, int *ranks, int max);
/* Where ranks on other nodes have to come to for it: "address:port"; "" unknown. Likewise. size: 72 is enough. */
void df_ctl_rendezvous_at(uint64_t id_hash, char *text, size_t size);

/*
 * A communicator of some members of `parent`, which all call this with the same list (parent's ranks in the
 * new order), avoid (df_member) and hash; no blocking: the table is known already. me: this rank's index in the list.
 */
int df_ctl_derive(struct df_ctl_comm *parent, uint64_t hash, const int *ranks, int nr_ranks, int me,
		  uint32_t avoid, struct df_ctl_comm **out);

/* The member table, nranks rows, constant while the communicator lives. */
const struct df_member *df_ctl_members(const struct df_ctl_comm *c);
uint64_t df_ctl_hash(const struct df_ctl_comm *c);

/*
 * Every rank gives `bytes` bytes and gets those of all, in rank order. The n-th call on one rank meets the n-th
 * call on the others. Blocks. -ECONNRESET also when a rank left before its turn. out: nranks * bytes.
 */
int df_ctl_allgather(struct df_ctl_comm *c, const void *in, size_t bytes, void *out,
		     const uint32_t *stop);

/* Leaves: the local rank is done with it; gathers of others that need it end. Never blocks on peers. */
void df_ctl_leave(struct df_ctl_comm *c);

/* For so long a process waits for a file descriptor, then it lacks them for good. Here and in shared memory. */
#define DF_NO_FILE_NS 2000000000ull

/* Wakes blocking calls so that they look at their `stop`. Async-signal-safe. */
void df_ctl_poke(void);

/* ---- messages between processes -------------------------------------------------------------------- */

enum df_ctl_kind {
	DF_MSG_SNAPSHOT_ASK = 1, /* the checker wants to know what is unfinished */
	DF_MSG_SNAPSHOT,	 /* the answer */
	DF_MSG_SUSPECT,		 /* something here may be stuck: look */
	DF_MSG_RELEASE,		 /* let these waits return; ends what the asking began */
	DF_MSG_END,		 /* these communicators have ended, by a time-out */
	DF_MSG_TOLD,		 /* the verdict is told */
	DF_MSG_LEND,	 /* instances of a collective are more urgent than their priority says */
	DF_MSG_UNMAPPED, /* the sender cannot map the receiver's memory: communicators with both end */
	DF_MSG_USER = 64
};

struct df_ctl_events {
	/* A message; on the control thread: must not block. */
	void (*message)(uint64_t from_proc, uint32_t kind, const void *data, size_t bytes);
	/*
	 * A process has gone: once per process, however many communicators it was part of. in_order: 0 it has died; else it has
	 * exited, and this is one more than its status.
	 */
	void (*death)(uint64_t proc, int in_order);
	/* One has gone inside a rendezvous that this process serves. On the control thread, under its lock: must not block. */
	void (*lost)(const struct df_member *who);
};
void df_ctl_set_events(const struct df_ctl_events *events);

/*
 * Sends to one process of the communicator, or to all others (proc 0). c NULL: to any process of the overlay,
 * which is one that shares a communicator with us, or with one that does, and so on. Queued; never blocks.
 */
int df_ctl_send(struct df_ctl_comm *c, uint64_t proc, uint32_t kind, const void *data,
		size_t bytes);

/* Messages sent by this process to others, and frames that it has put on links for messages, its own or others'. */
void df_ctl_counts(uint64_t *messages, uint64_t *frames);

/* 1: the process has died or left, as far as we know. */
int df_ctl_is_dead(uint64_t proc);

/*
 * Calls death() for each member of the communicator that has died or left already, on the control thread, whether or not it was
 * called before: who has opened the communicator only now has missed it. Does not block.
 */
void df_ctl_tell_deaths(const struct df_ctl_comm *c);

/*
 * The process ends in order: say good-bye on all links, so that it is no death. words: what it leaves to the others, at most
 * DF_WORDS_MAX bytes. For the destructor.
 */
#define DF_WORDS_MAX (1u << 20)
void df_ctl_goodbye(const void *words, size_t bytes);
/* What those have left that have ended in order; fn is called under the control plane's lock: must not call it. */
void df_ctl_each_words(void (*fn)(void *arg, const void *words, size_t bytes), void *arg);

/* ---- for the node-local transport ---------------------------------------------------------------------- */

/* fn is called on the control thread, under no lock, for every process that has gone. At most 8. */
void df_ctl_on_death(void (*fn)(uint64_t proc));

#define DF_FETCH_MAX 60

/*
 * Shared memory of this process, handed out on request by the control thread: segments from number `first`
 * on; fills at most max descriptors and sizes, returns how many. Must not block.
 */
typedef int (*df_fetch_serve_fn)(uint32_t first, int *fds, uint64_t *bytes, int max);
void df_fetch_set_server(df_fetch_serve_fn fn);

/*
 * Asks a process on this node for its segments from `first` on; never blocks. 0: done() is called once, on the
 * control thread under its lock, and owns the descriptors; error -ECONNRESET: the process is gone; -EMFILE: this one
 * may have no more descriptors; -EAGAIN: not now. -ECONNRESET, -EMFILE at once: likewise, without done(). -EAGAIN, -ENOMEM:
 * not now.
 */
typedef void (*df_fetch_done_fn)(void *arg, int error, const int *fds, const uint64_t *bytes,
				 int nr);
int df_fetch_start(const struct df_member *peer, uint32_t first, df_fetch_done_fn done, void *arg);

#endif
