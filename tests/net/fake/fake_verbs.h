/*
 * Shared by the two halves of the tests' libibverbs: fake_verbs.c, the library, and fake_nic.c, the
 * hardware.
 */
#ifndef TESTS_NET_FAKE_VERBS_H
#define TESTS_NET_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define PIECE	   16384
#define PIECES_MAX 256
#define HOLD_EVERY 32 /* one in this number of work requests is held back (FAKE_VERBS_HOLD) */
#define BUS_MS	   50 /* longest time until a GPU sees a write */
#define QUEUE_MAX  1024
#define WRS_MAX	   512
#define QPS_MAX	   256
#define MRS_MAX	   65536

#define must(what)                                                                                 \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "fake_verbs: %s:%d: %s\n", __func__, __LINE__, #what);     \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* The state of a device: all packets arrive; none that it sends arrive; its ports are down. */
enum fake_wire { FAKE_GOOD, FAKE_MUTE, FAKE_DOWN };

/* A queue of events behind a descriptor: of a context, or of a channel's completion queues. */
struct events {
	int fd;
	uint32_t head, tail;
	union {
		struct ibv_async_event async[QUEUE_MAX];
		struct ibv_cq *cq[QUEUE_MAX];
	};
};

struct context {
	struct ibv_context c; /* must be first */
	struct events events;
};

struct qp {
	struct ibv_qp qp; /* must be first */
	enum ibv_qp_state state;
	int fd;
	struct sockaddr_un peer;
	socklen_t peer_len;
	struct ibv_qp_cap cap;
	/*
	 * Sends. Those from `done` to `sent` wait for an acknowledgement, those from `sent` to
	 * `posted` for their turn.
	 */
	struct ibv_send_wr sends[WRS_MAX];
	struct ibv_sge parts[WRS_MAX];
	uint32_t done, sent, posted;
	uint32_t order[PIECES_MAX], nr_pieces, piece; /* pieces of the write that is being sent */
	struct ibv_recv_wr recvs[WRS_MAX];
	struct ibv_sge into[WRS_MAX];
	uint32_t taken, ready;
	uint32_t unacked; /* events that are not acknowledged */
	uint64_t pause;
	uint32_t ack; /* number of the peer's sends that have arrived, not yet acknowledged */
	int owes;     /* the acknowledgement could not be sent yet */
	uint32_t psn;
	struct ibv_ece ece;
	int port;
	int access; /* what the peer may do */
	int self;   /* the queue pair is connected to itself, for reads */
};

/* A memory region, as the hardware sees it. */
struct mr {
	struct ibv_mr mr;   /* must be first */
	uint8_t *map;	    /* the hardware's address of mr.addr */
	uint64_t map_bytes; /* size of a mapping of its own, or 0 */
	int access;
	int gpu;
};

struct cq {
	struct ibv_cq cq; /* must be first */
	int armed;
	uint32_t head, tail;
	struct ibv_wc wc[WRS_MAX * 3];
};

/* Protects everything that both halves use. */
extern pthread_mutex_t fake_lock;
extern struct qp *fake_qps[QPS_MAX];
extern int fake_nic_fd; /* wakes the hardware; -1 before the hardware is switched on */

int fake_is_mode(const char *mode);
long fake_number(const char *name);
uint64_t fake_now_ns(void);
void fake_seen(const char *text);
void fake_wake(int fd);
/* Callers of all functions from here on hold fake_lock. */
uint32_t fake_dice(uint32_t below);
/* Returns how long the write occupies the device, in ns. */
uint64_t fake_wrote(struct ibv_context *context, int port, uint32_t bytes);
/* Ends outages that are over, with an event. Returns 1 if some still last. */
int fake_wires_look(void);
enum fake_wire fake_wire(struct ibv_context *context);
/* Counts a send that is about to be sent. Returns FAKE_DOWN if the device fails with it. */
enum fake_wire fake_send_counts(struct ibv_context *context);
/*
 * Returns the hardware's address of these bytes, or NULL if the key does not permit the access
 * (enum ibv_access_flags; 0: access by the owner).
 */
uint8_t *fake_memory(uint32_t key, uint64_t at, uint64_t bytes, int access);
/*
 * Writes the bytes there. Returns -1 if the key does not permit that. In a GPU's memory the bytes
 * become visible later (fake_settle(), fake_bus_looks()) unless the GPU orders writes.
 */
int fake_lands(struct ibv_context *context, uint32_t key, uint64_t at, const void *from,
	       uint32_t bytes);
/* Makes writes to a GPU's memory visible that are due. Returns 1 if some are not due yet. */
int fake_bus_looks(void);
/* A read has reached the GPU's memory: makes all earlier writes of the device visible. */
void fake_settle(struct ibv_context *context);
int fake_names_qp(enum ibv_event_type type);
void fake_tell_async(struct ibv_context *context, struct ibv_async_event e);
void fake_complete(struct ibv_cq *to, struct qp *qp, uint64_t id, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, uint32_t bytes);
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
