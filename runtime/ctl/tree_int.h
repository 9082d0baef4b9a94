/* Shared by tree.c and attach.c: the state of the overlay in this process, and its frames. */
#ifndef DF_CTL_TREE_INT_H
#define DF_CTL_TREE_INT_H

#include <uthash.h>

#include "runtime/ctl/link.h"
#include "runtime/ctl/tree.h"

#define PATH_MAX_HOPS 64

/* A process and its addresses, as in struct df_member. */
struct hop {
	uint64_t proc, host, sock;
	struct df_key key;
	char tcp[64];
};

enum verdict { TAKEN, GO_THERE, ONE_ALREADY, NOT_ME };

struct tree_reply {
	uint32_t verdict, pad;
	struct hop there;
};

struct tree_path {
	uint32_t nr_hops,
		nr_children; /* parent first, root last; then all children of the parent */
	struct hop hops[];
};

struct tree_merge {
	struct hop target;
	uint64_t asker, token;
	uint64_t ttl;
};

struct peer {
	struct df_link *link;
	struct hop who;
	int sure; /* whether it has sent something, so both sides know that this is a link */
};

struct tree_exit {
	uint64_t proc, status;
	uint64_t words[]; /* data that it left */
};

struct merge {
	struct df_list node;
	struct tree_merge m;
};

struct corpse {
	UT_hash_handle hh;
	uint64_t proc, since_ns;
	int in_order; /* 0: it died; else 1 + its exit status */
	size_t bytes;
	uint64_t words[]; /* data that it left */
};

struct df_tree {
	struct peer up, down[DF_TREE_K];
	int nr_down, next_down;
	struct hop path[PATH_MAX_HOPS], siblings[DF_TREE_K];
	int nr_path, nr_siblings;
	/* the attempt to get a link up */
	struct df_link *attach;
	struct hop target;
	int redirects, repairing;
	struct merge *merge; /* the merge that needs the link; NULL: a repair */
	struct hop *candidates;
	int nr_candidates, next_candidate;
	/*
	 * A live process redirected us to a child that has died. The live process will notice that,
	 * so we ask it again.
	 */
	int misled, rounds;
	uint64_t again_at;
	struct df_list merges; /* merges that wait for their turn */
	/* after a cycle was cut: where and when to check whether this is still one part */
	struct hop verify;
	uint64_t verify_at;
	/*
	 * When to leave a parent that has been asked for a sign of life, 0: it has not been; and
	 * the parent that was left last.
	 */
	uint64_t doubt_at, left;
	struct corpse *corpses;
	struct corpse *own; /* our own goodbye; NULL before it */
	void (*on_death[8])(uint64_t proc);
};

extern struct df_tree df_tree;

struct hop df_tree_self(void);
struct hop df_tree_hop(const struct df_member *m);
/* Sends our children, or only this one, the path to the root. */
void df_tree_send_path(struct df_link *only);
/* Makes the connection a link of the tree. */
void df_tree_link(struct peer *p, struct df_link *link, const struct hop *who);

/* Handles a TREE_EXIT. Returns 0 or -EPROTO. */
int df_tree_exit_input(const struct df_link *link, const void *data, size_t bytes);

/* As df_rdv_introduce(). */
int df_tree_introduce(struct df_link *link, const void *data, size_t bytes);

#endif
