/*
 * The overlay: a tree of links between processes, shared by all communicators, and what travels on it. A
 * process has at most one link up and DF_TREE_K links down. Messages are flooded: every process passes
 * them on over its other links and drops what it has seen, so the shape matters for cost only, never
 * for correctness, even while the tree is being repaired. All under the control plane's lock.
 */
#ifndef DF_CTL_TREE_H
#define DF_CTL_TREE_H

#include "runtime/ctl/ctl_int.h"

#define DF_TREE_K 8

/* Links down in use: DF_TREE_K, less in tests that want deep trees. */
extern int df_tree_k;

void df_tree_init(void);
void df_tree_forget_all(void);
uint64_t df_tree_timers(uint64_t now);

/* The root of our part of the overlay. */
uint64_t df_tree_root(void);
/*
 * Joins our part with that of `target`; token is given back by df_join_merged() when the two are one.
 * Repeating it does no harm.
 */
void df_tree_merge(const struct df_member *target, uint64_t token);

/* 1: the process has died or left. */
int df_tree_is_dead(uint64_t proc);
/* Looks for a place in the overlay: until it has one, or knows that there is none, it has no way to some of the others. */
int df_tree_looking(void);
/* Our goodbye has been flooded: who asks us for a place from now on is told what it says. */
void df_tree_leave(uint64_t status, const void *words, size_t bytes);
/* 1: a neighbour has not answered our goodbye, or something has come that has not been read. We do not go before. */
int df_tree_unheard(void);
/* Answers the goodbyes of neighbours, if those may go now. Called whenever that may have become so. */
void df_tree_answer(void);
/* Queues death() for it if it is. */
void df_tree_tell_again(uint64_t proc);
/* Number of tree links now (for tests: at most DF_TREE_K + 1). */
int df_tree_links(void);
/* A process has gone, seen by us or told by others: spreads it, breaks its communicators. words: what it leaves. */
void df_tree_death(uint64_t proc, int in_order, const void *words, size_t bytes);

/* ---- floods (flood.c) ------------------------------------------------------------------------------- */

enum df_flood_type {
	DF_FLOOD_SHARE = 1, /* of an allgather */
	DF_FLOOD_NEED,	    /* a share is missing */
	DF_FLOOD_LEFT,	    /* a rank has left a communicator */
	DF_FLOOD_MSG,	    /* df_ctl_send() */
	DF_FLOOD_DEATH,	    /* body: process */
	DF_FLOOD_EXIT,	    /* the origin ends in order; body: its status, and what it leaves */
	DF_FLOOD_MERGED,    /* body: token; to one process */
	DF_FLOOD_UNREACHED, /* body: struct df_unreached; to one process */
	DF_FLOOD_CUT,	    /* body: the parent to let go of; to one process */
	DF_FLOOD_REPAIR,    /* the overlay was broken and is whole again */
};

/* The part of the overlay that a merge needs cannot be reached. */
struct df_unreached {
	uint64_t token;
	int32_t error, pad;
	char text[240];
};

struct df_link;

/* To all processes of the overlay; to: only this one looks at it (0: all). */
int df_flood_send(enum df_flood_type type, uint64_t to, const void *a, size_t a_bytes,
		  const void *b, size_t b_bytes);
/* A flood came in over this link. < 0: not well-formed. */
int df_flood_input(struct df_link *from, const void *data, size_t bytes);
/* The overlay's shape has changed here: tells all, who learn the ways anew and send their last messages again, as we do. */
void df_flood_changed(void);
/* Calls the runtime's callbacks; under no lock. Control thread only. */
void df_flood_deliver(void);
void df_flood_forget_all(void);
/* Queues a callback. */
void df_flood_queue_death(uint64_t proc, int in_order, int member);
/* The circle we are on has to be cut at our link to this parent. */
void df_tree_cut(uint64_t parent);
/* Tells the transports; under no lock. */
void df_tree_tell_death(uint64_t proc);

/* Sends on all tree links but one; how many. */
unsigned df_tree_send_all(const struct df_link *except, unsigned type, const void *a,
			  size_t a_bytes, const void *b, size_t b_bytes);
/* Sends on the link to this neighbour, but not on `except`; 0: there is none such. */
unsigned df_tree_send_to(uint64_t proc, const struct df_link *except, unsigned type, const void *a,
			 size_t a_bytes);

#endif
