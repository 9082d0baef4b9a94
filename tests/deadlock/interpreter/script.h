/*
 * Programs of ranks, threads, communicators and streams as text, read by the client that executes
 * them (script.c, a plain NCCL program) and by the tests that label them. Nothing of dfshim is in here.
 *
 *	prog NAME			begins a program (a file with one needs none)
 *	class OK|P|S-i|S-e|D		the class in the catalogue
 *	sure WORD			the certainty that the report must give
 *	says TEXT			a part of the sentence (a regular expression)
 *	nccl WORD, ours WORD, strict WORD	how it ends by each set of rules: OK, or the verdict's word
 *	lanes WORD, agree WORD		the same on lanes (ours where missing), and with DFSHIM_NCCL_ORDER=agree
 *	differs RULES WORD... # WHY	another word that is accepted there; cuda-RULES: on a GPU that all ranks share
 *	slots N, queues N, release X	resident collectives, hardware queues, DFSHIM_RELEASE for "ours"
 *	after COMM...			these are ended with an error; then the rest is checked (script.c)
 *	ranks N, procs [P], cold	ranks; a process each, or P; no first operation before the program
 *	shared				the thread that starts the ranks' threads makes their communicators, in one group
 *	comm NAME RANK...		a communicator that is there from the start
 *	late NAME RANK...		one that `init`, `split` or `shrink` makes
 *	pin BUFFER, managed BUFFER	the buffer is pinned host memory, or managed memory
 *	0: STEP; STEP ...		the steps of rank 0; 0.1: its second thread; lines are joined
 *	end				ends a program when others follow
 *
 * Steps (s: stream; those whose name begins with "nb" are non-blocking, "legacy" is the legacy default stream;
 * events have timing if their name begins with "timed" or their number is odd):
 *	AR|BC|RED|AG|RS|A2A COMM s [n=COUNT] [in=BUF] [out=BUF] [t=f32|bf16|i8|i32] [op=sum|max|avg]
 *	send|recv COMM PEER s [n=COUNT] [buf=BUF]		PEER is a rank of the job
 *	{ and }			a group		K s [FROM TO]	other work: a copy on the device
 *	fn s			a host function		stuck s		one that does not end
 *	leg			a copy on the legacy stream
 *	rec EVENT s, wait EVENT s, esync EVENT, epoll EVENT, ssync s, spoll s, dsync
 *	anypoll s s (asks two streams in turn until one of them is done)
 *	isync (cudaFree), halloc (cudaHostAlloc), hreg (cudaHostRegister), hcopy (cudaMemcpy from the host)
 *	hs FLAG, hw FLAG, hbar NAME RANK...	signal, wait, barrier of threads
 *	lock NAME, unlock NAME (a mutex of the rank), glock NAME, gunlock NAME (a lock as an interpreter has: a waiting thread
 *	wakes up every 5 ms), cwait NAME, csig NAME (a condition), get NAME, put NAME (a queue), start THREAD (that
 *	does not begin before; only a rank's second to fourth threads)
 *	name NAME (of the thread, before it does anything else)
 *	ninit COMM (begins a non-blocking one), apoll COMM (asks ncclCommGetAsyncError until it is ready)
 *	awatch COMM (asks that for ever, for errors)
 *	init COMM, split COMM NEW, shrink COMM NEW, fin COMM (ncclCommFinalize; of one that does not block these are
 *	only begun), destroy COMM, exit, fail (with status 1), quit (by _exit()), kill, spin, sleep MS, fork (a child that ends at once)
 *	return (the thread ends here, and gives nothing back)
 *	cap s GRAPH, endcap s GRAPH, launch GRAPH s
 *	read BUF [n=COUNT] (cudaMemcpy to the host, compared), tread BUF [n=COUNT] (by a thread of its own)
 *	peek BUF [n=COUNT] (pinned or managed, read by the host, compared), poke BUF [n=COUNT] (written by the host)
 *	far FROM TO [n=COUNT]	a copy on a stream of another device, for which the thread waits
 *
 * Buffers that are not named belong to their step alone. Elements are 32-bit integers unless t= says
 * otherwise; then nothing is compared.
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
	uint8_t started[SC_RANKS]; /* set of threads that another one starts */
	int slots, queues, cold, shared;
	int procs;	/* how many processes; 0: one */
	uint64_t after; /* set of communicators */
	int nr_ranks, nr_threads[SC_RANKS];
	struct sc_thread threads[SC_RANKS][SC_THREADS];
	struct sc_names comm, stream, event, flag, bar, graph, buf;
	struct sc_comm *comms; /* by number of comm */
	uint8_t *kinds;	       /* by number of buf: enum sc_memory */
	char error[200];
};

int sc_name(struct sc_names *t, const char *name);

/* A new buffer; names that begin with a dot are ours. */
int sc_buf(struct script *s, const char *name, int rank);

int sc_comm_add(struct script *s, const char *name, int late);

void sc_comm_member(struct sc_comm *c, int rank);

int sc_comm_rank(const struct sc_comm *c, int rank);

/* 1 a program, 0 end of file, -1 an error (s->error). */
int sc_read(FILE *f, struct script *s);

void sc_free(struct script *s);

/* A new step of a thread. */
struct sc_step *sc_put(struct script *s, int r, int t, enum sc_kind kind, int stream);

void sc_print(const struct script *s, FILE *f);

void sc_copy(struct script *to, const struct script *from);

#endif
