/*
 * Reads the frames of a Python interpreter. While a thread is inside a call of NCCL or CUDA, it
 * executes no script. So its frames do not change, and the objects that they refer to stay alive,
 * with or without the interpreter's lock. Reading them needs no lock and changes nothing.
 *
 * The offsets of fields are known for each version (`layouts`). They are trusted only after one
 * walk, with reads that cannot fault, has found that each frame looks like one: known types, text
 * for names, an instruction inside the function, a line for it. From 3.13 on the interpreter
 * publishes the offsets itself, and these must agree. Otherwise the process records no lines. After
 * that walk, calls read frames directly. Names and lines, which only the first call of a site
 * needs, are always read with reads that cannot fault.
 *
 * A thread in which PyTorch computes gradients executes no script. The main thread does, and waits
 * for that thread in backward(). The main thread's frames may change meanwhile, so they are read
 * only with reads that cannot fault.
 *
 * The properties of functions are in a table that only grows. Any thread. Takes no locks of ours.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "runtime/base/env.h"
#include "runtime/base/err.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "trace/record/format.h"
#include "trace/record/module.h"
#include "trace/record/peek.h"
#include "trace/record/script.h"

#define NR_CODES   8192u
#define MAX_PROBES 16
#define INNERMOST  (DF_SCRIPT_FRAMES - 1)
#define MAX_DEPTH  64  /* maximum number of frames that a call examines */
#define TEXT_MAX   512 /* bytes of a name */
#define TABLE_MAX  (1 << 20)

/* Offsets in the interpreter's structs, in 64-bit builds. */
struct layout {
	int minor;
	int thread_frame; /* of a thread: its innermost frame, or the struct that holds it */
	int holder_frame; /* offset in that struct; -1 if it is the frame itself */
	int thread_id;
	/* in a frame; owner is 0 if the version has no such field */
	int code, back, at, owner;
	int line, file, name, lines, instrs; /* in a function */
	/* sizes of a string's head, for text in ASCII and other text */
	int ascii_bytes, text_bytes;
};

/*
 * The values are in this order. minor; thread: frame, in, id; frame: code, back, at, owner;
 * function: line, file, name, lines, instrs; string: ascii_bytes, text_bytes
 */
static const struct layout layouts[] = {
	{9, 24, -1, 176, 32, 24, 104, 0, 40, 104, 112, 120, 0, 48, 72},
	{10, 24, -1, 176, 32, 24, 96, 0, 40, 104, 112, 120, 0, 48, 72},
	{11, 56, 8, 152, 32, 48, 56, 69, 72, 112, 120, 136, 184, 48, 72},
	{12, 56, 0, 136, 0, 8, 56, 70, 68, 112, 120, 136, 192, 40, 56},
	{13, 72, -1, 152, 0, 8, 56, 70, 68, 112, 120, 136, 200, 40, 56},
	{14, 72, -1, 152, 0, 8, 56, 74, 68, 112, 120, 136, 208, 40, 56},
};

#define OBJECT_TYPE  8
#define OBJECT_SIZE  16 /* size of the head of bytes and strings, which ends with their length */
#define BYTES_DATA   32
#define STRING_STATE 32

/*
 * For 3.13 and later: indices of the words of _Py_DebugOffsets that hold the same offsets. Before
 * them are a cookie, the version and "free threaded".
 */
static const struct {
	int minor;
	uint8_t frame, id, back, code, at, owner, file, name, lines, line, instrs;
} said[] = {
	{13, 23, 24, 29, 30, 31, 33, 35, 36, 38, 39, 43},
	{14, 26, 27, 32, 33, 34, 36, 40, 41, 43, 44, 48},
};

enum { NONE, FOUND, READY, REFUSED };

static struct {
	_Atomic(int) state;
	const struct layout *l;
	/*
	 * PyGILState_GetThisThreadState(): the struct of the calling thread, with or without the
	 * lock
	 */
	void *(*thread)(void);
	int (*is_initialized)(void);
	int (*is_finalizing)(void);
	const void *code_type, *string_type, *bytes_type;
	struct df_module file; /* the interpreter's */
} py;

