/*
 * Shared by the files that serve a rendezvous: rdv.c (the frames of a session) and rdv_open.c
 * (opening and entering it).
 */
#ifndef DF_RUNTIME_CTL_RDV_RDV_INT_H
#define DF_RUNTIME_CTL_RDV_RDV_INT_H

#include "runtime/ctl/rdv/rdv.h"

enum rdv_state { RDV_OPEN, RDV_TABLE, RDV_CLOSED, RDV_FAILED };

struct df_rdv {
	UT_hash_handle hh;
	uint64_t nonce, front, hash, id_hash;
	struct df_key secret;
	enum rdv_state state;
	int by_address, listen_fd;
	int nranks, nr_ids, nr_in;
	struct df_member *members;
	uint64_t *parts;
	struct df_checkin *held; /* relay: check-ins to forward once its way is open */
	struct df_list ends;
	int nr_acks, nr_acks_wanted;
	int busy;	/* the list of ends is being walked: failing and freeing must wait */
	int fail_error; /* the failure that waits */
	struct df_rdv_error error;
	uint64_t status_at;
	struct df_rdv_up up; /* relay: the way to the first id's session */
	int relay;
	unsigned char id0[128]; /* relay: the first id, as its ranks gave it */
	/*
	 * The first rank whose daemon cannot start, and the first that cannot use the real library;
	 * as texts, or "".
	 */
	char unable[168], bound[112];
	int32_t *missing; /* relay: as last received */
	int nr_missing;
};

struct df_rdv_end {
	struct df_list node;
	struct df_rdv *rdv;
	struct df_link *link;
	struct df_rdv_up *up;
	int nr_checkins, acked, dead;
};

/*
 * A session ends only through these. df_rdv_settle() acts on what has changed; it may free a
 * session by address.
 */
void df_rdv_fail(struct df_rdv *r, int error, const char *reason);
void df_rdv_settle(struct df_rdv *r);
void df_rdv_send_all(struct df_rdv *r, unsigned type, const void *data, size_t bytes);

#define DF_RDV_STATUS_NS (500 * DF_NS_PER_MS)

#endif
