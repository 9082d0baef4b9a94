/*
 * A small strict XML reader for program files: elements, attributes, comments, one optional
 * declaration, the five predefined entities. It supports no text, DOCTYPE, CDATA or namespaces, and
 * fetches nothing. It reads from memory that the caller keeps, allocates nothing, and is bounded by
 * its input.
 */
#ifndef DF_RUNTIME_PROGRAM_FILE_XML_H
#define DF_RUNTIME_PROGRAM_FILE_XML_H

#include <stddef.h>
#include "runtime/program/plan.h"

#define DF_XML_ATTRS 32
#define DF_XML_VALUE 256
#define DF_XML_NAME  32
#define DF_XML_DEPTH 8

enum df_xml_event { DF_XML_OPEN, DF_XML_CLOSE, DF_XML_END };

struct df_xml {
	const char *p, *end;
	int line;
	struct df_perr *err;
	/* the last event */
	char name[DF_XML_NAME];
	int at_line; /* where the element began */
	int nr_attrs;
	struct df_xml_attr {
		char name[DF_XML_NAME];
		char value[DF_XML_VALUE];
	} attr[DF_XML_ATTRS];
	/* open elements */
	char stack[DF_XML_DEPTH][DF_XML_NAME];
	int depth;
	int pending_close, seen_root;
};

void df_xml_init(struct df_xml *x, const char *text, size_t size, struct df_perr *err);
/*
 * Returns an enum df_xml_event, or -EPROTO with the error filled in. <a/> gives OPEN, then CLOSE.
 */
int df_xml_next(struct df_xml *x);
/* Returns the value of an attribute of the last OPEN, or NULL. */
const char *df_xml_get(const struct df_xml *x, const char *name);
/*
 * Reads an integer attribute within [min, max]. Fails with -EPROTO if it is no number or out of
 * range, or missing while def is INT64_MIN.
 */
int df_xml_int(struct df_xml *x, const char *name, int64_t min, int64_t max, int64_t def,
	       int64_t *out);

#endif
