/*
 * Text for everything that a trace holds by number; generated from the tables. Pure functions, any
 * thread; a number that is not in its table gives "?".
 */
#ifndef DF_TRACE_RECORD_NAMES_H
#define DF_TRACE_RECORD_NAMES_H

#include <stdint.h>
#include "trace/check.h"

enum df_kind {
#define DF_KIND(id, name, abbr, fr) DF_KIND_##id,
#include "trace/record/kinds.def"
	DF_KIND_NR
};

/* Classes of host calls, see calls.def. */
enum df_call_class {
	DF_CLASS_NCCL,
	DF_CLASS_STREAM,
	DF_CLASS_DEVICE,
	DF_CLASS_IMPLICIT,
	DF_CLASS_HOST
};

const char *df_kind_name(uint32_t kind);   /* "AllReduce" */
int df_kind_reduces(uint32_t kind);	   /* its reduction operator counts */
int df_kind_rooted(uint32_t kind);	   /* its root counts */
int df_kind_is_p2p(uint32_t kind);	   /* SEND, RECV: has a peer */
const char *df_kind_fr(uint32_t kind);	   /* "all_reduce" */
const char *df_dtype_name(uint32_t type);  /* "float32" */
const char *df_dtype_torch(uint32_t type); /* "Float" */
uint32_t df_dtype_bytes(uint32_t type);	   /* 0 unknown */
const char *df_redop_name(uint32_t redop);
const char *df_trace_proto(uint32_t proto); /* "LL"; "any" where nobody knew */
const char *df_work_name(uint32_t work);
const char *df_call_text(uint32_t call);
enum df_call_class df_call_class(uint32_t call);
/* The thread made no call: it was seen to wait. */
int df_call_is_seen(uint32_t call);
int df_call_is_poll(uint32_t call);
/* The loop of what an enum df_polled stands for. */
enum df_call df_polled_call(uint32_t kind);
const char *df_rec_name(uint32_t type);

/* Meaning of a record's field: which 0 op, 1 a, 2 b, 3 c; "0" unused. */
const char *df_rec_field(uint32_t type, int which);
/* The field is an identity or bits, to be printed in hexadecimal; else a signed number. */
int df_rec_is_hex(uint32_t type, int which);
int df_rec_has_comm(uint32_t type);

/* From the text back to the number; -1 unknown. */
int df_kind_parse_fr(const char *name);
int df_dtype_parse_torch(const char *name);
int df_rec_parse(const char *name);

#endif