/* The owner of a function's code. */
enum owner { UNKNOWN, LIBRARY, PACKAGE, PROGRAM };

static struct {
	_Atomic(const void *) code;
	_Atomic(uint64_t)
		known; /* id of the function that is there, and its owner in the low bits */
} codes[NR_CODES];
#define OWNER_BITS 7ull

/* ---- reads that cannot fault ----------------------------------------------------------------- */

static const void *get_pointer(const void *at, int offset)
{
	const void *p = NULL;

	return df_peek((const char *)at + offset, &p, sizeof(p)) ? p : NULL;
}

static int is_a(const void *object, const void *type)
{
	return object && get_pointer(object, OBJECT_TYPE) == type;
}

static size_t put_utf8(uint32_t c, char *to)
{
	if (c < 0x20 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		c = '?';
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 63));
		to[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 63));
	to[2] = (char)(0x80 | (c >> 6 & 63));
	to[3] = (char)(0x80 | (c & 63));
	return 4;
}

/*
 * Reads a string. If it does not fit, reads only its end, because the end of a path is the
 * distinctive part. Returns 0 if `s` is no string.
 */
static int get_text(const void *s, char *buf, size_t size)
{
	uint64_t head[5], length, skip;
	uint32_t kind, c;
	unsigned char data[TEXT_MAX * 4];
	const char *from;
	size_t n, at = 0;

	if (!is_a(s, py.string_type) || !df_peek(s, head, sizeof(head)))
		return 0;
	length = head[OBJECT_SIZE / 8];
	kind = (uint32_t)head[STRING_STATE / 8] >> 2 & 7;
	/* It must be compact, with a valid width. */
	if (!((uint32_t)head[STRING_STATE / 8] & 32) || (kind != 1 && kind != 2 && kind != 4) ||
	    length > TABLE_MAX)
		return 0;
	from = (const char *)s +
	       ((uint32_t)head[STRING_STATE / 8] & 64 ? py.l->ascii_bytes : py.l->text_bytes);
	n = DF_MIN(length, TEXT_MAX);
	skip = length - n;
	if (n && !df_peek(from + skip * kind, data, n * kind))
		return 0;
	for (size_t i = 0; i < n && at + 5 < size; i++) {
		c = 0;
		memcpy(&c, data + i * kind, kind);
		at += put_utf8(c, buf + at);
	}
	buf[at] = 0;
	return 1;
}

/* ---- the line of an instruction -------------------------------------------------------------- */

/* A function's table of lines, which is read in pieces. */
struct table {
	const char *at;
	uint64_t left;
	size_t nr, next;
	unsigned char piece[256];
};

/* Returns the next byte, or -1 at the end. */
static int next_byte(struct table *t)
{
	if (t->next == t->nr) {
		t->nr = DF_MIN(t->left, sizeof(t->piece));
		t->next = 0;
		if (!t->nr || !df_peek(t->at, t->piece, t->nr)) {
			t->nr = t->left = 0;
			return -1;
		}
		t->at += t->nr;
		t->left -= t->nr;
	}
	return t->piece[t->next++];
}

/* Decodes the table of versions up to 3.9: steps of address and line. */
static int line_by_steps(struct table *t, uint32_t want, int line)
{
	uint32_t addr = 0;
	int step, by;

	while ((step = next_byte(t)) >= 0 && (by = next_byte(t)) >= 0) {
		addr += (uint32_t)step;
		if (addr > want)
			break;
		line += (signed char)by;
	}
	return line;
}

/* Decodes the table of version 3.10: ranges of addresses. */
static int line_by_ranges(struct table *t, uint32_t want, int line)
{
	uint32_t end = 0;
	int bytes, by;

	while ((bytes = next_byte(t)) >= 0 && (by = next_byte(t)) >= 0) {
		end += (uint32_t)bytes;
		if ((signed char)by != -128)
			line += (signed char)by;
		if (want < end)
			return (signed char)by == -128 ? 0 : line;
	}
	return 0;
}

