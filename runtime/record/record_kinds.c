/*
 * A trace holds numbers of the runtime. trace/record/kinds.def repeats the declarations of
 * program.h, abi.h and backend.h, because the checker is built without these headers. A difference
 * stops the build here.
 */
#include "runtime/backend.h"
#include "kernels/abi.h"
#include "runtime/program/program.h"

enum {
#define DF_KIND(id, name, abbr, fr) KIND_##id,
#include "trace/record/kinds.def"
	NR_KINDS
};
enum {
#define DF_DTYPE(id, name, bytes, torch) DTYPE_##id,
#include "trace/record/kinds.def"
	NR_DTYPES
};
enum {
#define DF_REDOP(id, name) REDOP_##id,
#include "trace/record/kinds.def"
	NR_REDOPS
};
enum {
#define DF_PROTO(id, name) PROTO_##id,
#include "trace/record/kinds.def"
	NR_PROTOS
};
enum {
#define DF_WORKKIND(id, name) WORK_##id,
#include "trace/record/kinds.def"
	NR_WORKS
};

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a " is not " #b)

#define DF_KIND(id, name, abbr, fr)	 SAME(KIND_##id, DF_COLL_##id);
#define DF_DTYPE(id, name, bytes, torch) SAME(DTYPE_##id, DF_##id);
#define DF_REDOP(id, name)		 SAME(REDOP_##id, DF_##id);
#define DF_PROTO(id, name)		 SAME(PROTO_##id, DF_PROTO_##id);
#define DF_WORKKIND(id, name)		 SAME(WORK_##id, DF_WORK_##id);
#include "trace/record/kinds.def"
SAME(NR_KINDS, DF_COLL_NR);
SAME(NR_DTYPES, DF_NR_TYPES);
SAME(NR_REDOPS, DF_NR_REDOPS);
SAME(NR_PROTOS, DF_PROTO_NR);
SAME(NR_WORKS, DF_WORK_NR);
