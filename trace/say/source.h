/*
 * A Python source file as the statements of its functions, and the order in which these can be
 * executed. It is not executed or compiled: the lines of a trace only select statements of it.
 * Belongs to one thread.
 */
#ifndef DF_TRACE_SAY_SOURCE_H
#define DF_TRACE_SAY_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DF_SOURCE_NONE UINT32_MAX

enum df_stmt_kind {
	DF_STMT_OTHER,
	DF_STMT_IF,
	DF_STMT_ELIF,
	DF_STMT_ELSE,
	DF_STMT_FOR,
	DF_STMT_WHILE,
	DF_STMT_TRY,
	DF_STMT_EXCEPT,
	DF_STMT_FINALLY,
	DF_STMT_WITH,
	DF_STMT_MATCH,
	DF_STMT_CASE,
	DF_STMT_DEF,
	DF_STMT_CLASS,
	DF_STMT_BREAK,
	DF_STMT_CONTINUE,
	DF_STMT_RETURN,
	DF_STMT_RAISE,
};

/* A simple statement, or the head of a compound one. Its block follows, with a larger indent. */
struct df_stmt {
	const char *text; /* its first line, without a comment; not terminated */
	uint32_t bytes;
	int first, last; /* lines */
	int indent;
	enum df_stmt_kind kind;
	int more; /* it continues on other lines */
	/* next statements in the same function (df_source_flow()); NONE: there is none */
	uint32_t next[2];
	uint32_t handler; /* first `except` of the innermost `try` around it; or NONE */
};

struct df_source {
	char *text;
	struct df_stmt *stmts;
	size_t nr, cap;
};

/*
 * Reads a file that a trace names. Refuses all but regular files named *.py, without a
 * link in their place, that belong to this user or to root, are at most 1 MiB long and older than
 * `before` (seconds of CLOCK_REALTIME; 0: any), and those of df_source_mounts(). Returns 0, or
 * -errno.
 */
int df_source_read(struct df_source *s, const char *path, int64_t before);
/*
 * Returns whether opening the file could make an automounter connect to a machine that the path
 * names, or whether it lies in /proc, whose links lead anywhere. An automounter's place that is
 * mounted already may be read. The mounts are lines of /proc/self/mountinfo.
 */
int df_source_mounts(const char *file, FILE *mounts);
/*
 * Parses any text, and takes it: malloc() returned it. Fails with -ENOMEM, also if there are more
 * than 20,000 statements.
 */
int df_source_parse(struct df_source *s, char *text, size_t bytes);
void df_source_fini(struct df_source *s);

/* Returns the statement whose calls have this line number, or NONE. */
uint32_t df_source_at(const struct df_source *s, int line);
/* Returns the `def` around a statement; NONE: it belongs to the module. */
uint32_t df_source_function(const struct df_source *s, uint32_t stmt);
/* Returns the first statement that does not belong to the block of `stmt` (NONE: the module). */
uint32_t df_source_end(const struct df_source *s, uint32_t stmt);
/*
 * Sets `next` and `handler` of the statements of a function (NONE: the module). `outside` stands
 * for the function's end.
 */
void df_source_flow(struct df_source *s, uint32_t function, uint32_t outside);

#endif
