/*
 * Asks the interpreter through its stable C interface, looked up in the process: dfshim does not
 * link Python. A few lines of Python walk sys._current_frames() and return text. They change
 * nothing and import no further module, because an import could wait for a lock.
 *
 * When the interpreter finalizes, it ends the threads that wait for its lock. So the asking thread
 * holds nothing while it waits, and no thread waits for it without a bound.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/thread.h"
#include "runtime/base/time.h"
#include "runtime/watch/python.h"
#include "trace/record/site.h"
#include "trace/record/writer.h"

#define FRAMES_MAX 24
#define FILE_INPUT 257 /* Py_file_input: the number is part of the stable interface */

struct object; /* PyObject */

static struct {
	int found; /* 0 before the search, 1 if all functions exist, else -1 */
	int (*is_initialized)(void);
	int (*ensure)(void);
	void (*release)(int);
	struct object *(*dict_new)(void);
	struct object *(*builtins)(void);
	int (*dict_set)(struct object *dict, const char *key, struct object *value);
	struct object *(*dict_get)(struct object *dict, const char *key);
	struct object *(*run)(const char *code, int start, struct object *globals,
			      struct object *locals);
	int (*bytes_as)(struct object *bytes, char **text, intptr_t *nr);
	void (*clear)(void);
	int (*gc_disable)(void), (*gc_enable)(void); /* since 3.10 */
	void (*decref)(struct object *o);
} py;

/*
 * One question at a time. While none is open, the text belongs to the thread that records the hang.
 */
static struct {
	pthread_mutex_t lock;
	uint64_t asked, answered;
	char *text; /* per thread: its id and perhaps " own", a line per frame, an empty line */
} ask = {PTHREAD_MUTEX_INITIALIZER, 0, 0, NULL};

/*
 * The text is not a Python function: the function and its globals would refer to each other and
 * need the collector.
 */
static const char code[] = "import sys\n"
			   "lines, threading = [], sys.modules.get('threading')\n"
			   "threads = getattr(threading, '_active', {})\n"
			   "library = getattr(threading, '__file__', '').rpartition('/')[0] + '/'\n"
			   "for ident, frame in sys._current_frames().items():\n"
			   "    tid = MAIN[1] if ident == MAIN[0] else getattr(threads.get(ident), "
			   "'native_id', None)\n"
			   "    if not tid:\n"
			   "        continue\n"
			   "    file = frame.f_code.co_filename\n"
			   "    own = '/site-packages/' in file or not file.startswith(library)\n"
			   "    lines.append(f'{tid} own' if own else str(tid))\n"
			   "    for _ in range(MAX):\n"
			   "        if frame is None:\n"
			   "            break\n"
			   "        c = frame.f_code\n"
			   "        at = f'{c.co_filename}:{frame.f_lineno or 0} {c.co_name}'\n"
			   "        lines.append(at.replace('\\n', ' '))\n"
			   "        frame = frame.f_back\n"
			   "    lines.append('')\n"
			   "frame = c = threading = threads = None\n"
			   "OUT = '\\n'.join(lines).encode('utf-8', 'backslashreplace')\n";

static void find(void)
{
	static const struct {
		void *where;
		const char *name;
		int optional;
	} names[] = {
		{&py.is_initialized, "Py_IsInitialized", 0},
		{&py.ensure, "PyGILState_Ensure", 0},
		{&py.release, "PyGILState_Release", 0},
		{&py.dict_new, "PyDict_New", 0},
		{&py.builtins, "PyEval_GetBuiltins", 0},
		{&py.dict_set, "PyDict_SetItemString", 0},
		{&py.dict_get, "PyDict_GetItemString", 0},
		{&py.run, "PyRun_String", 0},
		{&py.bytes_as, "PyBytes_AsStringAndSize", 0},
		{&py.clear, "PyErr_Clear", 0},
		{&py.decref, "Py_DecRef", 0},
		{&py.gc_disable, "PyGC_Disable", 1},
		{&py.gc_enable, "PyGC_Enable", 1},
	};

	py.found = 1;
	for (size_t i = 0; i < DF_ARRAY_LEN(names); i++) {
		void *fn = dlsym(RTLD_DEFAULT, names[i].name);

		memcpy(names[i].where, &fn, sizeof(fn));
		if (!fn && !names[i].optional)
			py.found = -1;
	}
}

