/*
 * Finds what the application's threads do while nothing makes progress: wait for a lock, wait in a
 * socket, sleep, or run. Without this, a thread that is in no call of ours would look free; the
 * checker needs to know whether it waits, and for which thread. The answers are read from
 * /proc/self/task, so no thread is stopped, and there is no cost until a hang is investigated.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "kernels/abi.h"
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/time.h"
#include "runtime/comm/polls.h"
#include "runtime/comm/process.h"
#include "runtime/watch/hosts.h"
#include "runtime/watch/python.h"
#include "trace/check.h"
#include "trace/record/format.h"
#include "trace/record/writer.h"

#define THREADS_MAX 256
/* number of samples; a single one could catch a waiting thread during its periodic check */
#define SAMPLES	  9
#define SAMPLE_NS (6 * DF_NS_PER_MS)
/*
 * On a loaded machine, a thread that waits and wakes briefly now and then can seem to run for as
 * long as it waits for a processor. So a thread counts as running only after it has had a processor
 * for RAN_NS. Until then it is sampled again. Since other processes wait for the result, sampling
 * takes at most LOOK_MAX_NS and at most half of the time. A thread that is still undecided then
 * gets no new record: its previous one remains valid.
 */
#define RAN_NS	    (10 * DF_NS_PER_MS)
#define LOOK_MAX_NS (700 * DF_NS_PER_MS)
/* Maximum time to wait for the interpreter's answer, after the sampling. */
#define PYTHON_NS (200 * DF_NS_PER_MS)

static const struct {
	long nr;
	enum df_host_at at;
} calls[] = {
	{SYS_nanosleep, DF_AT_SLEEPS}, {SYS_clock_nanosleep, DF_AT_SLEEPS},
	{SYS_read, DF_AT_IO},	       {SYS_readv, DF_AT_IO},
	{SYS_write, DF_AT_IO},	       {SYS_recvfrom, DF_AT_IO},
	{SYS_recvmsg, DF_AT_IO},       {SYS_sendto, DF_AT_IO},
	{SYS_sendmsg, DF_AT_IO},       {SYS_accept, DF_AT_IO},
	{SYS_accept4, DF_AT_IO},       {SYS_connect, DF_AT_IO},
	{SYS_ppoll, DF_AT_IO},	       {SYS_pselect6, DF_AT_IO},
	{SYS_epoll_pwait, DF_AT_IO},
#ifdef SYS_poll
	{SYS_poll, DF_AT_IO},	       {SYS_select, DF_AT_IO},
	{SYS_epoll_wait, DF_AT_IO},
#endif
	{SYS_wait4, DF_AT_CHILD},      {SYS_waitid, DF_AT_CHILD},
};

/* Reads a /proc file of one of our threads as a string. Returns its length, or -errno. */
static ssize_t read_task(uint32_t tid, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%u/%s", tid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, size - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	return n;
}

#define NR_ARGS 4

/* Whether the call waits for no file, only for time, as Python's time.sleep() does up to 3.10. */
static int waits_for_none(long nr, const unsigned long arg[NR_ARGS])
{
	switch (nr) {
	case SYS_pselect6:
#ifdef SYS_select
	case SYS_select:
#endif
		return !arg[0];
	case SYS_ppoll:
#ifdef SYS_poll
	case SYS_poll:
#endif
		return !arg[1];
	default:
		return 0;
	}
}

/*
 * Whether the thread waits for the end of a thread of this process, as in pthread_join(). The futex
 * holds that thread's id until it ends; the kernel then wakes it as a futex that processes share.
 */
static int is_join(const unsigned long arg[NR_ARGS])
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%u", (uint32_t)arg[2]);
	return arg[2] && !access(path, F_OK);
}

/*
 * Returns where a thread is, from the file "syscall": "running", or the number of the system call
 * and its arguments in hexadecimal.
 */
static enum df_host_at where(uint32_t tid, long *nr, unsigned long arg[NR_ARGS])
{
	char text[256];
	ssize_t n = read_task(tid, "syscall", text, sizeof(text));
	unsigned i;

