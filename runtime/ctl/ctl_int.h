/*
 * What the files of the control plane share. One process has one `df_ctl`: everything in it is guarded by
 * its lock (DF_RANK_CTL), which is never held across a call that can block: sockets are non-blocking,
 * waiting threads sleep on a futex of their own with the lock released. The control thread alone frees
 * connections; other threads only queue bytes on them.
 *
 *   thread.c  start, epoll loop, timers, waiting, fork    rdv.c, rdv_open.c  the serving side
 *   link.c    sockets, frames                             join.c    rendezvous: the joining side
 *   greet.c   the greeting: proof of the key
 *   accept.c  connections begin, strangers                up.c      the way from a join to a session
 *   tree.c    the overlay of links, paths, deaths         group.c   communicators
 *   attach.c  getting a link up: merges, repairs          gather.c  allgather
 *   flood.c   messages over the overlay                   fetch.c   descriptors of shared memory
 *   probe.c   deaths that nobody saw                      decline.c a rank that can't come
 *   addr.c, id.c
 */
#ifndef DF_RUNTIME_CTL_CTL_INT_H
#define DF_RUNTIME_CTL_CTL_INT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
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

/* ---- addresses (addr.c) ---------------------------------------------------------------------------- */

/* An abstract unix socket. Its name is a random number of its own: every user of the machine can read it. */
socklen_t df_addr_unix(uint64_t sock, union df_sockaddr *out);
uint64_t df_addr_random(void);
/* The soft limit of open files as high as it may be, as NCCL's root has it. 1: it was lower. */
int df_addr_raise_files(void);

/* ---- ids (id.c) ------------------------------------------------------------------------------------ */

#define DF_ID_TAIL  40
#define DF_ID_MAGIC 0x3144496d68736664ull /* "dfshmID1" */
/* What NCCL's own handle begins with under NCCL_COMM_ID. */
#define DF_ID_ADDR_MAGIC 0x0280028002800280ull
#define DF_ID_BY_ADDR	 1u
#define DF_ID_HAS_TCP4	 2u
#define DF_ID_HAS_TCP6	 4u

/* The bytes of NCCL's id that its handle leaves unused. magic lies behind what any handle of NCCL's has. */
struct df_id_tail {
	struct df_key secret; /* by which ranks prove that they have the id; zero by address */
	uint64_t sock;	      /* struct df_member; 0 by address */
	uint64_t magic;
	uint32_t version, flags;
	uint64_t nonce; /* names the id: random, public */
	uint64_t proc;	/* of the process that serves it; 0 by address: rank 0 does */
	uint32_t pid;
	uint16_t port, pad;
	uint8_t ip[16];
	uint64_t host;
};

/* -EPROTO: not one of ours. */
int df_id_open(const unsigned char id[128], struct df_id_tail *out);
/* As in runtime/dfshim.h. */
uint64_t df_id_hash(const unsigned char id[128]);
void df_id_address(const struct df_id_tail *tail, union df_sockaddr *out);
/* The same as text: where other nodes reach who serves the id. Returns text; "" if it has no address. */
const char *df_id_at(const struct df_id_tail *tail, char text[DF_ADDR_TEXT]);

/* ---- waiting (thread.c) ---------------------------------------------------------------------------- */

/* A thread in a blocking call; lives on its stack while linked. */
struct df_waiter {
	struct df_list all, on;
	uint32_t word;
};

/*
 * Sleeps until done(arg), under the lock, which is released while sleeping. -ECANCELED: *stop. `on` is
 * woken by df_waiters_wake().
 */
int df_wait_for(struct df_list *on, int (*done)(void *arg), void *arg, const uint32_t *stop);
void df_waiters_wake(struct df_list *on);

/* 1: what this process lacks, not the other side. */
static inline int df_ctl_lacks(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -ENOBUFS;
}

/* ---- groups: the communicators of this process (group.c, gather.c) ---------------------------------- */

struct df_gather {
	struct df_list node;
	uint64_t seq;
	size_t bytes;
	int nr_in, nr_local_in,
		nr_left; /* ranks that gave, local ones, local ones that still come */
	int error;
	int sent;		   /* our share went out to the other processes */
	uint64_t nr_repairs;	   /* of the overlay when our share went out */
	uint64_t need_at, need_ns; /* when to ask for what is missing */
	uint8_t *got;		   /* by rank */
	uint8_t *data;		   /* nranks * bytes */
};

