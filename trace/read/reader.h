/*
 * Reads one trace without trusting it: a file may be cut off, overwritten in the middle of a
 * record, or made by an attacker. Its geometry is checked once. A record is returned only if its
 * commit word shows that it is whole.
 *
 * Names of processes, hosts, communicators, programs and functions are returned clean
 * (runtime/base/clean_text.h), so they can be printed unchanged.
 *
 * A reader belongs to one thread. It reads with pread(), so a file that is truncated meanwhile is
 * an end of the file, not a signal.
 */
#ifndef DF_TRACE_READ_READER_H
#define DF_TRACE_READ_READER_H

#include <stddef.h>
#include <stdint.h>
#include "trace/record/format.h"

/* Records read at a time, so that they are still in the cache when used. */
#define DF_READER_CHUNK 1024u

struct df_reader {
	struct df_trace_header h;   /* checked; its texts are clean and terminated */
	uint64_t first, end;	    /* indices of the ring's records */
	uint64_t at;		    /* the next index to return */
	uint64_t nr_valid, nr_torn; /* in this pass, up to now */
	const struct df_rec *buf;   /* records buf_first..buf_end */
	uint64_t buf_first, buf_end;
	/* private */
	struct df_rec issue; /* the last OP_ISSUE, and its index */
	uint64_t issue_at;
	/* the records of the OP_REST after it that have not been returned yet */
	struct df_rec rest[3];
	unsigned nr_rest;
	const unsigned char *image;
	uint64_t bytes;
	int fd;
	struct df_rec *own;
	struct df_trace_comm *comms;
	uint32_t nr_comms;
	unsigned char *strings;
	uint32_t string_bytes;
};

/*
 * Opens a file, or an image in memory that must remain. Returns 0; -EPROTO if it is not a trace,
 * with the reason in *why; or another -errno. After a failure there is nothing to close.
 */
int df_reader_open(struct df_reader *r, const char *path, const char **why);
int df_reader_open_image(struct df_reader *r, const void *image, size_t bytes, const char **why);
void df_reader_close(struct df_reader *r);

/* Reads records into buf so that it contains index r->at. Returns 0 at the end. */
int df_reader_fill(struct df_reader *r);
void df_reader_rewind(struct df_reader *r);

static inline int df_rec_valid(const struct df_rec *rec, uint64_t index)
{
	return rec->commit == (uint32_t)(index + 1) && rec->commit && rec->type &&
	       rec->type < DF_REC_NR;
}

/* Names the executor in a word. */
const char *df_header_executor(const struct df_trace_header *h);

/*
 * Whether collectives keep the order of their streams, as NCCL's rules demand. Under dfshim's rules
 * only other work does.
 */
static inline int df_header_nccl(const struct df_trace_header *h)
{
	return h->rules == 1 || h->mode == 1;
}

/*
 * Whether operations of a communicator match by their place: the k-th of each rank, whatever they
 * are. Otherwise operations with equal signatures match.
 */
static inline int df_header_places(const struct df_trace_header *h)
{
	return df_header_nccl(h) || h->executor == DF_BY_LANES;
}

/*
 * Whether dfshim orders the operations and NCCL's kernels execute them. Then their begin is
 * recorded only if they do not end soon.
 */
static inline int df_header_lanes(const struct df_trace_header *h)
{
	return !df_header_nccl(h) &&
	       (h->executor == DF_BY_LANES || h->executor == DF_BY_AGREED_LANES);
}

/*
 * Turns an OP_REST into separate records (r->rest). Returns NULL if the OP_ISSUE before it is
 * missing.
 */
const struct df_rec *df_reader_rest(struct df_reader *r, const struct df_rec *rec, uint64_t index);

/*
 * Returns the next whole record and its index, or NULL at the end. Records from an OP_REST have its
 * index.
 */
static inline const struct df_rec *df_reader_next(struct df_reader *r, uint64_t *index)
{
	for (;;) {
		const struct df_rec *rec;

		if (r->nr_rest) {
			*index = r->at - 1;
			return &r->rest[--r->nr_rest];
		}
		if (r->at >= r->buf_end && !df_reader_fill(r))
			return NULL;
		rec = &r->buf[r->at - r->buf_first];
		*index = r->at++;
		if (df_rec_valid(rec, *index)) {
			r->nr_valid++;
			if (rec->type == DF_REC_OP_ISSUE) {
				r->issue = *rec;
				r->issue_at = *index;
			} else if (rec->type == DF_REC_OP_REST) {
				rec = df_reader_rest(r, rec, *index);
			}
			if (rec)
				return rec;
			continue;
		}
		r->nr_torn++;
	}
}

/*
 * Reads one record by index; for an OP_REST, the OP_ISSUE before it. Returns 0, or -ENOENT if it is
 * missing or not whole.
 */
int df_reader_get(struct df_reader *r, uint64_t index, struct df_rec *out);

/* Returns a communicator entry by its number in records (from 1), or NULL. */
const struct df_trace_comm *df_reader_comm(const struct df_reader *r, uint32_t comm);

/* Returns a string by its hash, or NULL. Sets *bytes; the string is not terminated. */
const char *df_reader_string(const struct df_reader *r, uint64_t hash, uint32_t *bytes);
/* Writes the name of an operation's program (`a` of an OP_ISSUE) into the buffer; "" if unknown. */
const char *df_reader_program(const struct df_reader *r, uint64_t a, char *buf, size_t size);

#endif
