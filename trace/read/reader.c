/*
 * The reading side of the trace. It guarantees that no number from a file is used before it has
 * been checked against the size of the file. No locks, no threads of its own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/clean_text.h"
#include "runtime/base/err.h"
#include "trace/read/reader.h"

static int64_t get_bytes(const struct df_reader *r, void *out, uint64_t off, uint64_t bytes)
{
	uint64_t done = 0;

	if (off >= r->bytes)
		return 0;
	if (bytes > r->bytes - off)
		bytes = r->bytes - off;
	if (r->image) {
		memcpy(out, r->image + off, bytes);
		return (int64_t)bytes;
	}
	while (done < bytes) {
		ssize_t n = pread(r->fd, (char *)out + done, bytes - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (uint64_t)n;
	}
	return (int64_t)done;
}

static int refuse(const char **why, const char *text)
{
	if (why)
		*why = text;
	return -EPROTO;
}

/* Terminates and cleans a text of fixed size. */
static void clean_field(char *s, size_t size)
{
	s[size - 1] = 0;
	df_text_clean(s, strlen(s));
}

static int check_header(struct df_reader *r, const char **why)
{
	struct df_trace_header *h = &r->h;
	int64_t n = get_bytes(r, h, 0, sizeof(*h));

	if (n < 0) {
		if (why)
			*why = strerror((int)-n);
		return (int)n;
	}
	if (n < 8)
		return refuse(why, "too short for a trace");
	if (h->magic != DF_TRACE_MAGIC)
		return refuse(why, h->magic ? "not a dfshim trace (wrong magic number)"
					    : "a trace whose process ended before it was set up");
	if ((uint64_t)n < sizeof(*h) || r->bytes < 4096)
		return refuse(why, "cut off inside the header");
	if (h->version != DF_TRACE_VERSION)
		return refuse(why, "written by another version of dfshim");
	if (h->rec_bytes != sizeof(struct df_rec) || h->comm_bytes != sizeof(struct df_trace_comm))
		return refuse(why, "corrupt header: sizes of records");
	if (!h->nr_recs || (h->nr_recs & (h->nr_recs - 1)) || h->nr_recs > 1ULL << 40)
		return refuse(why, "corrupt header: capacity of the ring");
	if (h->header_bytes < sizeof(*h) || h->off_comms < h->header_bytes ||
	    h->off_strings < h->header_bytes || h->off_recs < h->header_bytes ||
	    h->off_comms > 1ULL << 40 || h->off_strings > 1ULL << 40 || h->off_recs > 1ULL << 40)
		return refuse(why, "corrupt header: offsets");
	if (h->nr_comms > 1u << 24 || h->nr_string_bytes > 1u << 30)
		return refuse(why, "corrupt header: sizes of tables");
	clean_field(h->host, sizeof(h->host));
	clean_field(h->exe, sizeof(h->exe));
	clean_field(h->version_text, sizeof(h->version_text));
	clean_field(h->told_line, sizeof(h->told_line));
	return 0;
}

static struct df_trace_string *string_at(const struct df_reader *r, uint32_t at)
{
	struct df_trace_string *s;

	if ((at & 7) || at > r->string_bytes || r->string_bytes - at < sizeof(*s))
		return NULL;
	s = (struct df_trace_string *)(r->strings + at);
	if (s->used != 1 || s->bytes > r->string_bytes - at - sizeof(*s))
		return NULL;
	return s;
}

/* The offset of the string after the one at `at`. */
static uint32_t next_string(const struct df_trace_string *s, uint32_t at)
{
	return at + (uint32_t)sizeof(*s) + ((s->bytes + 7) & ~7u);
}

static void clean_strings(struct df_reader *r)
{
	struct df_trace_string *s;

	for (uint32_t at = 0; (s = string_at(r, at)); at = next_string(s, at))
		df_text_clean((char *)(s + 1), s->bytes);
}

