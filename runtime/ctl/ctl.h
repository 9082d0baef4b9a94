/*
 * The control plane: ranks find each other, exchange small data, and learn that a process has died.
 * Each process has one control thread, started on first need. It serves the rendezvous of ids that
 * were created here, the links to other processes (unix sockets inside a node, TCP between nodes),
 * and requests for shared memory.
 *
 * A *process* is named by a random 64-bit number; a *member* is one rank of one communicator. Ranks
 * of one process meet in memory, without a socket. After the rendezvous the processes of a
 * communicator form a k-ary tree of links. All communicators share the tree; it carries gathers,
 * messages and news of deaths.
 *
 * Blocking functions take `stop`: they return -ECANCELED soon after *stop becomes non-zero and
 * df_ctl_poke() was called. -ECONNRESET means that a needed process has died. No function may be
 * called with a lock of the runtime held, and callbacks are called with no lock of ours, unless
 * said otherwise.
 */
#ifndef DF_CTL_H
#define DF_CTL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/net/auth.h"

#define DF_CTL_VERSION 9

/*
 * A rank's row in the member table: every rank sends its own to all others at the rendezvous. 296
 * bytes.
 */
struct df_member {
	uint64_t proc; /* number that names the rank's process: random, public */
	uint64_t host; /* hash of host and boot id; equal for two processes that can share memory */
	uint32_t pid;
	int32_t rank;	    /* in this communicator */
	int32_t device;	    /* ordinal of the device in the rank's process */
	uint32_t version;   /* DF_CTL_VERSION and ABI, must be equal */
	uint64_t device_id; /* equal for two ranks on one physical device */
	uint32_t avoid;	    /* networks that its communicator must not use; opaque here */
	/* number of blocks of its daemon; the communicator uses the smallest of all ranks */
	uint16_t blocks;
	uint8_t gpu;	/* whether its daemon runs on a GPU */
	uint8_t unable; /* whether its daemon could not start; see struct df_ctl_limits */
	/* hash of the settings that must agree (slots, slot size, programs loaded) */
	uint64_t settings;
	uint64_t sock; /* names its control thread's unix socket (df_addr_unix()); 0: none */
	char tcp[64];  /* host:port of its control thread; "": none */
	char hostname[64];
	uint64_t node; /* equal if no network is in between: `host`, unless nodes are emulated */
	/* struct df_cal: the speeds that it measured on its machine; opaque here */
	uint8_t cal[16];
	char net[64]; /* host:port where its device accepts data from other nodes; "": nowhere */
	/*
	 * Secret of its process. A process that connects to it proves that it knows the secret
	 * (base/net/auth.h). Only processes of the job know it. It is in no log, trace or name.
	 */
	struct df_key key;
};

_Static_assert(sizeof(struct df_member) == 296, "part of the protocol");

/*
 * Describes this process: its number, key, host hash and sockets. Leaves rank, device and the rest
 * zero. Starts the control thread.
 */
int df_ctl_self(struct df_member *out);

/*
 * Ids: runtime/dfshim.h declares df_id_create() and related functions, which are implemented here.
 */

struct df_ctl_comm;

/*
 * Reasons why a rank cannot do something, or NULL. Either dfshim or the real library executes a
 * communicator, on all its ranks. If one rank cannot do the first and another cannot do the second,
 * the rendezvous fails as soon as it knows.
 */
struct df_ctl_limits {
	const char *unable; /* why its daemon cannot start */
	const char *bound;  /* why it cannot use the real library instead */
};

/*
 * The rendezvous. me: filled by df_ctl_self() and the caller. limits: NULL for none. Blocks until
 * all nranks ranks have joined. On success *out holds the member table of all ranks. Returns
 * -EPROTO if a rank is not of this job, its version, settings or nranks differ, or its number is
 * taken twice; -EOPNOTSUPP because of the ranks' limits. Every rank logs the reason, and none
 * hangs.
 */
int df_ctl_join(int nr_ids, const unsigned char (*ids)[128], int nranks, const struct df_member *me,
		const struct df_ctl_limits *limits, const uint32_t *stop, struct df_ctl_comm **out);

/*
 * Lists the ranks that have not joined the rendezvous of the id with this hash (df_id_hash()), as
 * far as this process knows. It knows them if it serves the rendezvous, or if the server has sent
 * them; the server sends them every half second while they change. Writes at most max ranks and
 * returns their number, or -ENOENT if no such rendezvous is under way here. Does not block.
 */
int df_ctl_missing(uint64_t id_hash, int *ranks, int max);
/*
 * Writes where ranks on other nodes must connect for the rendezvous of this id: "address:port", or
 * "" if unknown. size: 72 is enough. Does not block.
 */
void df_ctl_rendezvous_at(uint64_t id_hash, char *text, size_t size);

/*
 * Makes a communicator of some members of `parent`. All of these call it with the same list (the
 * parent's ranks in their new order), avoid (df_member) and hash. me: this rank's index in the
 * list. Does not block, because the member table is already known.
 */
int df_ctl_derive(struct df_ctl_comm *parent, uint64_t hash, const int *ranks, int nr_ranks, int me,
		  uint32_t avoid, struct df_ctl_comm **out);

/* The member table, nranks rows, constant while the communicator lives. */
const struct df_member *df_ctl_members(const struct df_ctl_comm *c);
uint64_t df_ctl_hash(const struct df_ctl_comm *c);

/*
 * Every rank contributes `bytes` bytes and receives those of all ranks, in rank order. The n-th
 * call on one rank belongs to the n-th call on the others. Blocks. Returns -ECONNRESET also if a
 * rank left before its turn. out: nranks * bytes.
 */
