/* The frames that two endpoints exchange, and the ends of connectors; see net.h. */
#ifndef DF_TRANSPORT_NET_CONN_H
#define DF_TRANSPORT_NET_CONN_H

#include <stdint.h>
#include <uthash.h>

#include "runtime/blocks.h"
#include "runtime/base/list.h"
#include "runtime/transport/arena/arena.h"
#include "runtime/transport/net/medium.h"
#include "runtime/transport/transport.h"

/*
 * Types of frames. `to`, `pos`, `aux`, `a`, `b` and `at` are fields of the frame. `to` is the
 * number of the connector's end at the side that receives the frame, except in OPEN.
 */
enum df_net_type {
	/* slice `pos` for connector `to`, from our end `aux`; its bytes follow as payload */
	DF_NET_DATA = 1,
	/* connector `to`: slices before `pos` are consumed, those before `aux` received */
	DF_NET_CREDIT,
	DF_NET_ACK, /* carries only `ack`, as every frame does */
	DF_NET_BYE, /* the process exits normally; a later disconnect is not a fault */
	/* first frame of a session: all credits have been sent; slices may be sent again */
	DF_NET_TOLD,
	DF_NET_SETUP, /* a medium's own message, over the session's streams */
	/* Numbered (seq), and kept until acknowledged: */
	/*
	 * announces a connector: its key `aux`, the sender's end `to`, the first position `pos`,
	 * `a` slots of `b` bytes at `at`
	 */
	DF_NET_OPEN,
	DF_NET_ATTACH, /* answers an OPEN: the sender's end is `aux`, its slots are at `at` */
	/*
	 * the owner has closed its end `pos` of the connector with key `aux`; it has consumed all
	 * slices before `at`
	 */
	DF_NET_CLOSE,
	DF_NET_DETACH, /* the sender has closed its end; it has consumed all slices before `pos` */
	DF_NET_NR
};

/* A frame on the wire, in machine byte order, which both ends have agreed on. */
struct df_net_frame {
	uint32_t type, bytes; /* bytes: of the payload that follows; DATA only */
	uint32_t a, b;
	uint64_t to, pos, aux;
	uint64_t seq; /* number of a numbered frame, from 1; else 0 */
	/* All numbered frames of the peer up to this one have arrived; 0: no statement. */
	uint64_t ack;
	uint64_t at; /* DATA: address of the payload in the receiver's memory */
	/* Remote key of that address, for each port of the receiver; 0: none. */
	uint32_t rkey[DF_NET_RAILS];
};

/* Memory that a medium may access remotely, with keys for each port of this endpoint. */
struct df_net_mem {
	void *mr[DF_NET_RAILS]; /* the first is NULL if it is not registered */
	uint32_t lkey[DF_NET_RAILS], rkey[DF_NET_RAILS];
};

/*
 * Flags of OPEN and ATTACH beside the slot size. AT_GPU: the slots are in GPU memory, which only
 * RDMA reaches. AT_HOST: CPU threads read and write the slots, so the other side's must be in host
 * memory too. SENDS: the owner is the sender.
 */
#define DF_NET_AT_GPU	  (1u << 31)
#define DF_NET_AT_HOST	  (1u << 30)
#define DF_NET_SENDS	  (1u << 29)
#define DF_NET_SLOT_BYTES (DF_NET_SENDS - 1)

/*
 * Upper bounds of a connector, from the largest settings for the number and the size of slots. The
 * side that accepts an offer allocates as much, so it checks the offer.
 */
#define DF_NET_SLOTS_MAX      (1u << 20)
#define DF_NET_CONN_BYTES_MAX (4ull << 30)

static inline int df_net_too_large(uint32_t nr_slots, uint32_t slot_bytes)
{
	return nr_slots > DF_NET_SLOTS_MAX || slot_bytes > DF_NET_SLOT_BYTES ||
	       (uint64_t)nr_slots * slot_bytes > DF_NET_CONN_BYTES_MAX;
}

/* One end of a connector. It belongs to the endpoint's thread, except where noted. */
struct df_net_conn {
	struct df_conn conn; /* must be the first member */
	struct df_net_link *link;
	/* in the endpoint's inbox (under the lock), later in the link's list */
	struct df_list node;
	UT_hash_handle hh; /* of the link's `owned`; under the lock */
	struct df_block block;
	struct df_far_block far; /* the slots, if they are in GPU memory */
	uint32_t nr_slots, slot_bytes;
	uint64_t base;
	uint64_t id, peer_id; /* 0: not yet known */
	uint64_t next;	      /* sender: the first slice not yet given to the medium */
	uint64_t consumed;    /* sender: slices that the peer has consumed, by its credits */
	/* sender: slices that the peer has received; receiver: slices received without a gap */
	uint64_t received;
	uint64_t told_head, told_received; /* receiver: values in the last credit sent */
	/* receiver, by slot: number of the slice in it, plus 1 */
	uint64_t *have;
	struct df_net_mem mem;
	uint64_t peer_at; /* the other side's slots and their keys */
	uint32_t peer_rkey[DF_NET_RAILS];
	uint64_t left;	  /* number of the frame that announced our leaving; 0: we have not left */
	uint32_t refs;	  /* frames that the medium holds */
	uint8_t receives; /* whether a slice has arrived */
	uint64_t behind;  /* df_net_gpu_ops.ask() before GPU slots are freed; 0: not yet called */
	uint8_t gpu, peer_gpu; /* whether our slots, and the other side's, are in GPU memory */
	uint32_t says;	       /* flags for OPEN and ATTACH: DF_NET_AT_HOST, DF_NET_SENDS */
	uint32_t gone;	       /* set when this process no longer uses it; atomic */
	uint32_t closed;       /* set when its owner, on the other side, has closed it; atomic */
};

/*
 * A connector that the other side has announced and that no thread has opened here. Under the lock.
 */
struct df_net_offer {
	UT_hash_handle hh;
	uint64_t key, id, base, at;
	uint32_t nr_slots, slot_bytes, rkey[DF_NET_RAILS];
	uint32_t says; /* DF_NET_AT_GPU, DF_NET_AT_HOST, DF_NET_SENDS */
};

/* A numbered frame that has not been acknowledged. */
struct df_net_note {
	struct df_list node;
	struct df_net_frame frame;
};

#endif
