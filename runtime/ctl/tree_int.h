/* What tree.c and attach.c share: the state of the overlay in this process, and its frames. */
#ifndef DF_CTL_TREE_INT_H
#define DF_CTL_TREE_INT_H

#include <uthash.h>

#include "runtime/ctl/link.h"
#include "runtime/ctl/tree.h"

#define PATH_MAX_HOPS 64

/* A process and how to reach it: what struct df_member says of that. */
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
	int sure; /* it has said something: both sides know that this is a link */
};

struct tree_exit {
	uint64_t proc, status;
	uint64_t words[]; /* what it has left */
};

struct merge {
	struct df_list node;
	struct tree_merge m;
};

struct corpse {
	UT_hash_handle hh;
	uint64_t proc, since_ns;
	int in_order; /* 0: it died; 1 + its exit status */
	size_t bytes;
	uint64_t words[]; /* what it has left */
};

struct df_tree {
	struct peer up, down[DF_TREE_K];
	int nr_down, next_down;
	struct hop path[PATH_MAX_HOPS], siblings[DF_TREE_K];
	int nr_path, nr_siblings;
	/* The attempt to get a link up. */
	struct df_link *attach;
	struct hop target;
	int redirects, repairing;
	struct merge *merge; /* what it is for; NULL: repair */
	struct hop *candidates;
	int nr_candidates, next_candidate;
	/* Somebody lives but named a child that does not: it will notice, we ask again. */
	int misled, rounds;
	uint64_t again_at;
	struct df_list merges; /* waiting */
	/* After a circle was cut: look whether we are still one part. */
	struct hop verify;
	uint64_t verify_at;
	struct corpse *corpses;
	struct corpse *own; /* our own goodbye; NULL: not yet */
	void (*on_death[8])(uint64_t proc);
};

extern struct df_tree df_tree;

struct hop df_tree_self(void);
struct hop df_tree_hop(const struct df_member *m);
/* Tells our children (or one of them) the path to the root. */
void df_tree_send_path(struct df_link *only);
/* The connection becomes a link of the tree. */
void df_tree_link(struct peer *p, struct df_link *link, const struct hop *who);

/* A TREE_EXIT; 0, -EPROTO. */
int df_tree_exit_input(const struct df_link *link, const void *data, size_t bytes);

/* Starts what is waiting for a link up, if nothing is on its way. */
void df_attach_next(void);
void df_attach_merge(const struct tree_merge *m);
/* We have lost our parent, or it has said goodbye: whom to ask, by what it had told us; then df_attach_repair(). */
void df_attach_candidates(const struct hop *path, int nr_path, const struct hop *siblings,
			  int nr_siblings, int in_order);
void df_attach_repair(void);

#endif