static int load_tables(struct df_reader *r)
{
	const struct df_trace_header *h = &r->h;
	uint64_t want = h->comms_used < h->nr_comms ? h->comms_used : h->nr_comms, have;
	int64_t n;

	have = h->off_comms < r->bytes ? (r->bytes - h->off_comms) / sizeof(struct df_trace_comm)
				       : 0;
	if (want > have)
		want = have;
	if (want) {
		r->comms = malloc(want * sizeof(*r->comms));
		if (!r->comms)
			return -ENOMEM;
		n = get_bytes(r, r->comms, h->off_comms, want * sizeof(*r->comms));
		r->nr_comms = n > 0 ? (uint32_t)((uint64_t)n / sizeof(*r->comms)) : 0;
		for (uint32_t i = 0; i < r->nr_comms; i++)
			clean_field(r->comms[i].name, sizeof(r->comms[i].name));
	}
	want = h->strings_used < h->nr_string_bytes ? h->strings_used : h->nr_string_bytes;
	have = h->off_strings < r->bytes ? r->bytes - h->off_strings : 0;
	if (want > have)
		want = have;
	if (want) {
		r->strings = malloc(want);
		if (!r->strings)
			return -ENOMEM;
		n = get_bytes(r, r->strings, h->off_strings, want);
		r->string_bytes = n > 0 ? (uint32_t)n : 0;
		clean_strings(r);
	}
	return 0;
}

static int open_common(struct df_reader *r, const char **why)
{
	int rc = check_header(r, why);

	if (!rc)
		rc = load_tables(r);
	if (rc) {
		if (rc == -ENOMEM && why)
			*why = "out of memory";
		df_reader_close(r);
		return rc;
	}
	r->end = r->h.next;
	r->first = r->end > r->h.nr_recs ? r->end - r->h.nr_recs : 0;
	df_reader_rewind(r);
	return 0;
}

int df_reader_open(struct df_reader *r, const char *path, const char **why)
{
	struct stat st;
	int rc;

	memset(r, 0, sizeof(*r));
	r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (r->fd < 0 || fstat(r->fd, &st)) {
		rc = -errno;
		if (why)
			*why = strerror(-rc);
		if (r->fd >= 0)
			close(r->fd);
		return rc;
	}
	if (!S_ISREG(st.st_mode)) {
		close(r->fd);
		r->fd = -1;
		return refuse(why, "not a regular file");
	}
	r->bytes = (uint64_t)st.st_size;
	return open_common(r, why);
}

int df_reader_open_image(struct df_reader *r, const void *image, size_t bytes, const char **why)
{
	memset(r, 0, sizeof(*r));
	r->fd = -1;
	r->image = image;
	r->bytes = bytes;
	return open_common(r, why);
}

void df_reader_close(struct df_reader *r)
{
	if (r->fd >= 0)
		close(r->fd);
	free(r->own);
	free(r->comms);
	free(r->strings);
	memset(r, 0, sizeof(*r));
	r->fd = -1;
}

void df_reader_rewind(struct df_reader *r)
{
	r->at = r->buf_first = r->buf_end = r->first;
	r->nr_valid = r->nr_torn = 0;
	r->issue_at = UINT64_MAX;
	r->nr_rest = 0;
}

/* Appends a record to r->rest, from which the last one is returned first. */
static void say_rest(struct df_reader *r, uint16_t type, uint64_t a, uint64_t b, uint64_t c)
{
	struct df_rec *to = &r->rest[r->nr_rest++];

	*to = r->issue;
	to->type = type;
	to->a = a;
	to->b = b;
	to->c = c;
}

const struct df_rec *df_reader_rest(struct df_reader *r, const struct df_rec *rec, uint64_t index)
{
	struct df_rec_rest rest;

	if (r->issue_at + 1 != index)
		return NULL;
	memcpy(&rest, rec, sizeof(rest));
	if (rest.back)
		say_rest(r, DF_REC_OP_DEP, r->issue.op - rest.back, 0, 0);
	if (rest.matched)
		say_rest(r, DF_REC_OP_MATCH, rest.sig, rest.inst, rest.index);
	say_rest(r, DF_REC_OP_ARGS, rest.send, rest.recv,
		 ((uint32_t)rest.peer + 1) | (uint64_t)rest.group << 32);
	return &r->rest[--r->nr_rest];
}

