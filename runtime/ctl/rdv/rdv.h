/*
 * The rendezvous: who serves an id, who joins by it. All functions under the control plane's lock unless
 * they say otherwise.
 *
 * A *session* (struct df_rdv) belongs to an id and lives in the process that serves it. The ids of
 * ncclCommInitRankScalable after the first are relays: they pass what their ranks say to the session of the
 * first id, and its answers back. An *up* is the way from a process to a session: a connection, or
 * nothing but function calls when the session is here. A *join* is all local ranks that join by one id.
 */
#ifndef DF_RUNTIME_CTL_RDV_RDV_H
#define DF_RUNTIME_CTL_RDV_RDV_H

#include "runtime/ctl/ctl_int.h"
#include "runtime/ctl/link.h"

struct df_rdv_hello {
	uint64_t proc; /* that joins */
};

struct df_checkin {
	unsigned char id0[128]; /* first id of the communicator */
	int32_t nranks, nr_ids;
	uint64_t part; /* root of the process's part of the overlay */
	struct df_member member;
	char unable[96], bound[64]; /* struct df_ctl_limits; "" where there is none */
};

/*
 * Followed by nranks keys, as many members (whose keys are zero), and as many parts. On the wire all before the members is
 * masked, and that is little: a large job gets many tables.
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

/* The way to a session. */
struct df_rdv_up {
	struct df_id_tail id;
	struct df_link *link;	/* remote */
	struct df_rdv_end *end; /* local */
	uint64_t retry_at, retry_ns, give_up_at, shut_since;
	int serves;   /* rank 0 of an id by address is here: so is the session */
	int open;     /* check-ins may be sent */
	int answered; /* the session has said something */
	int hung_up;  /* it was closed without that, once */
	int remote;   /* the way leads to another node */
	int tabled;   /* it has sent the table, we have not confirmed yet */
	/* Callbacks of the owner. */
	void (*opened)(struct df_rdv_up *up);
	void (*input)(struct df_rdv_up *up, unsigned type, const void *data, size_t bytes);
	void (*failed)(struct df_rdv_up *up, int error, const char *reason);
	void *owner;
};

void df_rdv_up_start(struct df_rdv_up *up);
void df_rdv_up_send(struct df_rdv_up *up, unsigned type, const void *data, size_t bytes);
void df_rdv_up_stop(struct df_rdv_up *up);
/* Retries what is due; the next time, or 0. */
uint64_t df_rdv_up_timer(struct df_rdv_up *up, uint64_t now);

/* Opens the session of an id made here; front: the magic of its first bytes. Takes the lock itself. */
int df_rdv_open(const struct df_id_tail *id, uint64_t front);
/* For ids by address: rank 0 serves. 0 also if it is open already. */
int df_rdv_open_address(const struct df_id_tail *id);
struct df_rdv *df_rdv_find(uint64_t nonce);
/* The secret of an id that is served here; NULL. */
const struct df_key *df_rdv_secret(uint64_t nonce);

/* Somebody comes to a session over a link, or locally by an up. */
struct df_rdv_end *df_rdv_attach(struct df_rdv *rdv, struct df_link *link, struct df_rdv_up *up);
/* What it says. */
int df_rdv_say(struct df_rdv_end *end, unsigned type, const void *data, size_t bytes);
/* It has gone. */
void df_rdv_detach(struct df_rdv_end *end, int error, const char *why);

/* The loop: 1 if ptr is the listener of a session by address, and was served. */
int df_rdv_accept(void *ptr);
uint64_t df_rdv_timers(uint64_t now);
uint64_t df_join_timers(uint64_t now);
void df_rdv_forget_all(void);
/* A connection that the join with this token needs did not come about; text: df_link_why(). */
void df_join_unreached(uint64_t token, int error, const char *text);
/* Our part of the overlay is joined with the one that the join with this token needed. */
void df_join_merged(uint64_t token);
/* Ranks that have not come to the session or join with this id hash; -ENOENT. */
int df_rdv_missing(uint64_t id_hash, int *ranks, int max);

/* As NCCL spreads ranks over ids. */
int df_rdv_id_of_rank(int rank, int nranks, int nr_ids);

#endif
