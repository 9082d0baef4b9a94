/*
 * Connections and frames. A connection is for a process or for an id. It begins with a greeting in
 * which both ends prove that they know the secret of that process or id (greet.c). All functions
 * are called under the lock of the control plane; callbacks run on the control thread under it.
 */
#ifndef DF_CTL_LINK_H
#define DF_CTL_LINK_H

#include "runtime/ctl/ctl_int.h"
#include "runtime/base/time.h"

#define DF_FRAME_MAGIC	  0x31434644u /* "DFC1" */
#define DF_FRAME_MAX	  (64u << 20)
#define DF_FRAME_STRANGER 4096u
#define DF_LINK_STRANGERS 128
#define DF_LINK_BACKLOG	  4096
#define DF_LINK_HELLO_NS  (5 * DF_NS_PER_S)

enum df_frame_type {
	/* first frames of a connection, after the greeting */
	DF_FRAME_RDV_HELLO = 1, /* struct df_rdv_hello */
	DF_FRAME_TREE_HELLO,	/* struct hop */
	DF_FRAME_FETCH,		/* struct fetch_ask */
	DF_FRAME_PING,		/* asks for a PONG: is the process alive? */
	/* the greeting */
	DF_FRAME_GREET = 8, /* struct df_greet */
	DF_FRAME_ANSWER,    /* struct df_greet_answer */
	DF_FRAME_PROOF,	    /* struct df_key */
	/* rendezvous */
	DF_FRAME_RDV_CHECKIN = 16, /* struct df_checkin */
	DF_FRAME_RDV_TABLE,	   /* struct df_rdv_table */
	DF_FRAME_RDV_ACK,
	DF_FRAME_RDV_GO,
	DF_FRAME_RDV_STATUS, /* int32 ranks that are missing */
	DF_FRAME_RDV_ERROR,  /* struct df_rdv_error */
	/* tree links */
	DF_FRAME_TREE_REPLY = 32, /* struct tree_reply */
	DF_FRAME_TREE_PATH,	  /* struct tree_path */
	DF_FRAME_TREE_MERGE,	  /* struct tree_merge */
	DF_FRAME_TREE_DEAD,	  /* processes known to be dead */
	DF_FRAME_TREE_UNLINK,	  /* this link ends, but no process died */
	DF_FRAME_FLOOD,		  /* struct flood, then its body */
	/* answers a PING, or the goodbye of the process at the other end */
	DF_FRAME_PONG,
	DF_FRAME_TREE_EXIT, /* struct tree_exit: a process has exited normally */
	DF_FRAME_TREE_ASK,  /* asks the parent for a TREE_PATH, as a sign of life */
	/* descriptors */
	DF_FRAME_FETCHED = 48, /* struct fetch_reply, with descriptors */
};

struct df_frame {
	uint32_t magic;
	uint16_t version, type;
	uint32_t bytes;	 /* bytes that follow */
	uint32_t masked; /* the first `masked` of them are masked with the session key */
};

struct df_greet {
	uint64_t name; /* df_member.proc of a process, or df_id_tail.nonce of an id */
	struct df_key challenge;
};

struct df_greet_answer {
	struct df_key challenge, proof;
};

enum df_greeting {
	DF_GREET_WAIT, /* accepted: the other end must greet */
	DF_GREET_SENT, /* connected: the other end must answer; other frames are held until then */
	DF_GREET_ANSWERED, /* accepted: the other end must prove itself */
	DF_GREET_DONE,
};

struct df_link_ops {
	const char *name;
	/* A whole frame has arrived. If the result is below 0, the link ends: closed() follows. */
	int (*input)(struct df_link *link, unsigned type, const void *data, size_t bytes);
	/* The connection is established. May be NULL. */
	void (*connected)(struct df_link *link);
	/*
	 * The link ended: error is 0 if the other side closed it, else -errno. Not called after
	 * df_link_close().
	 */
	void (*closed)(struct df_link *link, int error);
};

struct df_link {
	struct df_list node;
	int fd;
	int connecting, is_unix, dead;
	const struct df_link_ops *ops;
	void *owner;
	enum df_greeting greeting;
	struct df_greet greet;
	struct df_key secret, challenge, session;
	uint64_t tx_at, rx_at; /* positions in the session's key stream */
	uint64_t tx_proc;      /* the process at the other end, once it has said so */
	uint64_t deadline_ns;  /* deadline for the first frame, or for connecting; 0: none */
	uint32_t frame_max;
	uint32_t armed; /* events for which the link is registered with epoll */
	/*
	 * Tree links. heard: the other side no longer has to answer our goodbye. owes: we must
	 * answer its goodbye. left: it was the link to our parent.
	 */
	uint8_t heard, owes, left;
	uint8_t *in, *out;
	size_t in_bytes, in_size, out_at, out_bytes, out_size;
	uint8_t *held; /* frames held until the greeting is done */
	size_t held_bytes, held_size;
	int fds[64], nr_fds; /* received with the last frame; the callback takes them */
	int lost_fds;	     /* whether descriptors were lost because of this process's limit */
	int wants_fds;
	char who[64];
};

/* Queues one frame made of two parts, and sends as much as the socket accepts. */
int df_link_send(struct df_link *link, unsigned type, const void *a, size_t a_bytes, const void *b,
		 size_t b_bytes);
/* Sends a frame with descriptors; nothing else may be queued. Returns -EAGAIN to try again. */
int df_link_send_fds(struct df_link *link, unsigned type, const void *a, size_t a_bytes,
		     const int *fds, int nr_fds);
/* Gives the link to another owner. It then counts as identified. */
void df_link_adopt(struct df_link *link, const struct df_link_ops *ops, void *owner);
/* Closes the link without a callback. Allowed in callbacks. */
void df_link_close(struct df_link *link);
/* As df_link_close(), but sends what is queued first. */
void df_link_finish(struct df_link *link);

void df_link_events(struct df_link *link, uint32_t events);
void df_link_reap(void);
uint64_t df_link_timers(uint64_t now);
/* Tries for at most bound_ns to send all that is queued. Called at the end of the process. */
void df_link_drain(uint64_t bound_ns);
/* Whether the other end is a process of this machine that is neither stopped nor dead. */
int df_link_peer_runs(const struct df_link *link);
/* In a forked child: frees all links and closes their descriptors, without callbacks. */
void df_link_forget_all(void);

/* ---- between link.c and accept.c ---- */

/* The callbacks of connections that are only being flushed. */
extern const struct df_link_ops df_finish_ops;
struct df_link *df_link_new(int fd, const struct df_link_ops *ops, void *owner);
/* Registers the events that the link waits for with epoll. */
void df_link_arm(struct df_link *link);
/* Ends the link: informs the owner and closes it. */
void df_link_end(struct df_link *link, int error);
/* Counts a dropped connection from this address. Once a minute a log line has the number. */
void df_link_dropped(const char *from, const char *why);

/* ---- between link.c, accept.c and greet.c ---- */

/* Sends this frame, then those that were held. */
int df_link_release(struct df_link *link, unsigned type, const void *data, size_t bytes);
/*
 * Returns how many bytes of a frame of this type are masked because they carry keys: those of part
 * `a`, or of both.
 */
size_t df_frame_masked(unsigned type, size_t a_bytes, size_t b_bytes);

#endif