int df_reader_fill(struct df_reader *r)
{
	while (r->at < r->end) {
		uint64_t slot = r->at & (r->h.nr_recs - 1), n = r->end - r->at, off;
		int64_t got;

		if (n > r->h.nr_recs - slot)
			n = r->h.nr_recs - slot;
		off = r->h.off_recs + slot * sizeof(struct df_rec);
		if (off >= r->bytes || r->bytes - off < sizeof(struct df_rec)) {
			/* The file is cut off: the rest of this lap of the ring is missing. */
			r->nr_torn += n;
			r->at += n;
			continue;
		}
		if (n > (r->bytes - off) / sizeof(struct df_rec))
			n = (r->bytes - off) / sizeof(struct df_rec);
		if (r->image && !(((uintptr_t)r->image + off) & 7)) {
			r->buf = (const struct df_rec *)(r->image + off);
			r->buf_first = r->at;
			r->buf_end = r->at + n;
			return 1;
		}
		if (n > DF_READER_CHUNK)
			n = DF_READER_CHUNK;
		if (!r->own) {
			r->own = malloc(DF_READER_CHUNK * sizeof(struct df_rec));
			if (!r->own)
				return 0;
		}
		got = get_bytes(r, r->own, off, n * sizeof(struct df_rec));
		if (got < (int64_t)sizeof(struct df_rec))
			return 0;
		r->buf = r->own;
		r->buf_first = r->at;
		r->buf_end = r->at + (uint64_t)got / sizeof(struct df_rec);
		return 1;
	}
	return 0;
}

int df_reader_get(struct df_reader *r, uint64_t index, struct df_rec *out)
{
	struct df_rec rec;
	int64_t n;

	if (index < r->first || index >= r->end)
		return -ENOENT;
	n = get_bytes(r, &rec, r->h.off_recs + (index & (r->h.nr_recs - 1)) * sizeof(rec),
		      sizeof(rec));
	if (n != (int64_t)sizeof(rec) || !df_rec_valid(&rec, index))
		return -ENOENT;
	/* Return the first record of the operation: the rest has no fields of its own. */
	if (rec.type == DF_REC_OP_REST)
		return df_reader_get(r, index - 1, out);
	*out = rec;
	return 0;
}

const struct df_trace_comm *df_reader_comm(const struct df_reader *r, uint32_t comm)
{
	return comm && comm <= r->nr_comms && r->comms[comm - 1].used == 1 ? &r->comms[comm - 1]
									   : NULL;
}

const char *df_reader_string(const struct df_reader *r, uint64_t hash, uint32_t *bytes)
{
	const struct df_trace_string *s;

	for (uint32_t at = 0; (s = string_at(r, at)); at = next_string(s, at)) {
		if (s->hash == hash) {
			*bytes = s->bytes;
			return (const char *)(s + 1);
		}
	}
	return NULL;
}

const char *df_reader_program(const struct df_reader *r, uint64_t a, char *buf, size_t size)
{
	uint32_t number = (uint32_t)(a >> 40);
	const struct df_trace_string *s = number ? string_at(r, number - 1) : NULL;

	snprintf(buf, size, "%.*s", s ? (int)DF_MIN(s->bytes, size - 1) : 0,
		 s ? (const char *)(s + 1) : "");
	return buf;
}

const char *df_header_executor(const struct df_trace_header *h)
{
	static const char *const words[] = {[DF_BY_DAEMON] = "daemon",
					    [DF_BY_LANES] = "nccl, on lanes",
					    [DF_BY_AGREED_LANES] =
						    "nccl, on lanes, in an agreed order"};

	if (df_header_nccl(h))
		return "nccl";
	return h->executor < DF_ARRAY_LEN(words) ? words[h->executor] : "?";
}
