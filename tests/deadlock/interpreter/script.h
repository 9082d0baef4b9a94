/*
 * Scripts: programs of ranks, threads, communicators and streams as text. The client script.c, a
 * plain NCCL program, executes them. The tests label them. Nothing of dfshim is used here.
 *
 *	prog NAME		begins a program; a file with one program needs none
 *	class OK|P|S-i|S-e|D	the class in the catalogue
 *	sure WORD		the certainty that the report must give
 *	says TEXT		a regular expression that the report's first line must match
 *	nccl WORD, ours WORD, strict WORD
 *				how the program ends by each set of rules: OK or a verdict word
 *	lanes WORD		the same on lanes; as `ours` if missing
 *	agree WORD		the same on lanes with DFSHIM_NCCL_ORDER=agree; as `ours` if missing
 *	differs RULES WORD... # WHY
 *				other words that are accepted by RULES; cuda-RULES: only on a GPU
 *				that all ranks share
 *	slots N, queues N	resident collectives, hardware queues
 *	release X		DFSHIM_RELEASE for `ours`
 *	after COMM...		communicators that a verdict must end with an error; then script.c
 *				checks that the streams still work
 *	ranks N			number of ranks
 *	procs [P]		the ranks are distributed to P processes; without P, one each
 *	cold			no collective connects the ranks before the program
 *	shared			the thread that starts the ranks' threads creates the
 *				communicators of all of them in one group
 *	comm NAME RANK...	a communicator that exists from the start
 *	late NAME RANK...	a communicator that `init`, `split` or `shrink` creates
 *	pin BUFFER		the buffer is pinned host memory
 *	managed BUFFER		the buffer is managed memory
 *	0: STEP; STEP ...	steps of rank 0; "0.1:" of its second thread. Further lines append
 *	end			ends a program if another one follows
 *
 * Steps. `s` is a stream. A stream whose name begins with "nb" is non-blocking; "legacy" is the
 * legacy default stream. An event has timing if its name begins with "timed" or if its number is
 * odd. PEER is a rank of the job.
 *
 *	AR|BC|RED|AG|RS|A2A COMM s [n=COUNT] [in=BUF] [out=BUF] [t=f32|bf16|i8|i32] [op=sum|max|avg]
 *	send|recv COMM PEER s [n=COUNT] [buf=BUF]
 *	{ and }			a group
 *	K s [FROM TO]		other work: a copy on the device
 *	fn s			a host function
 *	stuck s			a host function that ends only with the program
 *	leg			a copy on the legacy stream
 *	rec EVENT s		record
 *	wait EVENT s		cudaStreamWaitEvent
 *	esync EVENT, ssync s, dsync
 *				cudaEventSynchronize, cudaStreamSynchronize, cudaDeviceSynchronize
 *	epoll EVENT, spoll s	the same waits for an event or a stream, polling
 *	anypoll s s		polls two streams in turn until one of them is idle
 *	isync, halloc, hreg, hcopy
 *				cudaFree, cudaHostAlloc, cudaHostRegister, cudaMemcpy from the host:
 *				implicit synchronisation
 *	hs FLAG, hw FLAG	set a flag, wait for a flag
 *	hbar NAME RANK...	a barrier of threads
 *	lock NAME, unlock NAME	a mutex of the rank
 *	glock NAME, gunlock NAME
 *				a lock like an interpreter's: a waiting thread wakes up every 5 ms
 *	cwait NAME, csig NAME	a condition
 *	get NAME, put NAME	a queue
 *	start THREAD		starts the rank's thread 1, 2 or 3, which does not run before
 *	name NAME		names the thread, before it does anything else
 *	init COMM, ninit COMM	creates a blocking or a non-blocking communicator
 *	apoll COMM		polls ncclCommGetAsyncError until the communicator is ready
 *	awatch COMM		polls it for ever, until it returns an error
 *	split COMM NEW, shrink COMM NEW, fin COMM
 *				ncclCommSplit, ncclCommShrink, ncclCommFinalize; on a non-blocking
 *				communicator these calls return before they are complete
 *	destroy COMM
 *	exit, fail, quit, kill	the process ends by exit(0), exit(1), _exit(0) or SIGKILL; without
 *				`procs` exit and fail end only the rank
 *	return			the thread ends here and keeps its communicators
 *	spin, sleep MS		sleeps for ever, or for a time
 *	fork			forks a child that ends at once
 *	cap s GRAPH, endcap s GRAPH, launch GRAPH s
 *	read BUF [n=COUNT]	cudaMemcpy to the host; the values are compared
 *	tread BUF [n=COUNT]	the same on a new thread
 *	peek BUF [n=COUNT]	the CPU reads pinned or managed memory; the values are compared
 *	poke BUF [n=COUNT]	the CPU writes pinned or managed memory
 *	far FROM TO [n=COUNT]	a copy on a stream of another device, for which the thread waits
 *
 * A buffer without a name belongs to its step alone. Elements are 32-bit integers unless t= says
 * otherwise. Values of other types or with other operators than sum are not compared.
 */
