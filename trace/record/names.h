/*
 * Texts for the numbers in a trace, generated from the tables. Pure functions, any thread. For a
 * number that is not in its table, they return "?".
 */
#ifndef DF_TRACE_RECORD_NAMES_H
#define DF_TRACE_RECORD_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include "trace/check.h"

enum df_kind {
#define DF_KIND(id, name, abbr, fr) DF_KIND_##id,
#include "trace/record/kinds.def"
	DF_KIND_NR
};

/* Classes of blocking calls, see calls.def. */
enum df_call_class {
	DF_CLASS_NCCL,
	DF_CLASS_STREAM,
	DF_CLASS_DEVICE,
	DF_CLASS_IMPLICIT,
	DF_CLASS_HOST
};

const char *df_kind_name(uint32_t kind);   /* such as "AllReduce" */
int df_kind_reduces(uint32_t kind);	   /* whether the kind has a reduction operator */
int df_kind_rooted(uint32_t kind);	   /* whether the kind has a root */
int df_kind_is_p2p(uint32_t kind);	   /* whether the kind has a peer: SEND, RECV */
const char *df_kind_fr(uint32_t kind);	   /* the name in a Flight Recorder, such as "all_reduce" */
const char *df_dtype_name(uint32_t type);  /* such as "float32" */
const char *df_dtype_torch(uint32_t type); /* such as "Float" */
uint32_t df_dtype_bytes(uint32_t type);	   /* returns 0 if the type is unknown */
const char *df_redop_name(uint32_t redop);
const char *df_trace_proto(uint32_t proto); /* such as "LL"; "any" if unknown */
const char *df_work_name(uint32_t work);
const char *df_call_text(uint32_t call);
enum df_call_class df_call_class(uint32_t call);
/*
 * Whether this is a pseudo-call, without CALL_ENTER and CALL_EXIT: a wait of a thread outside NCCL
 * and CUDA, or a loop that polls.
 */
int df_call_is_seen(uint32_t call);
/* Whether the call makes a communicator whose other members no record names: an init or a grow. */
static inline int df_call_meets(uint32_t call)
{
	return call == DF_CALL_COMM_INIT || call == DF_CALL_COMM_GROW;
}
int df_call_is_poll(uint32_t call);
/* Returns the pseudo-call for a loop that polls objects of this kind (enum df_polled). */
enum df_call df_polled_call(uint32_t kind);
const char *df_rec_name(uint32_t type);

/*
 * Returns the meaning of a record's field. `which` is 0 for op, 1 for a, 2 for b, 3 for c. Returns
 * "0" for an unused field.
 */
const char *df_rec_field(uint32_t type, int which);
/*
 * Whether the field is an identity or bits, printed in hexadecimal; otherwise it is a signed
 * number.
 */
int df_rec_is_hex(uint32_t type, int which);
int df_rec_has_comm(uint32_t type);

/*
 * Writes the name of a communicator as outputs show it; "" if it has none. PyTorch names its groups
 * by numbers, which look like ranks, so group 0 is shown as pg0.
 */
#define DF_COMM_LABEL 40
void df_comm_label(const char *name, char *label, size_t size);

/* Return the number for a text, or -1 if there is none. */
int df_kind_parse_fr(const char *name);
int df_dtype_parse_torch(const char *name);
int df_rec_parse(const char *name);

#endif
