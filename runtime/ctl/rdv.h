/*
 * The rendezvous: serving an id and joining by it. All functions are called under the control
 * plane's lock unless they say otherwise.
 *
 * A *session* (struct df_rdv) belongs to an id and lives in the process that serves it. The ids of
 * ncclCommInitRankScalable() after the first are relays: they forward the frames of their ranks to
 * the session of the first id, and its answers back. An *up* is the way from a process to a
 * session: a connection, or only function calls if the session is in this process. A *join* is all
 * local ranks that join by one id.
 */
#ifndef DF_RUNTIME_CTL_RDV_H
#define DF_RUNTIME_CTL_RDV_H

#include "runtime/ctl/ctl_int.h"
#include "runtime/ctl/link.h"

struct df_rdv_hello {
	uint64_t proc; /* the process that joins */
};

struct df_checkin {
	unsigned char id0[128]; /* the communicator's first id */
	int32_t nranks, nr_ids;
	uint64_t part; /* root of the process's part of the overlay */
	struct df_member member;
	char unable[96], bound[64]; /* struct df_ctl_limits; "" for none */
};

/*
 * Followed by nranks keys, nranks members (whose keys are zero), and nranks parts. On the wire only
 * what precedes the members is masked. That is little, which matters because a large job gets many
 * tables.
 */
struct df_rdv_table {
	uint64_t hash;
	uint32_t nranks, pad;
};

static inline size_t df_rdv_table_secret(uint32_t nranks)
{
	return sizeof(struct df_rdv_table) + (size_t)nranks * sizeof(struct df_key);
}

struct df_rdv_error {
	int32_t error, pad;
	char reason[240];
};

struct df_rdv_end;

/* The way from a process to a session. */
struct df_rdv_up {
	struct df_id_tail id;
	struct df_link *link;	/* to a session of another process */
	struct df_rdv_end *end; /* to a session of this process */
	uint64_t retry_at, retry_ns, give_up_at, shut_since;
	int serves;   /* rank 0 of an id by address is in this process, and so is the session */
	int open;     /* check-ins may be sent */
	int answered; /* the session has sent a frame */
	int hung_up;  /* it was once closed before the session had sent a frame */
	int remote;   /* the session is on another node */
	int tabled;   /* the session has sent the table, and has no acknowledgement yet */
	/* callbacks of the owner */
	void (*opened)(struct df_rdv_up *up);
	void (*input)(struct df_rdv_up *up, unsigned type, const void *data, size_t bytes);
	void (*failed)(struct df_rdv_up *up, int error, const char *reason);
	void *owner;
};

void df_rdv_up_start(struct df_rdv_up *up);
void df_rdv_up_send(struct df_rdv_up *up, unsigned type, const void *data, size_t bytes);
void df_rdv_up_stop(struct df_rdv_up *up);
/* Retries if that is due. Returns when to call again, or 0. */
uint64_t df_rdv_up_timer(struct df_rdv_up *up, uint64_t now);

/*
 * Opens the session of an id that was made here. front: the id's first eight bytes. Takes the lock
 * itself.
 */
int df_rdv_open(const struct df_id_tail *id, uint64_t front);
/*
 * Opens the session of an id by address, which rank 0 serves. Returns 0 also if it is open already.
 */
int df_rdv_open_address(const struct df_id_tail *id);
struct df_rdv *df_rdv_find(uint64_t nonce);
/* Returns the secret of an id that is served here, or NULL. */
const struct df_key *df_rdv_secret(uint64_t nonce);

/*
 * The first frame of an accepted connection: decides what the link is for. A result below 0: it
 * does not belong here.
 */
int df_rdv_introduce(struct df_link *link, const void *data, size_t bytes);
/* A process spoke NCCL's own bootstrap protocol to us, with this magic. */
void df_rdv_unshimmed(uint64_t magic);
/* A process joins a session: over a link, or in this process by an up. */
struct df_rdv_end *df_rdv_attach(struct df_rdv *rdv, struct df_link *link, struct df_rdv_up *up);
/* The end has sent this frame. */
int df_rdv_say(struct df_rdv_end *end, unsigned type, const void *data, size_t bytes);
/* The end has left, died or failed. */
void df_rdv_detach(struct df_rdv_end *end, int error, const char *why);

/*
 * For the loop: returns 1 if ptr is the listener of a session by address, after accepting its
 * connections.
 */
int df_rdv_accept(void *ptr);
uint64_t df_rdv_timers(uint64_t now);
uint64_t df_join_timers(uint64_t now);
void df_rdv_forget_all(void);
/* The join with this token needs a connection that could not be made. text: from df_link_why(). */
void df_join_unreached(uint64_t token, int error, const char *text);
/* The part of the overlay that the join with this token needs has been joined with ours. */
void df_join_merged(uint64_t token);
/*
 * Lists the ranks that have not joined the session with this id hash. Returns their number or
 * -ENOENT.
 */
int df_rdv_missing(uint64_t id_hash, int *ranks, int max);

/* Maps ranks to ids as NCCL does. */
int df_rdv_id_of_rank(int rank, int nranks, int nr_ids);

#endif