static int signed_varint(struct table *t)
{
	unsigned value = 0, shift = 0;
	int b;

	do {
		b = next_byte(t);
		if (b < 0)
			return 0;
		value |= (unsigned)(b & 63) << shift;
		shift += 6;
	} while (b & 64 && shift < 30);
	return value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
}

/*
 * Decodes the table of versions from 3.11 on. An entry begins with a byte whose highest bit is
 * set.
 */
static int line_by_entries(struct table *t, uint32_t want, int line)
{
	uint32_t end = 0;
	int b = next_byte(t), form;

	while (b >= 0) {
		form = b >> 3 & 15;
		end += (uint32_t)((b & 7) + 1) * 2;
		if (form == 13 || form == 14)
			line += signed_varint(t);
		else if (form >= 10 && form <= 12)
			line += form - 10;
		if (want < end)
			return form == 15 ? 0 : line;
		while ((b = next_byte(t)) >= 0 && !(b & 128))
			;
	}
	return 0;
}

/* Returns the line of an instruction, or 0 if it has none. */
static int line_of(const void *code, uint32_t at)
{
	const void *lines = get_pointer(code, py.l->lines);
	struct table t = {.at = (const char *)lines + BYTES_DATA};
	int first;

	if (!is_a(lines, py.bytes_type) ||
	    !df_peek((const char *)lines + OBJECT_SIZE, &t.left, sizeof(t.left)) ||
	    t.left > TABLE_MAX || !df_peek((const char *)code + py.l->line, &first, sizeof(first)))
		return 0;
	if (py.l->minor < 10)
		return line_by_steps(&t, at, first);
	return py.l->minor == 10 ? line_by_ranges(&t, at, first) : line_by_entries(&t, at, first);
}

int df_script_text(const struct df_script_frame *frame, char *buf, size_t size)
{
	char file[TEXT_MAX], name[TEXT_MAX / 4];

	if (!frame->code) {
		snprintf(buf, size, "a thread of PyTorch's autograd");
		return 1;
	}
	if (!is_a(frame->code, py.code_type) ||
	    !get_text(get_pointer(frame->code, py.l->file), file, sizeof(file)) ||
	    !get_text(get_pointer(frame->code, py.l->name), name, sizeof(name)))
		return 0;
	snprintf(buf, size, "%s:%d %s%s", file, line_of(frame->code, frame->at), name,
		 frame->backward ? " (backward)" : "");
	return 1;
}

/* ---- the owner of a function ----------------------------------------------------------------- */

struct prefix {
	const char *file;
	int is_in;
};

/* Finds PyTorch's folder from the path of its library. */
static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct prefix *p = arg;
	const char *at = strstr(info->dlpi_name, "/torch/lib/libtorch");
	size_t bytes = at ? (size_t)(at - info->dlpi_name) + strlen("/torch/") : 0;

	(void)size;
	p->is_in = at && !strncmp(p->file, info->dlpi_name, bytes);
	return p->is_in;
}

static enum owner owner_of(const void *code)
{
	char file[TEXT_MAX];
	struct prefix torch = {file, 0};
	const char *lib;

	if (!is_a(code, py.code_type) ||
	    !get_text(get_pointer(code, py.l->file), file, sizeof(file)))
		return LIBRARY;
	if (!strncmp(file, "<frozen ", 8) || strstr(file, "/dfshim/host/"))
		return LIBRARY;
	dl_iterate_phdr(look_at, &torch);
	if (torch.is_in)
		return LIBRARY;
	if (strstr(file, "/site-packages/") || strstr(file, "/dist-packages/"))
		return PACKAGE;
	lib = strstr(file, "/lib/python3.");
	return lib && strchr(lib + 6, '/') ? LIBRARY : PROGRAM;
}

/* ---- frames ---------------------------------------------------------------------------------- */

#define FIELD(object, offset, type) (*(const type *)((const char *)(object) + (offset)))

/* Returns a quick description of a function, from its names and first line. */
static uint64_t id_of(const void *code)
{
	uint64_t h = (uint64_t)FIELD(code, py.l->file, uintptr_t);

	h = h * 31 + (uint64_t)FIELD(code, py.l->name, uintptr_t);
	return df_mix64(h * 31 + (uint64_t)FIELD(code, py.l->line, int)) & ~OWNER_BITS;
}

