/*
 * Program files of users (DFSHIM_ALGO, `dfshim algo`): MSCCL XML or the text form; the first
 * character distinguishes them. A file is read, translated and proved before it is used. A refused
 * file is named with line and reason, and the built-in program is used instead.
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
	/*
	 * Its program first copies its input: it writes to its input, or (in a table) it was right
	 * only out of place.
	 */
	int staged;
};

/*
 * Reads a file. Fails with -EPROTO and *err (file, line, rank, block, step, reason), or with -errno
 * of reading, also described in *err.
 */
int df_algo_read(const char *path, struct df_algo_file **out, struct df_perr *err);
/* As df_algo_read(), from memory. path: only for messages. */
int df_algo_parse(const char *path, const char *text, size_t size, struct df_algo_file **out,
		  struct df_perr *err);
/* Reads and translates but does not prove, for tools that show bad programs. progs stays NULL. */
int df_algo_parse_only(const char *path, const char *text, size_t size, struct df_algo_file **out,
		       struct df_perr *err);
void df_algo_free(struct df_algo_file *a);
/* Returns the whole file, malloc'ed and zero-terminated; NULL with *err. */
char *df_algo_slurp(const char *path, size_t *size, struct df_perr *err);

struct df_tuner;
struct df_cost;

struct df_algo_table {
	struct df_algo_file **file;
	uint32_t nr;
	uint64_t hash; /* of all programs, in order; ranks with different hashes cannot join */
};

/*
 * `list`: files and directories (their *.xml and *.dfp in the order of their names), separated by
 * colons. They are searched in this order. refused() (may be NULL) is called for each file that
 * cannot be used; the others are loaded. Fails only for lack of memory. An empty list gives an
 * empty table.
 */
int df_algo_table_load(const char *list, void (*refused)(void *arg, const struct df_perr *err),
		       void *arg, struct df_algo_table **out);
void df_algo_table_free(struct df_algo_table *t);

struct df_algo_query {
	const struct df_prog_req *req;
	uint32_t type, redop;	    /* enum df_type, enum df_redop */
	uint32_t max_slots;	    /* slots that connectors can have; 0: any number */
	const struct df_cost *cost; /* agreed between the ranks; NULL: the tuner's */
};

/* Properties of the program that df_program_select() found. */
struct df_algo_pick {
	enum df_algo algo; /* AUTO: a file, or the built-in choice */
	int staged;	   /* the file's program copies its input first */
	enum df_proto proto;
	double ns; /* expected; 0: unknown */
};

/*
 * Returns the first program that serves the call, or NULL. A pure function of the table and of data
 * that are equal on all ranks. in_place does not matter: where NCCL has an in-place form, every
 * program of a table is right in place, if necessary because it copies its input first (staged).
 * why (may be NULL): the condition that the last candidate failed.
 */
const struct df_algo_file *df_algo_find(const struct df_algo_table *t,
					const struct df_algo_query *q, char *why, size_t size);

/*
 * Finds a program for the runtime: from the table, else by the tuner's choice, else by the built-in
 * choice. table, tuner and pick may be NULL. The caller frees the result (df_program_free).
 */
int df_program_select(const struct df_algo_table *t, const struct df_tuner *tuner,
		      const struct df_algo_query *q, struct df_program **out,
		      struct df_algo_pick *pick);

#endif
