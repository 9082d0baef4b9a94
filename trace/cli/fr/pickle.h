/*
 * Reads Python pickles of plain data: numbers, strings, lists, tuples, dicts, None, True, False.
 * Refuses everything that could name a class or call a function, so dumps from untrusted sources
 * are safe.
 *
 * A document belongs to one thread. The number of values and the depth are bounded.
 */
#ifndef DF_TRACE_CLI_FR_PICKLE_H
#define DF_TRACE_CLI_FR_PICKLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum df_pkind { DF_P_NONE, DF_P_BOOL, DF_P_INT, DF_P_FLOAT, DF_P_STRING, DF_P_LIST, DF_P_DICT };

/* A list or tuple holds items; a dict holds key, value, key, value ... */
struct df_pvalue {
	enum df_pkind kind;
	int64_t number;
	double real;
	const char *text; /* in the input; not terminated */
	size_t bytes;
	struct df_pvalue **items;
	size_t nr, cap;
};

struct df_pickle {
	struct df_pvalue *root;
	char error[160];
	/* private */
	struct df_pvalue **all;
	size_t nr_all, cap_all;
};

/* Reads a document, which refers to the input. Returns 0, -EPROTO with p->error, or -ENOMEM. */
int df_pickle_read(struct df_pickle *p, const void *data, size_t bytes);
void df_pickle_free(struct df_pickle *p);

/* Returns the value of a string key, or NULL. */
const struct df_pvalue *df_pickle_get(const struct df_pvalue *dict, const char *key);
/* Copies the text of a string value into buf, or "". Returns buf. */
const char *df_pickle_text(const struct df_pvalue *v, char *buf, size_t size);
int64_t df_pickle_int(const struct df_pvalue *v, int64_t otherwise);

/* Writing, protocol 2. Containers: begin, contents, end. */
void df_pickle_begin(FILE *out);
void df_pickle_end(FILE *out);
void df_pickle_put_none(FILE *out);
void df_pickle_put_bool(FILE *out, int v);
void df_pickle_put_int(FILE *out, int64_t v);
void df_pickle_put_float(FILE *out, double v);
void df_pickle_put_string(FILE *out, const char *s);
void df_pickle_dict(FILE *out);
void df_pickle_dict_end(FILE *out);
void df_pickle_list(FILE *out);
void df_pickle_list_end(FILE *out);
void df_pickle_tuple(FILE *out);
void df_pickle_tuple_end(FILE *out);

#endif
