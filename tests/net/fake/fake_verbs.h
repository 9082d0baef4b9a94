/*
 * Shared by the two halves of the libibverbs of the tests: fake_verbs.c, the library, and
 * fake_nic.c, the hardware.
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
#define HOLD_EVERY 32 /* one of this number of work requests is held back (FAKE_VERBS_HOLD) */
#define BUS_MS	   50 /* how long a GPU may not see what has been written */
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

/* The faults of a device: all arrives; nothing of what it sends does; its ports are down. */
enum fake_wire { FAKE_GOOD, FAKE_MUTE, FAKE_DOWN };

/* The data behind a descriptor: events of a context, completion queues of a channel. */
struct events {
	int fd;
	uint32_t head, tail;
	union {
		struct ibv_async_event async[QUEUE_MAX];
		struct ibv_cq *cq[QUEUE_MAX];
	};
};

struct context {
	struct ibv_context c; /* first */
	struct events events;
};

struct qp {
	struct ibv_qp qp; /* first */
	enum ibv_qp_state state;
	int fd;
	struct sockaddr_un peer;
	socklen_t peer_len;
	struct ibv_qp_cap cap;
	/*
	 * Sends: from done to sent they wait for an acknowledgement, up to posted for their turn.
	 */
	struct ibv_send_wr sends[WRS_MAX];
	struct ibv_sge parts[WRS_MAX];
	uint32_t done, sent, posted;
	uint32_t order[PIECES_MAX], nr_pieces, piece; /* of the one that is being sent */
	struct ibv_recv_wr recvs[WRS_MAX];
	struct ibv_sge into[WRS_MAX];
	uint32_t taken, ready;
	uint32_t unacked; /* events */
	uint64_t pause;
	uint32_t ack; /* sends of the other side that are here */
	int owes;     /* the acknowledgement did not get out */
	uint32_t psn;
	struct ibv_ece ece;
	int port;
	int access; /* what the other side may do */
	int self;   /* it is joined to itself: for reads */
};

/* Registered memory, as the hardware sees it. */
struct mr {
	struct ibv_mr mr;   /* first */
	uint8_t *map;	    /* of the address that its keys know it by */
	uint64_t map_bytes; /* of a mapping of its own; 0: there is none */
	int access;
	int gpu;
};

struct cq {
	struct ibv_cq cq; /* first */
	int armed;
	uint32_t head, tail;
	struct ibv_wc wc[WRS_MAX * 3];
};

/* Guards everything that both halves touch. */
extern pthread_mutex_t fake_lock;
extern struct qp *fake_qps[QPS_MAX];
extern int fake_nic_fd; /* wakes the hardware; -1: it has not been switched on */

int fake_is_mode(const char *mode);
long fake_number(const char *name);
uint64_t fake_now_ns(void);
void fake_seen(const char *text);
void fake_wake(int fd);
/* Under the lock, all from here on. */
uint32_t fake_dice(uint32_t below);
/* How long that takes, in ns. */
uint64_t fake_wrote(struct ibv_context *context, int port, uint32_t bytes);
/* Ends outages that are over, with an event. Returns 1 if some are not. */
int fake_wires_look(void);
enum fake_wire fake_wire(struct ibv_context *context);
/* A frame is to be sent: FAKE_DOWN where it is the last one. */
enum fake_wire fake_send_counts(struct ibv_context *context);
/*
 * Returns the place of these bytes for the hardware; NULL: the key does not open them for that
 * (enum ibv_access_flags; 0: their owner).
 */
uint8_t *fake_memory(uint32_t key, uint64_t at, uint64_t bytes, int access);
/*
 * Writes them there; -1: not open. In a GPU's memory they are not visible before fake_settle(),
 * unless it says otherwise.
 */
int fake_lands(struct ibv_context *context, uint32_t key, uint64_t at, const void *from,
	       uint32_t bytes);
/* Makes writes to a GPU's memory visible that are BUS_MS old. Returns 1 if some are younger. */
int fake_bus_looks(void);
/* A read has reached the GPU's memory, behind all that the device has written there. */
void fake_settle(struct ibv_context *context);
int fake_names_qp(enum ibv_event_type type);
void fake_tell_async(struct ibv_context *context, struct ibv_async_event e);
void fake_complete(struct ibv_cq *to, struct qp *qp, uint64_t id, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, uint32_t bytes);
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
