/*
 * Execution of small programs by NCCL's and CUDA's ordering rules, as a fixpoint: what can go on goes
 * on until nothing more can. It labels programs (finishes, or hangs and what would help), makes traces
 * for tests, and is what `dfshim predict` searches with.
 *
 * Modes ask the same questions as the judge's worlds: BASE as NCCL runs; P collectives leave issue order
 * where nobody can see it; SI implicit synchronisation does not wait for stuck collectives; SE neither
 * does explicit device synchronisation nor the legacy stream.
 *
 * A df_model belongs to one thread.
 */
#ifndef DF_TRACE_PREDICT_MODEL_H
#define DF_TRACE_PREDICT_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum df_model_mode { DF_MODEL_BASE, DF_MODEL_P, DF_MODEL_SI, DF_MODEL_SE };

enum df_mop_kind {
	DF_MOP_KERNEL,
	DF_MOP_STUCK,
	DF_MOP_LEGACY,
	DF_MOP_COLL,
	DF_MOP_P2P,
	DF_MOP_RECORD,
	DF_MOP_WAIT,
	DF_MOP_SSYNC,
	DF_MOP_ESYNC,
	DF_MOP_DSYNC,
	DF_MOP_ISYNC,
	DF_MOP_HBAR,
	DF_MOP_CONN,
	DF_MOP_INIT,
	DF_MOP_HWAIT,
	DF_MOP_HSIGNAL,
	DF_MOP_EXIT,
	DF_MOP_SPIN
};

#define DF_MOP_MAX_P2P 32

struct df_mp2p {
	int send;	/* 1 send, 0 receive */
	int comm, peer; /* peer: rank of the job */
	uint64_t count;
};

struct df_mop {
	enum df_mop_kind kind;
	int comm;		/* COLL */
	int stream;		/* from 0 */
	int object;		/* event, flag, name of a barrier or init */
	uint64_t sig;		/* COLL: kind | count << 8 */
	uint64_t reads, writes; /* COLL: sets of buffers */
	uint64_t members;	/* HBAR, CONN, INIT: set of ranks */
	int nr_p2p;		/* P2P: more than one is a group */
	int goes_on; /* COLL, P2P: the thread's next step is of the same group: no other thread comes between */
	struct df_mp2p p2p[DF_MOP_MAX_P2P];
};

struct df_mthread {
	struct df_mop *ops;
	size_t nr_ops, cap_ops;
};

#define DF_MODEL_RANKS	 64
#define DF_MODEL_THREADS 64

struct df_mprog {
	int nr_ranks;
	struct df_mthread threads[DF_MODEL_RANKS][DF_MODEL_THREADS];
	int nr_threads[DF_MODEL_RANKS];
	uint64_t *comms; /* sets of ranks */
	int nr_comms;
	int cap;	  /* resident collectives a rank; 0 unlimited */
	int one_queue;	  /* all streams of a rank share one hardware queue */
	int launch_queue; /* unfinished things a rank may have; 0 unlimited */
	int buffered;	  /* sends end without their receive */
	/*
	 * As the reference's model.py: what is unfinished before a thing that finished out of order is forgotten, so
	 * modes P, SI and SE call some programs preventable that are not. For comparisons only.
	 */
	int as_reference;
};

/* What a run tells while it goes on. task: number of the thing put on a stream, -1 for host steps. */
enum df_model_event {
	DF_ME_ENTER, /* a host step begins (said once, also if it then blocks) */
	DF_ME_LEAVE, /* it is over */
	DF_ME_ISSUE, /* a thing is on its stream */
	DF_ME_START, /* it runs */
	DF_ME_DONE,
	DF_ME_NO_SLOT /* ready, but all slots are taken (said once) */
};

typedef void (*df_model_event_fn)(void *arg, enum df_model_event ev, int rank, int thread,
				  size_t op, const struct df_mop *mop, int task);

struct df_model_result {
	int hung;
	size_t pc[DF_MODEL_RANKS][DF_MODEL_THREADS]; /* first step not over */
	size_t nr_tasks, nr_unfinished;
	size_t max_resident; /* most collectives that ran at once on one rank */
};

/*
 * Runs the program. pick: if not NULL, decides whose host step comes next: called with the number of
 * threads that may try, returns one of them (a schedule); NULL: ranks in turn, each as far as it gets.
 * 0 or -ENOMEM.
 */
struct df_model_schedule {
	size_t (*pick)(void *arg, size_t nr);
	void *arg;
	/*
	 * If not NULL, also decides what goes on next on the devices, while hosts go on step by step: returns a number
	 * below nr. Where room is short, who gets it depends on that.
	 */
	size_t (*device)(void *arg, size_t nr);
	/*
	 * If not NULL: 1 as long as this thread is not to try its next step. When nothing else moves let_go() is asked: 1
	 * if some thread may now that could not before.
	 */
	int (*hold)(void *arg, int rank, int thread, const struct df_mop *next);
	int (*let_go)(void *arg);
};
int df_model_run(const struct df_mprog *p, enum df_model_mode mode,
		 const struct df_model_schedule *schedule, df_model_event_fn fn, void *arg,
		 struct df_model_result *out);

/*
 * The same in pieces: a run that is held goes on where it stood with the next df_mrun_go(), and a copy of it goes another
 * way. The program outlives them.
 */
struct df_mrun;
struct df_mrun *df_mrun_create(const struct df_mprog *p,
			       enum df_model_mode mode); /* NULL: no memory */
struct df_mrun *df_mrun_copy(const struct df_mrun *r);	 /* NULL: no memory */
void df_mrun_destroy(struct df_mrun *r);
/* Until nothing moves. 0 or -ENOMEM. */
int df_mrun_go(struct df_mrun *r, const struct df_model_schedule *schedule, df_model_event_fn fn,
	       void *arg, struct df_model_result *out);
/* Collectives and messages of a rank that have not finished. */
size_t df_mrun_open_ops(const struct df_mrun *r, int rank);
/* How many things have been put on streams; is one of the first `before` of them unfinished? */
int df_mrun_issued(const struct df_mrun *r);
int df_mrun_is_open(const struct df_mrun *r, int before);
/* Each collective and message that has not finished; here: ranks in which the collective has started. */
typedef void (*df_mrun_task_fn)(void *arg, int rank, int thread, size_t op, int started,
				uint64_t here);
void df_mrun_each(const struct df_mrun *r, df_mrun_task_fn fn, void *arg);

/* "OK", "P", "Si", "Se" or "D": the mildest mode in which it finishes. */
const char *df_model_classify(const struct df_mprog *p);

/* Building. 0 or -ENOMEM. */
int df_mprog_add(struct df_mprog *p, int rank, int thread, const struct df_mop *op);
int df_mprog_comm(struct df_mprog *p, uint64_t members); /* its number, or -ENOMEM */
void df_mprog_fini(struct df_mprog *p);

#endif
