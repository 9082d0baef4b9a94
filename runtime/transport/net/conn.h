/* What travels between two endpoints, and the ends of connectors that it is about; net.h has the whole. */
#ifndef DF_TRANSPORT_NET_CONN_H
#define DF_TRANSPORT_NET_CONN_H

#include <stdint.h>
#include <uthash.h>

#include "runtime/blocks.h"
#include "runtime/base/list.h"
#include "runtime/transport/arena.h"
#include "runtime/transport/net/medium.h"
#include "runtime/transport/transport.h"

enum df_net_type {
	DF_NET_DATA = 1, /* slice pos for connector `to`, from end aux; the payload is its bytes */
	DF_NET_CREDIT, /* connector `to`: slices before pos are consumed, those before aux received */
	DF_NET_ACK,    /* nothing but what every frame carries: ack */
	DF_NET_BYE,    /* the process ends in order: what is cut off now is no fault */
	DF_NET_TOLD,  /* first of a session: all credits have been told; slices may be sent again */
	DF_NET_SETUP, /* between the two sides of a medium; over the session's streams */
	/* Numbered (seq), and kept until acknowledged. */
	DF_NET_OPEN,   /* announces: key aux, our end `to`, base pos, a slots of b bytes at `at` */
	DF_NET_ATTACH, /* to `to`: our end is aux, its slots are at `at` */
	DF_NET_CLOSE, /* to `to`: the owner's end pos, of key aux, is gone; all before `at` was consumed */
	DF_NET_DETACH, /* to `to`: our end is gone; all before pos was consumed */
	DF_NET_NR
};

/* What travels, in the byte order of the machine: both ends have agreed on it. */
struct df_net_frame {
	uint32_t type, bytes; /* of the payload that follows; DATA only */
	uint32_t a, b;
	uint64_t to, pos, aux;
	uint64_t seq; /* of numbered frames, from 1; else 0 */
	uint64_t
		ack; /* all of the peer's numbered frames up to this one have come; 0: nothing is said */
	uint64_t at;		     /* DATA: where the payload goes, in the receiver's memory */
	uint32_t rkey[DF_NET_RAILS]; /* what opens it, by port of the receiver; 0: nothing */
};

/* Memory that a medium may read from and write to, by ports of this endpoint. */
struct df_net_mem {
	void *mr[DF_NET_RAILS]; /* the first NULL: it may not */
	uint32_t lkey[DF_NET_RAILS], rkey[DF_NET_RAILS];
};

/*
 * What OPEN and ATTACH say beside the size of slots: theirs are a GPU's, so nothing but RDMA gets there; threads read and write them,
 * so the other side's are not to be; their owner sends.
 */
#define DF_NET_AT_GPU	  (1u << 31)
#define DF_NET_AT_HOST	  (1u << 30)
#define DF_NET_SENDS	  (1u << 29)
#define DF_NET_SLOT_BYTES (DF_NET_SENDS - 1)

/*
 * What a connector may have at most: the bytes are those of the most and the largest slots that can be set. Who takes an offer makes as many
 * slots as it says, so it is not believed blindly.
 */
#define DF_NET_SLOTS_MAX      (1u << 20)
#define DF_NET_CONN_BYTES_MAX (4ull << 30)

static inline int df_net_too_large(uint32_t nr_slots, uint32_t slot_bytes)
{
	return nr_slots > DF_NET_SLOTS_MAX || slot_bytes > DF_NET_SLOT_BYTES ||
	       (uint64_t)nr_slots * slot_bytes > DF_NET_CONN_BYTES_MAX;
}

/* One end of a connector. The thread's, but for what is named otherwise. */
struct df_net_conn {
	struct df_conn conn; /* first */
	struct df_net_link *link;
	struct df_list node; /* of the endpoint's inbox, under the lock; later of the link */
	UT_hash_handle hh;   /* of the link's `owned`; under the lock */
	struct df_block block;
	struct df_far_block far; /* its slots, if they are a GPU's */
	uint32_t nr_slots, slot_bytes;
	uint64_t base;
	uint64_t id, peer_id; /* 0: not known yet */
	uint64_t next;	      /* sender: the first slice that has not been given to the medium */
	uint64_t consumed;    /* sender: of what it has sent, as the peer says */
	uint64_t received;    /* sender: the same; receiver: of what it has got without a gap */
	uint64_t told_head, told_received; /* receiver: what it has told the sender */
	uint64_t *have;			   /* receiver, by slot: the slice in it, plus 1 */
	struct df_net_mem mem;
	uint64_t peer_at; /* the other side's slots, and what opens them */
	uint32_t peer_rkey[DF_NET_RAILS];
	uint64_t left; /* the number of the frame that says that we have left it; 0: we have not */
	uint32_t refs; /* frames that the medium has in hand */
	uint8_t receives; /* a slice has come */
	uint64_t
		behind; /* df_verbs_readback_ask() before slots of a GPU's are given back; 0: not yet */
	uint8_t gpu, peer_gpu; /* its slots, the other side's are a GPU's */
	uint32_t says;	       /* DF_NET_AT_HOST, DF_NET_SENDS */
	uint32_t gone;	       /* nobody here uses it any more; atomic */
	uint32_t closed;       /* the owner, on the other side, has closed it; atomic */
};

/* What the other side has announced, and nobody has taken yet. Under the lock. */
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