	*nr = -1;
	if (n == -ENOENT)
		return access("/proc/self/task", R_OK) ? DF_AT_UNKNOWN : DF_AT_GONE;
	if (n <= 0)
		return n == -ESRCH ? DF_AT_GONE : DF_AT_UNKNOWN;
	if (!strncmp(text, "running", 7))
		return DF_AT_RUNS;
	if (sscanf(text, "%ld 0x%lx 0x%lx 0x%lx 0x%lx", nr, &arg[0], &arg[1], &arg[2], &arg[3]) !=
	    1 + NR_ARGS)
		return DF_AT_OTHER;
	if (*nr == SYS_futex)
		return arg[1] & FUTEX_PRIVATE_FLAG || is_join(arg) ? DF_AT_LOCK : DF_AT_SHARED;
	if (waits_for_none(*nr, arg))
		return DF_AT_SLEEPS;
	for (i = 0; i < DF_ARRAY_LEN(calls); i++)
		if (calls[i].nr == *nr)
			return calls[i].at;
	return DF_AT_OTHER;
}

/*
 * Returns the kind of lock for which a thread in a futex call waits. libc's mutex has the value 2
 * while it is held and other threads wait for it.
 */
static enum df_lock lock_of(const unsigned long arg[NR_ARGS])
{
	unsigned op = (unsigned)arg[1] & FUTEX_CMD_MASK;

	if (!(arg[1] & FUTEX_PRIVATE_FLAG))
		return DF_LOCK_JOIN;
	return (op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET) && arg[2] == 2 ? DF_LOCK_HELD
									    : DF_LOCK_ANY;
}

/* Returns how long the thread has had a processor, or UINT64_MAX if that is unknown. */
static uint64_t ran_ns(uint32_t tid)
{
	char text[96];

	return read_task(tid, "schedstat", text, sizeof(text)) > 0 ? strtoull(text, NULL, 10)
								   : UINT64_MAX;
}

/*
 * Whether the thread neither issues operations nor wakes a thread that does. These are dfshim's
 * threads, those of the CPU backend (which uses other threads for host functions), and PyTorch's
 * threads for its watchdog and heartbeat, its store, and the data loader's pinned memory. Such a
 * thread may briefly hold a lock of libc for which a thread of the application waits.
 */