#ifndef DEADLOCK_SCRIPT_H
#define DEADLOCK_SCRIPT_H

#include <stdint.h>
#include <stdio.h>

enum sc_kind {
	SC_COLL,
	SC_SEND,
	SC_RECV,
	SC_OPEN,
	SC_CLOSE,
	SC_WORK,
	SC_FN,
	SC_STUCK,
	SC_LEGACY,
	SC_REC,
	SC_WAIT,
	SC_ESYNC,
	SC_EPOLL,
	SC_SSYNC,
	SC_SPOLL,
	SC_ANYPOLL,
	SC_DSYNC,
	SC_FREE,
	SC_HALLOC,
	SC_HREG,
	SC_HCOPY,
	SC_HS,
	SC_HW,
	SC_HBAR,
	SC_LOCK,
	SC_UNLOCK,
	SC_GLOCK,
	SC_GUNLOCK,
	SC_CWAIT,
	SC_CSIG,
	SC_GET,
	SC_PUT,
	SC_START,
	SC_NAME,
	SC_INIT,
	SC_NINIT,
	SC_APOLL,
	SC_AWATCH,
	SC_SPLIT,
	SC_SHRINK,
	SC_FIN,
	SC_DESTROY,
	SC_EXIT,
	SC_QUIT,
	SC_RETURN,
	SC_KILL,
	SC_SPIN,
	SC_FORK,
	SC_SLEEP,
	SC_CAP,
	SC_ENDCAP,
	SC_LAUNCH,
	SC_READ,
	SC_TREAD,
	SC_PEEK,
	SC_POKE,
	SC_FAR
};

enum sc_memory { SC_DEVICE, SC_PINNED, SC_MANAGED };

enum sc_coll { SC_AR, SC_BC, SC_RED, SC_AG, SC_RS, SC_A2A };

struct sc_step {
	enum sc_kind kind;
	int coll, comm, comm2, stream, object, peer, in, out, type, redop;
	uint64_t count, members;
};

struct sc_names {
	char (*v)[24];
	int nr;
};

#define SC_RANKS   64
#define SC_THREADS 4

struct sc_comm {
	int *ranks, nr, late;
	uint64_t members;
};

struct sc_thread {
	struct sc_step *v;
	int nr;
};

struct script {
	char name[64], cls[8], nccl[16], ours[16], strict[16], release[16];
	uint8_t started[SC_RANKS]; /* set of threads that a `start` step starts */
	int slots, queues, cold, shared;
	int procs;	/* number of processes; 0 means one, -1 one for each rank */
	uint64_t after; /* set of communicators that a verdict must end */
	int nr_ranks, nr_threads[SC_RANKS];
	struct sc_thread threads[SC_RANKS][SC_THREADS];
	struct sc_names comm, stream, event, flag, bar, graph, buf;
	struct sc_comm *comms; /* by number in `comm` */
	uint8_t *kinds;	       /* by number in `buf`: enum sc_memory */
	char error[200];
};

int sc_name(struct sc_names *t, const char *name);

/*
 * Returns the number of buffer `name`, and adds the buffer if it is new. A null `name` makes an
 * unnamed buffer of the rank. Names that begin with a dot are reserved for unnamed buffers.
 */
int sc_buf(struct script *s, const char *name, int rank);

int sc_comm_add(struct script *s, const char *name, int late);

void sc_comm_member(struct sc_comm *c, int rank);

int sc_comm_rank(const struct sc_comm *c, int rank);

/*
 * Reads the next program. Returns 1 if there was a program, 0 at the end of the file, or -1 on an
 * error (text in s->error).
 */
int sc_read(FILE *f, struct script *s);

void sc_free(struct script *s);

/*
 * Adds a step to thread t of rank r. The step remains valid until the next step of the thread is
 * added.
 */
struct sc_step *sc_put(struct script *s, int r, int t, enum sc_kind kind, int stream);

void sc_print(const struct script *s, FILE *f);

void sc_copy(struct script *to, const struct script *from);

#endif
