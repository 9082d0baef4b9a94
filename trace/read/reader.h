/*
 * Reads one trace, trusting nothing in it: a file may be cut off, overwritten in the middle of a record,
 * or made by somebody who wishes us ill. Geometry is checked once; a record is handed out only if its
 * commit word says that it is whole.
 *
 * Names of processes, hosts, communicators, programs and functions are handed out clean (runtime/base/clean_text.h), so
 * that they can be printed as they are.
 *
 * A reader belongs to one thread. It reads with pread(), so a file that shrinks meanwhile is an end, not
 * a signal.
 */
#ifndef DF_TRACE_READ_READER_H
#define DF_TRACE_READ_READER_H

#include <stddef.h>
#include <stdint.h>
#include "trace/record/format.h"

/* Records read at a time: they are looked at while they are in the cache. */
#define DF_READER_CHUNK 1024u

struct df_reader {
	struct df_trace_header h;   /* checked; its texts are clean and end with 0 */
	uint64_t first, end;	    /* indices of the ring's records */
	uint64_t at;		    /* next index to hand out */
	uint64_t nr_valid, nr_torn; /* so far in this pass */
	const struct df_rec *buf;   /* records buf_first..buf_end */
	uint64_t buf_first, buf_end;
	/* private */
	struct df_rec issue; /* the last OP_ISSUE, and its index */
	uint64_t issue_at;
	struct df_rec rest
		[3]; /* what the OP_REST behind it says, and how much of that is still to be handed out */
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
 * Opens a file, or an image in memory, which must stay. 0; -EPROTO: not a trace, *why says what is
 * wrong; -errno. On failure nothing needs to be closed.
 */
int df_reader_open(struct df_reader *r, const char *path, const char **why);
int df_reader_open_image(struct df_reader *r, const void *image, size_t bytes, const char **why);
void df_reader_close(struct df_reader *r);

/* Makes buf hold index r->at; 0 at the end. */
int df_reader_fill(struct df_reader *r);
void df_reader_rewind(struct df_reader *r);

static inline int df_rec_valid(const struct df_rec *rec, uint64_t index)
{
	return rec->commit == (uint32_t)(index + 1) && rec->commit && rec->type &&
	       rec->type < DF_REC_NR;
}

/* What an OP_REST says becomes records of its own (r->rest). NULL: the OP_ISSUE before it is not there. */
const struct df_rec *df_reader_rest(struct df_reader *r, const struct df_rec *rec, uint64_t index);

/* The next whole record and its index, NULL at the end. What stands in an OP_REST has that one's index. */
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

/* One record by index, of an OP_REST the OP_ISSUE before it: 0, or -ENOENT if it is not whole or not there. */
int df_reader_get(struct df_reader *r, uint64_t index, struct df_rec *out);

/* An entry of the communicator table by the number in records (from 1); NULL if there is none. */
const struct df_trace_comm *df_reader_comm(const struct df_reader *r, uint32_t comm);

/* A string by its hash; NULL unknown. Sets *bytes; no terminator. */
const char *df_reader_string(const struct df_reader *r, uint64_t hash, uint32_t *bytes);
/* The name of an operation's program (an OP_ISSUE's `a`), into the buffer; "" unknown. */
const char *df_reader_program(const struct df_reader *r, uint64_t a, char *buf, size_t size);

#endif
