/*
 * Floods: messages that reach every process of the overlay once. The control plane's lock is held,
 * unless said otherwise.
 */
#ifndef DF_RUNTIME_CTL_FLOOD_H
#define DF_RUNTIME_CTL_FLOOD_H

#include <stddef.h>
#include <stdint.h>

struct df_link;

enum df_flood_type {
	DF_FLOOD_SHARE = 1, /* a share of an allgather */
	DF_FLOOD_NEED,	    /* a share is missing */
	DF_FLOOD_LEFT,	    /* a rank has left a communicator */
	DF_FLOOD_MSG,	    /* df_ctl_send() */
	DF_FLOOD_DEATH,	    /* a process has died; body: the process */
	/* the origin exits normally; body: its status, then the data that it leaves */
	DF_FLOOD_EXIT,
	DF_FLOOD_MERGED,    /* body: token; to one process */
	DF_FLOOD_UNREACHED, /* body: struct df_unreached; to one process */
	DF_FLOOD_CUT,	    /* body: the parent whose link to cut; to one process */
	DF_FLOOD_REPAIR,    /* the overlay was broken and has been repaired */
};

/* Floods a message to all processes of the overlay. to: the only process that reads it (0: all). */
int df_flood_send(enum df_flood_type type, uint64_t to, const void *a, size_t a_bytes,
		  const void *b, size_t b_bytes);
/* A flood arrived on this link. A result below 0: it is malformed. */
int df_flood_input(struct df_link *from, const void *data, size_t bytes);

/*
 * The overlay's shape has changed here. Informs all processes: each learns its routes anew and
 * sends its last messages again, and so does this one.
 */
void df_flood_changed(void);
/* Calls the runtime's callbacks. Control thread only; under no lock. */
void df_flood_deliver(void);
void df_flood_forget_all(void);
/* Queues a callback. */
void df_flood_queue_death(uint64_t proc, int in_order, int member);

#endif