/* The last shares that this process sent, for who missed them because a relay died. */
struct df_share {
	uint64_t seq;
	void *frame;
	size_t bytes;
};

struct df_group {
	UT_hash_handle hh;
	uint64_t hash;
	int nranks, nr_local;
	uint64_t proc; /* of the process that made it: after a fork it is nobody's */
	int refs;      /* local ranks that have a handle, and joins that deliver it */
	struct df_member *members;
	uint64_t *procs; /* distinct, in order of their first rank */
	int nr_procs;
	int error; /* -ECONNRESET once a member has died */
	int gone;  /* members that ended in order */
	struct df_list gathers;
	uint64_t nr_repairs; /* of the overlay that the last gather has survived */
	uint64_t end;	     /* gathers from this one on never complete: somebody has left */
	uint64_t nr_done;    /* gathers that all local ranks have left */
	struct df_list waiters;
	struct df_share shares[2];
};

struct df_ctl_comm {
	struct df_group *group;
	int rank;
	uint64_t nr_gathers;
};

/* Under the lock: finds or makes the group; members is copied when it is made. Takes a reference. */
int df_group_get(uint64_t hash, const struct df_member *members, int nranks, struct df_group **out);
struct df_group *df_group_find(uint64_t hash);
void df_group_put(struct df_group *g);
/* 0: made before a fork, by the parent. */
int df_group_alive(const struct df_group *g);
int df_group_has(const struct df_group *g, uint64_t proc);
/* A process has gone: breaks groups, wakes who waits. Returns 1 if it was a member of any. */
int df_group_death(uint64_t proc, int in_order);

/* A share arrived from another process. -EPROTO: not well-formed. */
int df_gather_input(const void *data, size_t bytes);
/* Somebody misses shares of ours. */
int df_gather_need(const void *data, size_t bytes);
/* Asks for what is missing in pending gathers; all: at once, else those that are due. Next time or 0. */
uint64_t df_gather_ask(uint64_t now, int all);
void df_gather_recheck(struct df_group *g);
/* A rank leaves after so many gathers: those that come can't complete. Told to the others. */
void df_gather_leave(struct df_group *g, uint64_t seq);
int df_gather_left(const void *data, size_t bytes);
void df_gather_drop(struct df_group *g);
/* Takes what came before the group was there. */
void df_gather_unstash(struct df_group *g);

/* ---- the process ------------------------------------------------------------------------------------ */

struct df_link;
struct df_rdv;
struct df_join;
struct df_tree;

struct df_ctl {
	struct df_mutex lock;
	int started;
	struct df_member self;
	int epoll_fd, event_fd, unix_fd, tcp_fd, spare_fd;
	uid_t began_as;		/* user when the sockets were made */
	struct df_list waiters; /* all of them */
	struct df_group *groups;
	struct df_rdv *rdvs;
	struct df_rdv *inherited; /* in a forked child: its parent's, which stay allocated */
	struct df_join *joins;
	struct df_list links, dead_links;
	uint64_t timer_ns; /* when the loop wakes by itself; 0 never */
	const struct df_ctl_events *events;
	int leaving;
	uint64_t nr_repairs;	/* of the overlay, seen so far */
	uint32_t scope;		/* of our interface, for link-local addresses of others */
	int nr_strangers;	/* accepted, not yet introduced */
	uint64_t no_file_since; /* no connection could be made or taken, for want of descriptors */
	char notes[8][256];	/* log lines, written once the lock is released */
	int warns;		/* bits: those that are warnings */
	int nr_notes;
};

extern struct df_ctl df_ctl;

void df_ctl_lock(void);
void df_ctl_unlock(void);
/* Starts thread and sockets; under no lock. */
int df_ctl_start(void);
/* A line for the log at info, written after the lock is released. */
void df_ctl_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void df_ctl_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Makes the loop look at its timers no later than at `when`; under the lock. */
void df_ctl_timer(uint64_t when_ns);

#endif