static int stands_aside(const char *name)
{
	static const char *const names[] = {DF_OUR_THREADS, "df-host-engine", "pt_nccl_",
					    "pt_tcpstore", "pt_data_pin"};

	for (size_t i = 0; i < DF_ARRAY_LEN(names); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return 1;
	return 0;
}

/*
 * Returns how often the thread has left its processor, or 0 if that is unknown. Read this number
 * after the system call. If both are unchanged later, the thread has not run in between, because it
 * would have had to leave the processor once more to wait again.
 */
static uint64_t times_off(uint32_t tid)
{
	static const char *const names[] = {"\nvoluntary_ctxt_switches:",
					    "\nnonvoluntary_ctxt_switches:"};
	char text[4096];
	uint64_t sum = 0;

	if (read_task(tid, "status", text, sizeof(text)) <= 0)
		return 0;
	for (size_t i = 0; i < DF_ARRAY_LEN(names); i++) {
		const char *at = strstr(text, names[i]);

		if (!at)
			return 0;
		sum += strtoull(at + strlen(names[i]), NULL, 10);
	}
	return sum;
}

/* Maximum age of a query that counts, for a thread that sleeps between its queries. */
#define POLL_MAX_NS (2 * DF_NS_PER_S)

static uint64_t polls_since(void)
{
	uint64_t window = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS / 4;

	return df_now_ns() - DF_MIN(window, POLL_MAX_NS);
}

static int note_polls(uint32_t tid, uint32_t site)
{
	uint32_t kinds[DF_POLLS_MAX];
	uint64_t objects[DF_POLLS_MAX];
	size_t nr = df_polls_of(tid, polls_since(), kinds, objects), i;

	for (i = 0; i < nr; i++)
		df_trace(DF_REC_HOST_AT, -1, 0, -1, i, tid,
			 (uint64_t)DF_AT_POLLS | (uint64_t)kinds[i] << 8, objects[i], site);
	return nr > 0;
}

/*
 * Records the functions with which the thread polls objects that have no record, so that it does
 * not count as silent.
 */
static void note_asks(uint32_t tid)
{
	unsigned kinds = df_polls_asked(tid, polls_since());

	if (kinds)
		df_trace(DF_REC_HOST_AT, -1, 0, -1, 0, tid, DF_AT_ASKS, kinds, 0);
}

struct seen {
	uint32_t tid;
	int stranger;	       /* whether the thread has written no record */
	uint16_t at[DF_AT_NR]; /* number of samples of each kind */
	uint16_t nr;
	long call; /* the last system call */
	uint64_t ran_ns, times_off;
	enum df_lock lock; /* of the last sample in a lock */
};

/*
 * Returns the state of the thread in most samples. Running counts less than waiting, because a
 * thread that waits runs briefly from time to time.
 */
static enum df_host_at mostly(const struct seen *s)
{
	int at = DF_AT_RUNS, k;

	for (k = DF_AT_SLEEPS; k < DF_AT_NR; k++)
		if (s->at[k] * 3 >= SAMPLES && (at == DF_AT_RUNS || s->at[k] > s->at[at]))
			at = k;
	return at == DF_AT_RUNS && !s->at[at] ? DF_AT_UNKNOWN : (enum df_host_at)at;
}

/* Whether the thread has been sampled for long enough. */
static int is_known(const struct seen *s)
{
	uint64_t ran = mostly(s) == DF_AT_RUNS ? ran_ns(s->tid) : UINT64_MAX;

	return s->nr >= SAMPLES && (ran == UINT64_MAX || ran - s->ran_ns >= RAN_NS);
}

static void look(struct seen *s)
{
	unsigned long arg[NR_ARGS];
	enum df_host_at at;
	long call;

	at = where(s->tid, &call, arg);
	s->at[at]++;
	if (at == DF_AT_LOCK)
		s->lock = lock_of(arg);
	if (call >= 0 || !s->nr)
		s->call = call >= 0 ? call : 0;
	if (!s->nr++) {
		s->ran_ns = ran_ns(s->tid);
		s->times_off = times_off(s->tid);
	}
}

/*
 * Number of wakes during the sampling that mean that a thread waits for the interpreter's lock:
 * such a thread wakes every 5 ms to request the lock from its holder.
 */
#define ASKS_FOR_SCRIPT 12

static enum df_lock lock_seen(const struct seen *s, int scripts)
{
	if (s->lock != DF_LOCK_ANY)
		return s->lock;
	if (!scripts && df_python_is_held() && times_off(s->tid) >= s->times_off + ASKS_FOR_SCRIPT)
		return DF_LOCK_SCRIPT;
	return scripts && df_python_in_own_line(s->tid) ? DF_LOCK_HELD : DF_LOCK_ANY;
}

/* ---- threads that have called neither NCCL nor CUDA ----------------------------------------- */

/* Threads of this kind that were recorded. Only one thread of the process uses this array. */
static uint32_t strangers[THREADS_MAX];

static size_t nr_strangers(void)
{
	size_t nr = 0;

	while (nr < THREADS_MAX && strangers[nr])
		nr++;
	return nr;
}

static int in_list(const uint32_t *list, size_t nr, uint32_t tid)
{
	while (nr && list[nr - 1] != tid)
		nr--;
	return nr > 0;
}

/* Whether the thread belongs to NCCL, CUDA or dfshim, and so runs nothing of the application. */
static int is_library(uint32_t tid)
{
	static const char *const names[] = {"nccl-", "NCCL ", "cuda-", "df-host-"};
	char name[32];

	if (read_task(tid, "comm", name, sizeof(name)) <= 0)
		return 1;
	for (size_t i = 0; i < DF_ARRAY_LEN(names); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return 1;
	return stands_aside(name);
}

/* Adds the process's other threads to the nr threads in tids. Returns the new number. */
static size_t add_strangers(uint32_t *tids, size_t nr, size_t max)
{
	DIR *dir = opendir("/proc/self/task");
	uint32_t self = (uint32_t)syscall(SYS_gettid);
	const size_t known = nr;
	struct dirent *d;

	while (dir && nr < max && (d = readdir(dir))) {
		uint32_t tid = (uint32_t)strtoul(d->d_name, NULL, 10);

		if (tid && tid != self && !in_list(tids, known, tid) && !is_library(tid))
			tids[nr++] = tid;
	}
	if (dir)
		closedir(dir);
	return nr;
}

/*
 * Whether a thread without records counts. A library may have many threads that wait for work and
 * issue nothing by themselves. So such a thread counts only if it runs a script, if it waits for
 * the interpreter's lock, or, in a process without an interpreter, if it waits for another thread
 * of the process.
 */
static int counts(enum df_host_at at, enum df_lock lock, uint32_t site)
{
	if (site || (at == DF_AT_LOCK && lock == DF_LOCK_SCRIPT))
		return 1;
	return at == DF_AT_LOCK && lock != DF_LOCK_JOIN && !df_python_is_there();
}

/* Records the thread's name, as the first record of any other thread does. */
static void introduce(uint32_t tid)
{
	uint64_t name[2] = {0, 0};
	char text[32];
	size_t nr = nr_strangers();

	if (in_list(strangers, nr, tid) || nr == THREADS_MAX)
		return;
	strangers[nr] = tid;
	if (read_task(tid, "comm", text, sizeof(text)) > 0) {
		text[strcspn(text, "\n")] = 0;
		memcpy(name, text, DF_MIN(strlen(text), sizeof(name) - 1));
	}
	df_trace(DF_REC_THREAD, -1, 0, -1, 0, tid, name[0], name[1], 0);
}

/* Forgets the threads that have ended since they were recorded. */
static void forget_strangers(void)
{
	size_t nr = nr_strangers(), i = 0;
	unsigned long arg[NR_ARGS];
	long call;

	while (i < nr) {
		if (where(strangers[i], &call, arg) != DF_AT_GONE) {
			i++;
			continue;
		}
		df_trace(DF_REC_HOST_AT, -1, 0, -1, 0, strangers[i], DF_AT_GONE, 0, 0);
		strangers[i] = strangers[--nr];
		strangers[nr] = 0;
	}
}

void df_hosts_note(void)
{
	struct seen seen[THREADS_MAX];
	uint32_t tids[THREADS_MAX];
	size_t nr = df_trace_threads(tids, THREADS_MAX), known = nr, i;
	/*
	 * No lock is needed: only the watchdog's thread calls this, or in mode trace the thread
	 * that replaces it.
	 */
	static uint64_t ended;
	uint64_t now = df_now_ns(), until = now - ended > LOOK_MAX_NS ? now + LOOK_MAX_NS : 0;
	size_t left;
	int k, scripts;

	df_python_ask();
	nr = add_strangers(tids, nr, THREADS_MAX);
	left = nr;
	for (i = 0; i < nr; i++)
		seen[i] = (struct seen){.tid = tids[i], .stranger = i >= known};
	for (k = 0; left && (k < SAMPLES || df_now_ns() < until); k++) {
		if (k)
			df_sleep_ns(SAMPLE_NS);
		for (i = 0, left = 0; i < nr; i++)
			if (!is_known(&seen[i])) {
				look(&seen[i]);
				left++;
			}
	}
	scripts = df_python_wait(PYTHON_NS);
	if (until)
		ended = df_now_ns();
	forget_strangers();
	for (i = 0; i < nr; i++) {
		enum df_host_at at = mostly(&seen[i]);
		uint32_t site = scripts ? df_python_site(tids[i]) : 0;
		enum df_lock lock = at == DF_AT_LOCK ? lock_seen(&seen[i], scripts) : DF_LOCK_ANY;

		if (seen[i].stranger) {
			if (seen[i].at[DF_AT_GONE] || !counts(at, lock, site))
				continue;
			introduce(tids[i]);
		}
		if (!seen[i].at[DF_AT_GONE] && note_polls(tids[i], site))
			continue;
		if (!seen[i].at[DF_AT_GONE])
			note_asks(tids[i]);
		if (at == DF_AT_RUNS && !is_known(&seen[i]))
			continue;
		df_trace(DF_REC_HOST_AT, -1, 0, -1, 0, tids[i], (uint64_t)at | (uint64_t)lock << 8,
			 (uint64_t)seen[i].call, site);
		if (at == DF_AT_GONE) {
			df_trace_thread_gone(tids[i]);
			df_polls_gone(tids[i]);
		}
	}
}

int df_hosts_due(uint64_t progress, uint64_t quiet_ns)
{
	static uint64_t last, since, next;
	uint64_t now = df_now_ns(), timeout = (uint64_t)df_env()->timeout_ms * DF_NS_PER_MS;

	if (progress != last || !since) {
		last = progress;
		since = now;
		next = quiet_ns;
	}
	if (now - since < next || now - since >= timeout)
		return 0;
	next = (now - since) * 3 / 2;
	return 1;
}

/* ---- what is certain ------------------------------------------------------------------------ */

#define CERTAIN_MAX 1024
#define SLEEP_TRIES 4

/* Whether the thread sleeps or has ended, and so holds no lock. */
static int sleeps(uint32_t tid)
{
	unsigned long arg[NR_ARGS];
	enum df_host_at at;
	long nr;

	for (int i = 0; i < SLEEP_TRIES; i++) {
		at = where(tid, &nr, arg);
		if (at >= DF_AT_SLEEPS && at <= DF_AT_IO && nr != SYS_read && nr != SYS_write)
			return 1;
		if (at == DF_AT_GONE)
			return 1;
		sched_yield();
	}
	return 0;
}

/*
 * Returns the certain state of a thread. A futex wait without a time-out ends only with a wake, and
 * only another thread of the process can wake a private futex. The end of a thread is also a wake:
 * pthread_join() waits for the word that holds the thread's id to change.
 *
 * A thread of PyTorch's autograd that waits for a condition variable waits for a backward pass.
 * (For a mutex, libc uses the other futex operation.) Only a thread that calls backward() wakes it,
 * and no host function does that.
 */
static struct df_check_host certain(uint32_t tid, const char *name)
{
	int serves = !strncmp(name, DF_AUTOGRAD_THREADS, strlen(DF_AUTOGRAD_THREADS));
	struct df_check_host h = {.tid = tid, .kind = DF_HOST_FREE, .nr_calls = df_polls_acts(tid)};
	unsigned long arg[NR_ARGS];
	unsigned op;
	long nr;

	where(tid, &nr, arg);
	op = nr == SYS_futex ? (unsigned)arg[1] & FUTEX_CMD_MASK : FUTEX_WAKE;
	if ((op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET) || arg[3])
		return h;
	if (arg[2] && df_trace_thread_ends_at((uint32_t)arg[2], arg[0])) {
		h.kind = DF_HOST_JOIN;
		h.whom = (uint32_t)arg[2];
	} else if (serves && arg[1] & FUTEX_PRIVATE_FLAG && op == FUTEX_WAIT_BITSET) {
		h.kind = DF_HOST_SERVES;
	} else if (arg[1] & FUTEX_PRIVATE_FLAG &&
		   !__atomic_load_n(&df_rt.host_work, __ATOMIC_RELAXED)) {
		h.kind = DF_HOST_BLOCKED;
	}
	if (h.kind != DF_HOST_FREE)
		h.stamp = times_off(tid);
	if (!h.stamp)
		h.kind = DF_HOST_FREE;
	return h;
}

static int by_tid(const void *pa, const void *pb)
{
	const struct df_check_host *a = pa, *b = pb;

	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

int df_hosts_certain(struct df_check_host **out, uint32_t *nr)
{
	struct df_check_host *all = malloc(CERTAIN_MAX * sizeof(*all));
	DIR *dir = all ? opendir("/proc/self/task") : NULL;
	uint32_t aside[THREADS_MAX], nr_aside = 0, n = 0, self = (uint32_t)syscall(SYS_gettid);
	struct dirent *d;
	int asleep = 1;

	while (dir && (d = readdir(dir))) {
		uint32_t tid = (uint32_t)strtoul(d->d_name, NULL, 10);
		char name[32] = "";

		if (!tid || tid == self)
			continue;
		if (n == CERTAIN_MAX || nr_aside == THREADS_MAX)
			break;
		read_task(tid, "comm", name, sizeof(name));
		if (stands_aside(name))
			aside[nr_aside++] = tid;
		else
			all[n++] = certain(tid, name);
	}
	/*
	 * Check these after the others: a lock that one of them held before is released by now, so
	 * a thread that waited for it no longer does.
	 */
	for (uint32_t i = 0; i < nr_aside; i++)
		asleep = asleep && sleeps(aside[i]);
	if (!dir || n == CERTAIN_MAX || nr_aside == THREADS_MAX) {
		if (dir)
			closedir(dir);
		free(all);
		return dir ? -E2BIG : -ENOENT;
	}
	closedir(dir);
	for (uint32_t i = 0; i < n && !asleep; i++)
		if (all[i].kind == DF_HOST_BLOCKED)
			all[i] = (struct df_check_host){.tid = all[i].tid,
							.kind = DF_HOST_FREE,
							.nr_calls = all[i].nr_calls};
	qsort(all, n, sizeof(*all), by_tid);
	*out = all;
	*nr = n;
	return 0;
}
