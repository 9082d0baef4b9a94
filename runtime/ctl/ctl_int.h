/*
 * Shared by the files of the control plane. A process has one `df_ctl`. All of it is guarded by its
 * lock (DF_RANK_CTL), which is never held across a call that can block: sockets are non-blocking,
 * and a waiting thread releases the lock and sleeps on its own futex. Only the control thread frees
 * connections; other threads only queue bytes on them.
 *
 *   ctl_thread.c  start, epoll loop, timers, waits, fork   rdv.c     serves a rendezvous
 *   link.c    sockets, frames                              rdv_join.c joins a rendezvous
 *   greet.c   the greeting: proof of the key               rdv_up.c  from a join to a session
 *   accept.c  connects and accepts                         group.c   communicators
 *   tree.c    the overlay of links, paths, deaths          gather.c  allgather
 *   attach.c  finds a parent: merges, repairs              fetch.c   descriptors of shared memory
 *   flood.c   messages over the overlay                    decline.c a rank that cannot join
 *   probe.c   looks for unnoticed deaths                   id.c      ids
 */
#ifndef DF_RUNTIME_CTL_CTL_INT_H
#define DF_RUNTIME_CTL_CTL_INT_H

#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "runtime/base/err.h"
#include "runtime/base/list.h"
#include "runtime/base/lock.h"
#include "runtime/base/net/sockaddr.h"
#include "kernels/abi.h"
#include "runtime/ctl/ctl.h"

#define DF_CTL_WIRE_VERSION ((uint32_t)DF_CTL_VERSION << 16 | DF_ABI_VERSION)
#define DF_CTL_MISSING_MAX  64
#define DF_GATHER_MAX_TOTAL (1ull << 32)

/* ---- ids (id.c) ------------------------------------------------------------------------------ */

#define DF_ID_TAIL  40
#define DF_ID_MAGIC 0x3144496d68736664ull /* "dfshmID1" */
/* NCCL's own id, to which mode trace has added our tail: "dfshmWD1". */
#define DF_ID_WATCH_MAGIC 0x3144576d68736664ull
#define DF_ID_NAME_MAGIC  0x3144476d68736664ull /* only a name */
/* NCCL's own handle begins with this if NCCL_COMM_ID is set. */
#define DF_ID_ADDR_MAGIC 0x0280028002800280ull
#define DF_ID_BY_ADDR	 1u
#define DF_ID_HAS_TCP4	 2u
#define DF_ID_HAS_TCP6	 4u

/*
 * The bytes of NCCL's id that NCCL's handle leaves unused. No NCCL handle reaches as far as
 * `magic`.
 */
struct df_id_tail {
	/* key with which ranks prove that they have the id; zero if the id is an address */
	struct df_key secret;
	uint64_t sock; /* as in struct df_member; 0 if the id is an address */
	uint64_t magic;
	uint32_t version, flags;
	uint64_t nonce; /* names the id: random, public */
	/* process that serves the id; 0 if the id is an address, which rank 0 serves */
	uint64_t proc;
	uint32_t pid;
	uint16_t port, pad;
	uint8_t ip[16];
	uint64_t host;
};

/* Returns -EPROTO if it is not an id of dfshim. */
int df_id_open(const unsigned char id[128], struct df_id_tail *out);
/* As in runtime/dfshim.h. */
uint64_t df_id_hash(const unsigned char id[128]);
void df_id_address(const struct df_id_tail *tail, union df_sockaddr *out);
/*
 * The address, as text, at which other nodes reach the process that serves the id; "" if it has
 * none. Returns text.
 */
const char *df_id_at(const struct df_id_tail *tail, char text[DF_ADDR_TEXT]);

/* ---- waiting (ctl_thread.c) ------------------------------------------------------------------ */

/* A thread in a blocking call; lives on its stack while linked. */
struct df_waiter {
	struct df_list all, on;
	uint32_t word;
};

/*
 * Sleeps until done(arg). done() is called under the lock, which is released while sleeping.
 * df_waiters_wake() wakes the waiters of `on`. Returns -ECANCELED if *stop was set.
 */
int df_wait_for(struct df_list *on, int (*done)(void *arg), void *arg, const uint32_t *stop);
void df_waiters_wake(struct df_list *on);