int df_ctl_allgather(struct df_ctl_comm *c, const void *in, size_t bytes, void *out,
		     const uint32_t *stop);

/*
 * The local rank leaves the communicator; gathers of other ranks that need it fail. Never blocks on
 * peers.
 */
void df_ctl_leave(struct df_ctl_comm *c);

/*
 * A process that has no free file descriptor waits this long for one. After that it does without
 * for good. Used here and for shared memory.
 */
#define DF_NO_FILE_NS 2000000000ull

/* Wakes blocking calls so that they check their `stop`. Async-signal-safe. */
void df_ctl_poke(void);

/* ---- messages between processes -------------------------------------------------------------- */

enum df_ctl_kind {
	DF_MSG_SNAPSHOT_ASK = 1, /* the checker asks for what is unfinished */
	DF_MSG_SNAPSHOT,	 /* the answer */
	/* some operation here may be stuck: the receiver examines the job */
	DF_MSG_SUSPECT,
	/* let these waits return; ends what SNAPSHOT_ASK began */
	DF_MSG_RELEASE,
	DF_MSG_END,	 /* these communicators have ended because of a time-out */
	DF_MSG_TOLD,	 /* the verdict has been reported */
	DF_MSG_EXECUTOR, /* a message of the executor's own (runtime/executor.h) */
	DF_MSG_LEADS,	 /* to all: the sender judges for them; without a body */
	DF_MSG_UNMAPPED, /* the sender cannot map the receiver's memory: their communicators end */
	DF_MSG_HEARD,	 /* SNAPSHOT_ASK has arrived */
	DF_MSG_GROWN,	 /* struct df_grown: the id of a communicator that grows (mode trace) */
	DF_MSG_USER = 64
};

struct df_ctl_events {
	/* A message has arrived. Called on the control thread: must not block. */
	void (*message)(uint64_t from_proc, uint32_t kind, const void *data, size_t bytes);
	/*
	 * A process has ended. Called once per process, whatever the number of its communicators.
	 * in_order: 0 if it died; if it exited, its exit status plus 1.
	 */
	void (*death)(uint64_t proc, int in_order);
	/*
	 * A process has ended inside a rendezvous that this process serves. Called on the control
	 * thread, under its lock: must not block.
	 */
	void (*lost)(const struct df_member *who);
};
void df_ctl_set_events(const struct df_ctl_events *events);

/*
 * Sends to one process of the communicator, or to all others (proc 0). With c NULL it sends to a
 * process of the overlay, or to all. These are the processes that share a communicator with this
 * process, or with another process of the overlay. A message to all costs one frame for each
 * process, and shows each of them the way back. Queues the message and never blocks.
 */
int df_ctl_send(struct df_ctl_comm *c, uint64_t proc, uint32_t kind, const void *data,
		size_t bytes);

/*
 * Counts messages that this process has sent, and frames it has put on links for messages of its
 * own or of others.
 */
void df_ctl_counts(uint64_t *messages, uint64_t *frames);

/* Whether the process has died or exited, as far as this process knows. */
int df_ctl_is_dead(uint64_t proc);
/* Asks the parent in the overlay for a sign of life. Without one this process takes another. */
void df_ctl_doubt(void);
/* Whether messages for this process travel on a link of its own. */
int df_ctl_is_neighbour(uint64_t proc);

/*
 * Calls death() for each member of the communicator that has already ended, on the control thread,
 * even if it was called before: the communicator's opener may have missed that call. Does not
 * block.
 */
void df_ctl_tell_deaths(const struct df_ctl_comm *c);

/*
 * Called when this process exits normally, by the destructor: says goodbye on all links, so that
 * the exit is not taken for a death. words: data that it leaves to the others, at most DF_WORDS_MAX
 * bytes. until: limit (df_now_ns()) of waiting for answers. At the limit the process exits, with
 * its goodbye on its links.
 */
#define DF_WORDS_MAX (1u << 20)
void df_ctl_goodbye(const void *words, size_t bytes, uint64_t until);
/*
 * Calls fn with the data that each normally exited process has left. fn is called under the control
 * plane's lock, and must not call the control plane.
 */
void df_ctl_each_words(void (*fn)(void *arg, const void *words, size_t bytes), void *arg);

/* ---- for the node-local transport ------------------------------------------------------------ */

/*
 * fn is called for every process that has ended, on the control thread, under no lock. At most 8
 * functions.
 */
void df_ctl_on_death(void (*fn)(uint64_t proc));

#define DF_FETCH_MAX 60

/*
 * Serves requests for shared memory of this process, on the control thread: fills at most max
 * descriptors and sizes of its segments from number `first` on. Returns how many. Must not block.
 */
typedef int (*df_fetch_serve_fn)(uint32_t first, int *fds, uint64_t *bytes, int max);
void df_fetch_set_server(df_fetch_serve_fn fn);

/*
 * Asks a process on this node for its segments from number `first` on. Never blocks. If it returns
 * 0, done() is called once, on the control thread under its lock, and owns the descriptors. Its
 * error is -ECONNRESET if the process has ended, -EMFILE if this process may open no more
 * descriptors, or -EAGAIN to try later. The function itself returns the same errors, or -ENOMEM
 * (try later), and then does not call done().
 */
typedef void (*df_fetch_done_fn)(void *arg, int error, const int *fds, const uint64_t *bytes,
				 int nr);
int df_fetch_start(const struct df_member *peer, uint32_t first, df_fetch_done_fn done, void *arg);

#endif