/* Returns id and owner of the function. They are in the table from the second call on. */
static uint64_t known_of(const void *code)
{
	uint64_t id = id_of(code), known;
	uint32_t at = (uint32_t)df_mix64((uint64_t)(uintptr_t)code) & (NR_CODES - 1);

	for (int probe = 0; probe < MAX_PROBES; probe++, at = (at + 1) & (NR_CODES - 1)) {
		const void *seen = atomic_load_explicit(&codes[at].code, memory_order_relaxed);

		if (!seen && atomic_compare_exchange_strong_explicit(&codes[at].code, &seen, code,
								     memory_order_relaxed,
								     memory_order_relaxed))
			seen = code;
		if (seen != code)
			continue;
		known = atomic_load_explicit(&codes[at].known, memory_order_relaxed);
		if ((known & ~OWNER_BITS) == id && (known & OWNER_BITS))
			return known;
		known = id | (uint64_t)owner_of(code);
		atomic_store_explicit(&codes[at].known, known, memory_order_relaxed);
		return known;
	}
	return id | (uint64_t)owner_of(code);
}

static const void *innermost(const void *thread)
{
	const void *f = FIELD(thread, py.l->thread_frame, void *);

	return f && py.l->holder_frame >= 0 ? FIELD(f, py.l->holder_frame, void *) : f;
}

/* Returns the function of a frame, or NULL if the frame is the interpreter's own. */
static const void *code_of(const void *f)
{
	if (py.l->owner && FIELD(f, py.l->owner, unsigned char) > 2)
		return NULL;
	/* The lowest bits encode how the reference is counted. */
	return (const void *)(FIELD(f, py.l->code, uintptr_t) & ~(uintptr_t)7);
}

static uint32_t instruction(const void *f, const void *code)
{
	if (py.l->minor < 11)
		return FIELD(f, py.l->at, uint32_t) << (py.l->minor == 10);
	return (uint32_t)(FIELD(f, py.l->at, uintptr_t) - (uintptr_t)code -
			  (uintptr_t)py.l->instrs);
}

/* kind of the calling thread; BACKWARD: PyTorch computes gradients in it */
static __thread enum { UNSEEN, PLAIN, BACKWARD } kind __attribute__((tls_model("initial-exec")));

static unsigned walk(const void *f, struct df_script_frame frames[DF_SCRIPT_FRAMES])
{
	struct df_script_frame library = {.code = NULL};
	unsigned nr = 0;
	int has_program = 0;

	for (int depth = 0; f && depth < MAX_DEPTH; depth++, f = FIELD(f, py.l->back, void *)) {
		const void *code = code_of(f);
		enum owner owner;
		uint64_t known;

		if (!code)
			continue;
		known = known_of(code);
		owner = (enum owner)(known & OWNER_BITS);
		if (owner == LIBRARY ? nr || library.code : nr == INNERMOST && owner != PROGRAM)
			continue;
		frames[nr] = (struct df_script_frame){code, known & ~OWNER_BITS,
						      instruction(f, code), 0};
		if (owner == LIBRARY) {
			library = frames[nr];
			continue;
		}
		has_program |= owner == PROGRAM;
		if (++nr >= INNERMOST && has_program)
			break;
	}
	/*
	 * If all frames belong to PyTorch or to Python's own library, return one of these rather
	 * than none.
	 */
	if (!nr && library.code && kind != BACKWARD)
		frames[nr++] = library;
	return nr;
}

/* ---- threads that compute gradients ---------------------------------------------------------- */

#define CHAIN 16
#define IMAGE 96

/*
 * The frames of the main thread while it waits in backward(), as they were last read, with reads
 * that cannot fault. One system call shows whether they have changed. If not, the result is still
 * valid.
 */
static struct {
	_Atomic(int) busy; /* a thread is using it; others do not wait for it */
	const void *thread, *holder;
	unsigned nr, nr_frames;
	const void *f[CHAIN];
	char image[CHAIN][IMAGE];
	struct df_script_frame frames[DF_SCRIPT_FRAMES];
} chain;

