/*
 * Connections and frames. A connection is for a process or for an id, and begins with a greeting in which both ends prove that
 * they know its secret (greet.c). All functions: under the lock of the control plane. Callbacks run on the control thread under
 * the lock.
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
	/* First frames of a connection, after the greeting. */
	DF_FRAME_RDV_HELLO = 1, /* struct df_rdv_hello */
	DF_FRAME_TREE_HELLO,	/* struct hop */
	DF_FRAME_FETCH,		/* struct df_fetch_ask */
	DF_FRAME_PING,		/* asks for a PONG: the process is alive */
	/* The greeting. */
	DF_FRAME_GREET = 8, /* struct df_greet */
	DF_FRAME_ANSWER,    /* struct df_greet_answer */
	DF_FRAME_PROOF,	    /* struct df_key */
	/* Rendezvous. */
	DF_FRAME_RDV_CHECKIN = 16, /* struct df_checkin */
	DF_FRAME_RDV_TABLE,	   /* struct df_rdv_table */
	DF_FRAME_RDV_ACK,
	DF_FRAME_RDV_GO,
	DF_FRAME_RDV_STATUS, /* int32 ranks that are missing */
	DF_FRAME_RDV_ERROR,  /* struct df_rdv_error */
	/* Tree links. */
	DF_FRAME_TREE_REPLY = 32, /* struct df_tree_reply */
	DF_FRAME_TREE_PATH,	  /* struct df_tree_path */
	DF_FRAME_TREE_MERGE,	  /* struct df_tree_merge */
	DF_FRAME_TREE_DEAD,	  /* processes known to be dead */
	DF_FRAME_TREE_UNLINK,	  /* this link ends, nobody died */
	DF_FRAME_FLOOD,		  /* struct df_flood, then its body */
	DF_FRAME_PONG,		  /* to a PING, and to the goodbye of who is at the other end */
	DF_FRAME_TREE_EXIT,	  /* struct tree_exit: a process has exited normally */
	/* Descriptors. */
	DF_FRAME_FETCHED = 48, /* struct df_fetch_reply, with descriptors */
};

struct df_frame {
	uint32_t magic;
	uint16_t version, type;
	uint32_t bytes;	 /* that follow */
	uint32_t masked; /* so many of them, from the first on, are hidden by the session key */
};

struct df_greet {
	uint64_t name; /* struct df_member, proc; or struct df_id_tail, nonce */
	struct df_key challenge;
};

struct df_greet_answer {
	struct df_key challenge, proof;
};

enum df_greeting {
	DF_GREET_WAIT, /* accepted: the other end has to greet */
	DF_GREET_SENT, /* connected: the other end has to answer; frames are held back until then */
	DF_GREET_ANSWERED, /* accepted: the other end has to prove itself */
	DF_GREET_DONE,
};

struct df_link_ops {
	const char *name;
	/* A whole frame. < 0: hang up, closed() follows. */
	int (*input)(struct df_link *link, unsigned type, const void *data, size_t bytes);
	/* The connection stands; NULL allowed. */
	void (*connected)(struct df_link *link);
	/* It ended: 0 by the other side, else -errno. Not called after df_link_close(). */
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
	uint64_t deadline_ns;  /* of a stranger's introduction, or of connecting; 0 none */
	uint32_t frame_max;
	uint32_t armed; /* epoll events */
	/* Of a tree link: our goodbye needs no answer of the other side any more; its goodbye has to be answered; it was our parent. */
	uint8_t heard, owes, left;
	uint8_t *in, *out;
	size_t in_bytes, in_size, out_at, out_bytes, out_size;
	uint8_t *held; /* frames that wait for the end of the greeting */
	size_t held_bytes, held_size;
	int fds[64], nr_fds; /* received with the last frame, the callback takes them */
	int lost_fds;	     /* some did not fit under this process's limit */
	int wants_fds;
	char who[64];
};