/* Whether the error means that this process, not the other side, lacks a resource. */
static inline int df_ctl_lacks(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

/* ---- groups: the communicators of this process (group.c, gather.c) --------------------------- */

struct df_gather {
	struct df_list node;
	uint64_t seq;
	size_t bytes;
	/*
	 * numbers of ranks that have contributed, of local ranks among them, and of local ranks
	 * that have not returned
	 */
	int nr_in, nr_local_in, nr_left;
	int error;
	int sent;		   /* our share has been sent to the other processes */
	uint64_t nr_repairs;	   /* df_ctl.nr_repairs when our share was sent */
	uint64_t need_at, need_ns; /* when to ask for missing shares, and the interval */
	uint8_t *got;		   /* by rank: whether it has contributed */
	uint8_t *data;		   /* nranks * bytes */
};

/*
 * The last shares that this process sent. A process that missed one, because a process on the way
 * died, asks for it.
 */
struct df_share {
	uint64_t seq;
	void *frame;
	size_t bytes;
};

struct df_group {
	UT_hash_handle hh;
	uint64_t hash;
	int nranks, nr_local;
	uint64_t proc; /* process that made it: differs from ours after a fork */
	int refs;      /* local ranks with a handle, and joins that will return one */
	struct df_member *members;
	uint64_t *procs; /* without duplicates, in order of their first rank */
	int nr_procs;
	int error; /* -ECONNRESET after a member has died */
	int gone;  /* whether a member has exited normally */
	struct df_list gathers;
	uint64_t nr_repairs; /* df_ctl.nr_repairs when the last completed gather was sent */
	uint64_t end;	     /* gathers with this number or above never complete: a rank has left */
	uint64_t nr_done;    /* number of gathers from which all local ranks have returned */
	struct df_list waiters;
	struct df_share shares[2];
};

struct df_ctl_comm {
	struct df_group *group;
	int rank;
	uint64_t nr_gathers;
};

/* Finds or makes the group, under the lock; copies members when it makes it. Takes a reference. */
int df_group_get(uint64_t hash, const struct df_member *members, int nranks, struct df_group **out);
struct df_group *df_group_find(uint64_t hash);
void df_group_put(struct df_group *g);
/* Returns 0 if the parent made it before a fork. */
int df_group_alive(const struct df_group *g);
int df_group_has(const struct df_group *g, uint64_t proc);
/*
 * A process has ended: fails gathers that need it and wakes the waiters. Returns 1 if it was a
 * member of a group.
 */
int df_group_death(uint64_t proc, int in_order);

/* A share arrived from another process. Returns -EPROTO if it is malformed. */
int df_gather_input(const void *data, size_t bytes);
/* Another process misses shares of ours. */
int df_gather_need(const void *data, size_t bytes);
/*
 * Asks for missing shares of pending gathers that are due, or of all. Returns when to call again,
 * or 0.
 */
uint64_t df_gather_ask(uint64_t now, int all);
void df_gather_recheck(struct df_group *g);
/* A rank leaves after `seq` gathers: later ones cannot complete. Informs the others. */
void df_gather_leave(struct df_group *g, uint64_t seq);
int df_gather_left(const void *data, size_t bytes);
void df_gather_drop(struct df_group *g);
/* Handles the shares that arrived before the group existed. */
void df_gather_unstash(struct df_group *g);

/* ---- the process ----------------------------------------------------------------------------- */

struct df_link;
struct df_rdv;
struct df_join;
struct df_tree;

struct df_ctl {
	struct df_mutex lock;
	int started;
	struct df_member self;
	int epoll_fd, event_fd, unix_fd, tcp_fd, spare_fd;
	uid_t began_as;		/* user id when the sockets were made */
	struct df_list waiters; /* all of them */
	struct df_group *groups;
	struct df_rdv *rdvs;
	/* in a forked child: sessions of the parent, which stay allocated */
	struct df_rdv *inherited;
	struct df_join *joins;
	struct df_list links, dead_links;
	uint64_t timer_ns; /* when the loop wakes by itself; 0: never */
	const struct df_ctl_events *events;
	int leaving;
	uint64_t nr_repairs; /* changes of the overlay's shape that this process has seen */
	uint32_t scope;	     /* of our interface, for link-local addresses of others */
	int nr_strangers;    /* accepted connections that are not identified yet */
	/*
	 * since when no connection could be made for lack of descriptors; 0: connections can be
	 * made
	 */
	uint64_t no_file_since;
	char notes[8][256]; /* log lines, written once the lock is released */
	int warns;	    /* bit i: notes[i] is a warning */
	int nr_notes;
};

extern struct df_ctl df_ctl;

void df_ctl_lock(void);
void df_ctl_unlock(void);
/* Starts thread and sockets. Call under no lock. */
int df_ctl_start(void);
/* Logs a line at info, after the lock has been released. */
void df_ctl_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void df_ctl_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Makes the loop check its timers no later than `when_ns`. Under the lock. */
void df_ctl_timer(uint64_t when_ns);

/* As df_rdv_introduce(). */
int df_fetch_introduce(struct df_link *link, const void *data, size_t bytes);

#endif