static _Atomic(const void *) main_thread; /* the interpreter's struct of the main thread */

static void see_thread(const void *thread)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	kind = strncmp(name, DF_AUTOGRAD_THREADS, strlen(DF_AUTOGRAD_THREADS)) ? PLAIN : BACKWARD;
	if (thread && syscall(SYS_gettid) == getpid())
		atomic_store_explicit(&main_thread, thread, memory_order_relaxed);
}

static int image_at(void)
{
	return DF_MIN(py.l->code, py.l->back);
}

static size_t image_bytes(void)
{
	return (size_t)(py.l->at + (py.l->minor < 11 ? 4 : 8) - image_at());
}

static int as_before(const void *thread)
{
	struct iovec here[CHAIN + 2], there[CHAIN + 2];
	char image[CHAIN][IMAGE];
	const void *first, *holder = NULL;
	size_t bytes = image_bytes(), all = sizeof(first) + chain.nr * bytes;
	unsigned n = 0;

	if (!chain.nr || chain.thread != thread)
		return 0;
	here[n] = (struct iovec){&first, sizeof(first)};
	there[n++] = (struct iovec){(char *)(uintptr_t)thread + py.l->thread_frame, sizeof(first)};
	if (py.l->holder_frame >= 0) {
		here[n] = (struct iovec){&holder, sizeof(holder)};
		there[n++] = (struct iovec){(char *)(uintptr_t)chain.holder + py.l->holder_frame,
					    sizeof(holder)};
		all += sizeof(holder);
	}
	for (unsigned i = 0; i < chain.nr; i++, n++) {
		here[n] = (struct iovec){image[i], bytes};
		there[n] = (struct iovec){(char *)(uintptr_t)chain.f[i] + image_at(), bytes};
	}
	if (df_peek_pieces(here, there, n) != (ssize_t)all ||
	    (py.l->holder_frame >= 0 ? first != chain.holder || holder != chain.f[0]
				     : first != chain.f[0]))
		return 0;
	for (unsigned i = 0; i < chain.nr; i++)
		if (memcmp(image[i], chain.image[i], bytes) != 0)
			return 0;
	return 1;
}

static int is_backward(const void *code)
{
	static const char *const files[] = {"/torch/autograd/graph.py",
					    "/torch/autograd/__init__.py"};
	char file[TEXT_MAX];
	size_t n;

	if (!is_a(code, py.code_type) ||
	    !get_text(get_pointer(code, py.l->file), file, sizeof(file)))
		return 0;
	n = strlen(file);
	for (size_t i = 0; i < DF_ARRAY_LEN(files); i++)
		if (n > strlen(files[i]) && !strcmp(file + n - strlen(files[i]), files[i]))
			return 1;
	return 0;
}

static void read_chain(const void *thread)
{
	const void *f = get_pointer(thread, py.l->thread_frame);
	int waits = 0; /* whether the main thread is in backward() */

	chain.thread = thread;
	chain.holder = f;
	chain.nr = chain.nr_frames = 0;
	if (f && py.l->holder_frame >= 0)
		f = get_pointer(f, py.l->holder_frame);
	while (f && chain.nr < CHAIN && chain.nr_frames < DF_SCRIPT_FRAMES) {
		const char *image = chain.image[chain.nr];
		unsigned char owner = 0;
		uintptr_t code, at = 0;

		if (!df_peek((const char *)f + image_at(), chain.image[chain.nr], image_bytes()) ||
		    (py.l->owner && !df_peek((const char *)f + py.l->owner, &owner, 1)))
			break;
		chain.f[chain.nr++] = f;
		memcpy(&f, image + (py.l->back - image_at()), sizeof(f));
		if (owner > 2)
			continue;
		memcpy(&code, image + (py.l->code - image_at()), sizeof(code));
		memcpy(&at, image + (py.l->at - image_at()), py.l->minor < 11 ? 4 : 8);
		code &= ~(uintptr_t)7;
		if (!waits && !is_backward((const void *)code))
			return;
		waits = 1;
		if (owner_of((const void *)code) == LIBRARY)
			continue;
		at = py.l->minor < 11 ? at << (py.l->minor == 10)
				      : at - code - (uintptr_t)py.l->instrs;
		chain.frames[chain.nr_frames++] = (struct df_script_frame){
			(const void *)code, df_mix64(code), (uint32_t)at, 1};
	}
}

