/*
 * JSON of the tools, by jansson: values that it does not take as they are. A key has one type, whatever its value: a
 * quantity is a number (df_json_u64()), an identity or a hash is a string (df_json_hex()). docs/json.md lists all keys. Never in libdfshim.so, which links libc only: its
 * few lines of JSON are text (trace/read/json_text.h).
 *
 * A value that could not be made for lack of memory is NULL; json_pack() and df_json_write() pass that on.
 */
#ifndef DF_TRACE_SAY_JSON_H
#define DF_TRACE_SAY_JSON_H

#include <stdint.h>
#include <stdio.h>
#include <jansson.h>

/* A string; bytes that are not UTF-8 become '?'. NULL: null. */
json_t *df_json_text(const char *s);
/* A number. jansson has no integers from 2^63 on: those are rounded to a double. */
json_t *df_json_u64(uint64_t v);
/* A string: "0x1f". Many readers keep only 53 bits of a number, too few to compare identities. */
json_t *df_json_hex(uint64_t v);
/* Three digits after the point. */
json_t *df_json_milli(double v);
/* The members of `more`, which it takes, into o as well. */
void df_json_add(json_t *o, json_t *more);
/* The frames of a call stack's text (trace/read/stacks.h), innermost first. */
json_t *df_json_frames(const char *stack);

/*
 * Writes *o on one line, or indented, and gives it back. 0, or -ENOMEM if o is NULL, or the write's -errno. Without
 * '<', so that it may stand in HTML. line: with the end of the line.
 */
int df_json_write(json_t *o, FILE *out, int indent);
int df_json_line(json_t *o, FILE *out);

#endif