int df_python_is_there(void)
{
	if (!py.found)
		find();
	return py.found > 0 && py.is_initialized();
}

/* The main thread's identity in Python, whose table of threads may lack it; 0 if unknown. */
static unsigned long main_thread;

__attribute__((constructor)) static void loaded(void)
{
	if (syscall(SYS_gettid) == getpid())
		main_thread = (unsigned long)pthread_self();
}

/*
 * Runs the text. The caller holds the interpreter's lock. Returns the answer, or NULL if Python
 * raised an exception.
 */
static char *question(void)
{
	char text[sizeof(code) + 96], *said = NULL;
	struct object *dict = py.dict_new(), *result, *out;
	intptr_t nr = 0;

	if (!dict)
		return NULL;
	snprintf(text, sizeof(text), "MAIN, MAX = (%lu, %d), %d\n%s", main_thread, (int)getpid(),
		 FRAMES_MAX, code);
	py.dict_set(dict, "__builtins__", py.builtins());
	result = py.run(text, FILE_INPUT, dict, dict);
	out = result ? py.dict_get(dict, "OUT") : NULL;
	if (out && !py.bytes_as(out, &said, &nr))
		said = strndup(said, (size_t)nr);
	else
		said = NULL;
	py.clear();
	if (result)
		py.decref(result);
	py.decref(dict);
	return said;
}

static void *asks(void *arg)
{
	int state = py.ensure(), collects;
	char *text, *old;

	(void)arg;
	/*
	 * No garbage collection: freeing an object could release GPU memory and so wait for the
	 * GPU.
	 */
	collects = py.gc_disable && py.gc_enable && py.gc_disable();
	text = question();
	if (collects)
		py.gc_enable();
	py.release(state);
	pthread_mutex_lock(&ask.lock);
	old = ask.text;
	ask.text = text;
	ask.answered = ask.asked;
	pthread_mutex_unlock(&ask.lock);
	free(old);
	return NULL;
}

void df_python_ask(void)
{
	int busy;

	pthread_mutex_lock(&ask.lock);
	busy = ask.asked != ask.answered;
	if (!busy) {
		/* A previous answer does not show where the threads are now. */
		free(ask.text);
		ask.text = NULL;
	}
	pthread_mutex_unlock(&ask.lock);
	if (busy || !df_env()->python || !df_python_is_there())
		return;
	pthread_mutex_lock(&ask.lock);
	ask.asked++;
	pthread_mutex_unlock(&ask.lock);
	if (df_thread_start("dfshim-python", 0, asks, NULL)) {
		pthread_mutex_lock(&ask.lock);
		ask.asked--;
		pthread_mutex_unlock(&ask.lock);
	}
}

int df_python_wait(uint64_t ns)
{
	uint64_t until = df_now_ns() + ns;
	int said;

	for (;;) {
		pthread_mutex_lock(&ask.lock);
		said = ask.asked == ask.answered;
		pthread_mutex_unlock(&ask.lock);
		if (said || df_now_ns() >= until)
			return said && ask.text;
		df_sleep_ns(DF_NS_PER_MS);
	}
}

int df_python_is_held(void)
{
	int held;

	pthread_mutex_lock(&ask.lock);
	held = ask.asked != ask.answered;
	pthread_mutex_unlock(&ask.lock);
	return held;
}

int df_python_in_own_line(uint32_t tid)
{
	char want[32];
	const char *at;

	snprintf(want, sizeof(want), "%u own\n", tid);
	for (at = ask.text; at; at = strstr(at, "\n\n")) {
		at += at == ask.text ? 0 : 2;
		if (!strncmp(at, want, strlen(want)))
			return 1;
	}
	return 0;
}

uint32_t df_python_site(uint32_t tid)
{
	char *at = ask.text ? strdup(ask.text) : NULL, *rest = at, *line;
	const char *frames[FRAMES_MAX];
	size_t nr = 0;
	int mine = 0, first = 1;
	uint32_t site;

	while ((line = strsep(&rest, "\n"))) {
		if (first)
			mine = strtoul(line, NULL, 10) == tid;
		else if (*line && mine && nr < FRAMES_MAX)
			frames[nr++] = line;
		first = !*line;
	}
	site = nr ? df_trace_site_text(frames, nr) : 0;
	free(at);
	return site;
}
