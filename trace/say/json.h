/*
 * JSON of the tools, written by jansson; these functions make values that it does not accept
 * directly. A key has one type, whatever its value: a quantity is a number (df_json_u64()), an
 * identity or a hash is a string (df_json_hex()). docs/json.md lists all keys. Not used in
 * libdfshim.so, which links only libc: its few lines of JSON are text (trace/read/json_text.h).
 *
 * If there was no memory for a value, it is NULL; json_pack() and df_json_write() pass that on.
 */
#ifndef DF_TRACE_SAY_JSON_H
#define DF_TRACE_SAY_JSON_H

#include <stdint.h>
#include <stdio.h>
#include <jansson.h>

/* Makes a string. Bytes that are not UTF-8 become '?'. s NULL: makes JSON's null. */
json_t *df_json_text(const char *s);
/* Makes a number. jansson has no integers from 2^63 on: they are rounded to a double. */
json_t *df_json_u64(uint64_t v);
/* A string: "0x1f". Many readers keep only 53 bits of a number, too few to compare identities. */
json_t *df_json_hex(uint64_t v);
/* Makes a number with three digits after the point. */
json_t *df_json_milli(double v);
/* Adds the members of `more` to o, and frees `more`. */
void df_json_add(json_t *o, json_t *more);
/* Makes an array of the frames of a call stack's text (trace/read/stacks.h), innermost first. */
json_t *df_json_frames(const char *stack);

/*
 * Writes o, on one line or indented, and frees it. Returns 0, -ENOMEM if o is NULL, or the write's
 * -errno. The output has no '<', so it may be part of HTML. df_json_line() also ends the line.
 */
int df_json_write(json_t *o, FILE *out, int indent);
int df_json_line(json_t *o, FILE *out);

#endif