/* Finds the frames of the call of backward() that the calling thread serves. */
static unsigned backward_frames(struct df_script_frame frames[DF_SCRIPT_FRAMES])
{
	const void *thread = atomic_load_explicit(&main_thread, memory_order_relaxed);
	unsigned nr = 0;

	frames[0] = (struct df_script_frame){.backward = 1};
	/*
	 * Acquire pairs with the release below: without it a thread could read the chain while
	 * another thread writes it.
	 */
	if (!thread || atomic_exchange_explicit(&chain.busy, 1, memory_order_acquire))
		return 1;
	if (!as_before(thread))
		read_chain(thread);
	nr = chain.nr_frames;
	memcpy(frames, chain.frames, nr * sizeof(frames[0]));
	/*
	 * Release pairs with the acquire above: without it the next thread could find a
	 * half-written chain.
	 */
	atomic_store_explicit(&chain.busy, 0, memory_order_release);
	return nr ? nr : 1;
}

/* ---- the interpreter ------------------------------------------------------------------------- */

/*
 * Whether the offsets that the interpreter publishes agree with the layout. Versions before 3.13
 * publish none.
 */
static int says_so(const struct layout *l)
{
	const uint64_t *w = dlsym(RTLD_DEFAULT, "_PyRuntime");

	if (l->minor < said[0].minor)
		return 1;
	for (size_t i = 0; w && i < DF_ARRAY_LEN(said); i++) {
		if (said[i].minor != l->minor)
			continue;
		return !memcmp(w, "xdebugpy", 8) && w[1] >> 16 == (0x300u | (unsigned)l->minor) &&
		       !w[2] && w[said[i].frame] == (uint64_t)l->thread_frame &&
		       w[said[i].id] == (uint64_t)l->thread_id &&
		       w[said[i].back] == (uint64_t)l->back &&
		       w[said[i].code] == (uint64_t)l->code && w[said[i].at] == (uint64_t)l->at &&
		       w[said[i].owner] == (uint64_t)l->owner &&
		       w[said[i].file] == (uint64_t)l->file &&
		       w[said[i].name] == (uint64_t)l->name &&
		       w[said[i].lines] == (uint64_t)l->lines &&
		       w[said[i].line] == (uint64_t)l->line &&
		       w[said[i].instrs] == (uint64_t)l->instrs;
	}
	return 0;
}

/* Returns the layout for a version of the interpreter, or NULL if its structs are unknown. */
static const struct layout *layout_of(const char *version)
{
	int minor = 0;

	if (strncmp(version, "3.", 2) != 0 || strstr(version, "free-threading"))
		return NULL;
	minor = (int)strtol(version + 2, NULL, 10);
	for (size_t i = 0; i < DF_ARRAY_LEN(layouts); i++)
		if (layouts[i].minor == minor)
			return says_so(&layouts[i]) ? &layouts[i] : NULL;
	return NULL;
}

static int find(void *where, const char *name)
{
	void *at = dlsym(RTLD_DEFAULT, name);

	memcpy(where, &at, sizeof(at));
	return at != NULL;
}

