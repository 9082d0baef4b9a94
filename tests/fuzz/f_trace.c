/*
 * Traces: any bytes are refused with a reason, or judged, printed, drawn and compacted. The first
 * byte chooses whether a valid header precedes the input, so that the readers of records are
 * reached, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/check.h"
#include "trace/say/picture.h"

#define COMMS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t with_header(const uint8_t *data, size_t size, unsigned char *image, size_t room)
{
	struct df_trace_header *h = (struct df_trace_header *)image;
	struct df_trace_comm *c = (struct df_trace_comm *)(image + 4096);
	struct df_rec *r = (struct df_rec *)(image + 4096 + sizeof(*c) * COMMS);
	size_t nr = size / 32, bytes;

	memset(image, 0, room);
	h->magic = DF_TRACE_MAGIC;
	h->version = DF_TRACE_VERSION;
	h->header_bytes = 4096;
	h->rec_bytes = sizeof(*r);
	h->comm_bytes = sizeof(*c);
	h->nr_recs = 256;
	h->nr_comms = h->comms_used = COMMS;
	h->off_comms = 4096;
	h->off_strings = h->off_recs = 4096 + sizeof(*c) * COMMS;
	h->rules = size & 1;
	h->slots = size & 2;
	h->queues = size & 4;
	h->pid = data[0];
	for (int i = 0; i < COMMS; i++)
		c[i] = (struct df_trace_comm){
			.hash = 1 + (uint64_t)i / 2, .nranks = 2 + i / 2, .rank = i & 1, .used = 1};
	if (nr > 256)
		nr = 256;
	/* Small numbers, so that serials, streams and ranks of different records match. */
	for (size_t i = 0; i < nr; i++) {
		const uint8_t *d = data + i * 32;

		r[i].time_ns = 1000000000ULL * (i + d[9]);
		r[i].type = d[0] % (DF_REC_NR + 1);
		r[i].device = d[1] & 3 ? 0 : 0xffff;
		r[i].thread = d[2] & 3;
		r[i].comm = d[3] % (COMMS + 2);
		r[i].rank = (int8_t)d[4] % 4;
		r[i].op = d[5] & 31;
		memcpy(&r[i].a, d + 10, 4);
		memcpy(&r[i].b, d + 16, 4);
		memcpy(&r[i].c, d + 22, 4);
		r[i].commit = (uint32_t)i + 1;
	}
	h->next = nr;
	bytes = (size_t)(h->off_recs + nr * sizeof(*r));
	return bytes < room ? bytes : room;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char image[4096 + 4096 + 64 * 256] __attribute__((aligned(8)));
	struct df_check_set *set = df_check_set_new();
	struct df_check_result *r = NULL;
	FILE *out = fopen("/dev/null", "w");
	struct df_picture p;
	size_t bytes;

	if (!set || !out || size < 2)
		goto out;
	for (int half = 0; half < 2; half++) {
		const uint8_t *d = data + 1 + (size_t)half * ((size - 1) / 2);
		size_t n = (size - 1) / 2;

		if (!n)
			continue;
		if (data[0] & 1) {
			bytes = with_header(d, n, image, sizeof(image));
			df_check_add_image(set, image, bytes, "fuzz");
		} else {
			df_check_add_image(set, d, n, "fuzz");
		}
	}
	if (!df_check_run(set, NULL, &r)) {
		df_check_print(r, out);
		df_check_print_json(r, out);
		if (!df_picture_make(&p, r, data[0] & 2, 50, 50)) {
			df_picture_svg(&p, "x", out);
			df_picture_fini(&p);
		}
		df_check_result_free(r);
	}
out:
	df_check_set_free(set);
	if (out)
		fclose(out);
	return 0;
}
