/* What the files of the rendezvous' serving side share: rdv.c (what is said in a session), rdv_open.c (who gets in). */
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
	struct df_checkin *held; /* relay: what it passes on when the way is open */
	struct df_list ends;
	int nr_acks, nr_acks_wanted;
	int busy;	/* the list of ends is being walked: failing and freeing wait */
	int fail_error; /* what waits */
	struct df_rdv_error error;
	uint64_t status_at;
	struct df_rdv_up up; /* relay: the way to the first id's session */
	int relay;
	unsigned char id0[128]; /* relay: what its ranks gave as the first id */
	/* The first rank that can't run under us, and that can't run under the real library; as texts, or "". */
	char unable[168], bound[112];
	int32_t *missing; /* relay: as last heard */
	int nr_missing;
};

struct df_rdv_end {
	struct df_list node;
	struct df_rdv *rdv;
	struct df_link *link;
	struct df_rdv_up *up;
	int nr_checkins, acked, dead;
};

/* Its only ways to an end; settle() draws the consequence, and may free a session by address. */
void df_rdv_fail(struct df_rdv *r, int error, const char *reason);
void df_rdv_settle(struct df_rdv *r);
void df_rdv_send_all(struct df_rdv *r, unsigned type, const void *data, size_t bytes);

#define DF_RDV_STATUS_NS (500 * DF_NS_PER_MS)

#endif