void df_script_look(void)
{
	const char *(*version)(void);
	void *(*thread)(void);
	int state = NONE;

	/* Only the thread that changes the state from NONE writes `py`. */
	if (atomic_load_explicit(&py.state, memory_order_relaxed) != NONE || !df_env()->python ||
	    !find(&thread, "PyGILState_GetThisThreadState") ||
	    !atomic_compare_exchange_strong_explicit(&py.state, &state, REFUSED,
						     memory_order_relaxed, memory_order_relaxed))
		return;
	py.thread = thread;
	if (!find(&version, "Py_GetVersion") || !find(&py.is_initialized, "Py_IsInitialized") ||
	    !(find(&py.is_finalizing, "Py_IsFinalizing") ||
	      find(&py.is_finalizing, "_Py_IsFinalizing")) ||
	    !find(&py.code_type, "PyCode_Type") || !find(&py.string_type, "PyUnicode_Type") ||
	    !find(&py.bytes_type, "PyBytes_Type") || !df_module_of(py.code_type, &py.file))
		return;
	py.l = layout_of(version());
	if (!py.l) {
		df_info("call sites have no lines of Python %.80s: its frames are not known",
			version());
		return;
	}
	/*
	 * Release pairs with the acquire in df_script_frames(): without it a thread could use a
	 * table of offsets that is not set yet.
	 */
	atomic_store_explicit(&py.state, FOUND, memory_order_release);
}

int df_script_has(const void *pc)
{
	return (uintptr_t)pc >= py.file.start && (uintptr_t)pc < py.file.end;
}

/*
 * Whether `f` is a frame of the calling thread as the layout describes it. Returns 1 if so, -1 if
 * not, 0 if it is one of the interpreter's own frames, of which little is known.
 */
static int is_frame(const void *f)
{
	struct df_script_frame frame;
	unsigned char owner = 0;
	uint64_t at = 0;
	char text[TEXT_MAX * 2];

	if (py.l->owner && (!df_peek((const char *)f + py.l->owner, &owner, 1) || owner > 4))
		return -1;
	if (owner > 2)
		return 0;
	frame.code = (const void *)((uintptr_t)get_pointer(f, py.l->code) & ~(uintptr_t)7);
	if (!df_peek((const char *)f + py.l->at, &at, py.l->minor < 11 ? 4 : 8))
		return -1;
	at = py.l->minor < 11 ? at : at - (uintptr_t)frame.code - (uintptr_t)py.l->instrs;
	frame.at = (uint32_t)at << (py.l->minor == 10);
	return at < TABLE_MAX && df_script_text(&frame, text, sizeof(text)) &&
			       line_of(frame.code, frame.at) >= 0
		       ? 1
		       : -1;
}

/*
 * Whether the calling thread's frames are where the layout says. Returns 1 if so, -1 if not, 0 if
 * the thread has no frame to check.
 */
static int try_out(const void *thread)
{
	const void *f = get_pointer(thread, py.l->thread_frame);
	int is, seen = 0;

	if (get_pointer(thread, py.l->thread_id) != (const void *)pthread_self())
		return -1;
	if (f && py.l->holder_frame >= 0)
		f = get_pointer(f, py.l->holder_frame);
	for (int depth = 0; f && depth < MAX_DEPTH; depth++, f = get_pointer(f, py.l->back)) {
		is = is_frame(f);
		if (is < 0)
			return -1;
		seen |= is;
	}
	return seen;
}

unsigned df_script_frames(struct df_script_frame frames[DF_SCRIPT_FRAMES])
{
	/*
	 * Acquire pairs with the release in df_script_look(): without it a table of offsets could
	 * be used that is not set yet.
	 */
	int state = atomic_load_explicit(&py.state, memory_order_acquire), good;
	const void *thread;
	unsigned nr;

	if (df_likely(state == NONE || state == REFUSED))
		return 0;
	/* The state of threads is not reliable while the interpreter begins or ends. */
	if (!py.is_initialized() || py.is_finalizing())
		return 0;
	thread = py.thread();
	if (df_unlikely(kind == UNSEEN))
		see_thread(thread);
	if (!thread || (kind == BACKWARD && state == FOUND))
		return kind == BACKWARD ? backward_frames(frames) : 0;
	if (df_unlikely(state == FOUND)) {
		good = try_out(thread);
		if (!good)
			return 0;
		if (good < 0)
			df_info("call sites have no lines: Python's frames are not where they are "
				"expected");
		atomic_store_explicit(&py.state, good < 0 ? REFUSED : READY, memory_order_relaxed);
		if (good < 0)
			return 0;
	}
	nr = walk(innermost(thread), frames);
	return nr || kind != BACKWARD ? nr : backward_frames(frames);
}