/* After a failure: 1 if errno says that it was for want of a descriptor, and now there may be one. Keeps errno. */
int df_link_no_file(void);
/*
 * Connects to a process by the addresses in its member row (unix on our node, else TCP), and greets it by the name and the key
 * there. Frames may be sent at once. NULL: out of memory or descriptors, or refused at once.
 */
struct df_link *df_link_open_member(const struct df_member *m, const struct df_link_ops *ops,
				    void *owner, int *error);
/* Queues one frame of two parts; sends what the socket takes. */
int df_link_send(struct df_link *link, unsigned type, const void *a, size_t a_bytes, const void *b,
		 size_t b_bytes);
/* Sends a frame with descriptors; nothing else may be queued. -EAGAIN: try again. */
int df_link_send_fds(struct df_link *link, unsigned type, const void *a, size_t a_bytes,
		     const int *fds, int nr_fds);
/* Gives it to another owner. A stranger stops being one. */
void df_link_adopt(struct df_link *link, const struct df_link_ops *ops, void *owner);
/* Ends it without a callback. Safe in callbacks. */
void df_link_close(struct df_link *link);
/* As df_link_close(), but sends what is queued first. */
void df_link_finish(struct df_link *link);

/* For the loop. */
void df_link_accept(int listener, int is_unix, void *tag);
void df_link_events(struct df_link *link, uint32_t events);
void df_link_reap(void);
uint64_t df_link_timers(uint64_t now);
/* Tries to empty all queues, at most so long; for the end of the process. */
void df_link_drain(uint64_t bound_ns);
/* "HOST (pid N at ADDRESS) cannot reach TO: reason", for users; error: of a connection that did not come about. */
void df_link_why(const char *to, int error, char *text, size_t size);
/* A listener on an abstract unix socket; -errno. Not registered with the loop. */
int df_link_listen_unix(uint64_t sock);
/* Listeners that had to pause are heard again. */
uint64_t df_accept_timers(uint64_t now);
void df_accept_forget_all(void);
/* Child after fork: forgets everything, closes descriptors, calls nobody. */
void df_link_forget_all(void);

/* ---- between link.c and accept.c ---- */

/* The callbacks of who has not introduced itself, and of who only has to be sent the rest. */
extern const struct df_link_ops df_stranger_ops, df_finish_ops;
struct df_link *df_link_new(int fd, const struct df_link_ops *ops, void *owner);
/* Tells epoll what we wait for. */
void df_link_arm(struct df_link *link);
/* It is over: tells the owner, closes. */
void df_link_end(struct df_link *link, int error);
/* A connection from there was dropped: one line a minute, with their number. */
void df_link_dropped(const char *from, const char *why);

/* ---- between link.c, accept.c and greet.c ---- */

int df_greet_begin(struct df_link *link, uint64_t name, const struct df_key *secret);
/* A frame of the greeting. < 0: the other end does not know the secret. */
int df_greet_input(struct df_link *link, unsigned type, const void *data, size_t bytes);
/* Hides bytes, or shows them again; *at moves on. */
void df_greet_mask(const struct df_key *session, uint64_t *at, void *data, size_t bytes);
/* Sends this frame, then those that were held back. */
int df_link_release(struct df_link *link, unsigned type, const void *data, size_t bytes);
/* How many bytes of such a frame carry keys, of its first part `a` or of both. */
size_t df_frame_masked(unsigned type, size_t a_bytes, size_t b_bytes);

/* A frame of a process that has just connected; decides what the link is. < 0: a stranger. */
int df_rdv_introduce(struct df_link *link, const void *data, size_t bytes);
int df_tree_introduce(struct df_link *link, const void *data, size_t bytes);
int df_fetch_introduce(struct df_link *link, const void *data, size_t bytes);
/* Somebody spoke NCCL's own bootstrap to us, with this magic. */
void df_rdv_unshimmed(uint64_t magic);

#endif
