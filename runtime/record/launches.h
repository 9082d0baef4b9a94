/*
 * The work that a stream was given between two ticks, by name: a report names it when the stream
 * makes no progress. Equal work between the same ticks is one entry with a number, so a launch
 * costs a search in a short list, and memory does not grow. Nothing is written into the trace
 * before there is a standstill.
 *
 * Several threads may use one stream at the same time: then a count can be too low, or an entry be
 * lost. All fields are atomic.
 */
#ifndef DF_RUNTIME_RECORD_LAUNCHES_H
#define DF_RUNTIME_RECORD_LAUNCHES_H

#include <stddef.h>
#include <stdint.h>

#define DF_LAUNCHES_MAX 16

struct df_launched {
	/*
	 * NULL: a kernel whose name is not known. Equal names are one pointer, and are never freed.
	 */
	const char *name;
	uint64_t after; /* the last tick before it */
	/* turns of the stream: the first and the last launch; and how many; 0: a free entry */
	uint32_t first, last, nr;
	uint32_t kind; /* enum df_work */
};

struct df_launches {
	uint32_t turn; /* increases with each launch */
	struct df_launched v[DF_LAUNCHES_MAX];
};

/*
 * Work is about to be put on the stream, behind tick number `after`; the stream has reached tick
 * `reached`. Where all entries are unfinished, those behind an earlier tick stay, because they
 * stand in front, and of the others the one that was launched longest ago is replaced.
 */
void df_launches_note(struct df_launches *l, uint32_t kind, const char *name, uint64_t after,
		      uint64_t reached);

/* The entries of a stream that a standstill asks for. */
struct df_launches_want {
	uint64_t reached; /* entries behind an earlier tick have ended */
	uint64_t before;  /* entries from this tick on are not asked for */
	int by_turn;	  /* whether what was first launched after `turn` is not asked for either */
	uint32_t turn;	  /* its low 31 bits */
	uint64_t op;	  /* serial of the operation that waits for them; 0: none */
	uint64_t stream;
	int device;
};

/* Records them (LAUNCH), in the order of their first launch. Only one thread may do that. */
void df_launches_record(const struct df_launches *l, const struct df_launches_want *want);
/*
 * Appends to the text the names of the stream's kernels that were launched after tick `reached`,
 * each once, without control characters, and as many as there is room for. n: length of the text.
 * Returns the new length.
 */
size_t df_launches_kernels(const struct df_launches *l, uint64_t reached, char *text, size_t n,
			   size_t size);

#endif
