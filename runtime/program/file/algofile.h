/*
 * Program files as users bring them (DFSHIM_ALGO, `dfshim algo`): MSCCL XML or the text form, told apart by
 * their first character. A file is read, translated and proved before anybody may use it; a refused one
 * is named with line and reason, and the built-in program is used instead.
 *
 * A table is immutable once loaded: any thread may search it.
 */
#ifndef DF_RUNTIME_PROGRAM_FILE_ALGOFILE_H
#define DF_RUNTIME_PROGRAM_FILE_ALGOFILE_H

#include "runtime/program/file/msccl.h"
#include "runtime/program/proto.h"
#include "runtime/program/verify/verify.h"

struct df_algo_file {
	char path[256];
	struct df_plan *plan;
	struct df_expects expect;
	struct df_program **progs; /* of all ranks */
	struct df_verify_out v;
	struct df_msccl_facts msccl;
	int is_msccl;
	int staged; /* copies its input first: it writes to it, or (of a table) was right out of place only */
};

/* -EPROTO with *err (file, line, rank, block, step, reason); -errno of reading, described in *err too. */
int df_algo_read(const char *path, struct df_algo_file **out, struct df_perr *err);
/* The same from memory; path is only a name. */
int df_algo_parse(const char *path, const char *text, size_t size, struct df_algo_file **out,
		  struct df_perr *err);
/* Reads and translates but does not prove: for tools that want to show a bad program. progs stays NULL. */
int df_algo_parse_only(const char *path, const char *text, size_t size, struct df_algo_file **out,
		       struct df_perr *err);
void df_algo_free(struct df_algo_file *a);
/* The whole file, malloc'ed and terminated; NULL with *err. */
char *df_algo_slurp(const char *path, size_t *size, struct df_perr *err);

struct df_tuner;
struct df_cost;

struct df_algo_table {
	struct df_algo_file **file;
	uint32_t nr;
	uint64_t hash; /* of all programs in order: equal tables on all ranks, or none is used */
};

/*
 * `list`: files and directories (all *.xml and *.dfp in the order of their names), separated by colons; in this
 * order they are searched. refused() (may be NULL) is called for each file that can't be used. Never fails
 * but for memory: the rest of the list is loaded. An empty list gives an empty table.
 */
int df_algo_table_load(const char *list, void (*refused)(void *arg, const struct df_perr *err),
		       void *arg, struct df_algo_table **out);
void df_algo_table_free(struct df_algo_table *t);

struct df_algo_query {
	const struct df_prog_req *req;
	uint32_t type, redop;	    /* enum df_type, enum df_redop */
	uint32_t max_slots;	    /* slots that connectors can have; 0 any number */
	const struct df_cost *cost; /* what the ranks agreed on; NULL: the tuner's */
};

/* What was chosen, for those who compare it with what it took. */
struct df_algo_pick {
	enum df_algo algo; /* AUTO: a file, or nobody's choice */
	int staged;	   /* the file's program copies its input first */
	enum df_proto proto;
	double ns; /* expected; 0 unknown */
};

/*
 * The first program that serves the call, or NULL. A pure function of the table and of what is equal on all
 * ranks: in_place is not looked at, since all programs of a table are right in place wherever NCCL has an in-place
 * form: one that was not copies its input first (staged). why (may be NULL): which condition the last candidate failed.
 */
const struct df_algo_file *df_algo_find(const struct df_algo_table *t,
					const struct df_algo_query *q, char *why, size_t size);

/*
 * What the runtime asks for a program: the table's first, then the tuner's choice, then the built-in choice.
 * table, tuner and pick may be NULL. The result is the caller's (df_program_free).
 */
int df_program_select(const struct df_algo_table *t, const struct df_tuner *tuner,
		      const struct df_algo_query *q, struct df_program **out,
		      struct df_algo_pick *pick);

#endif
