/*
 * Divides Python source into statements by the rules of its tokens: strings, brackets, comments,
 * joined lines, and indents. Text that is not Python has statements too, of no use and no harm.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runtime/base/err.h"
#include "runtime/base/vec.h"
#include "trace/say/source.h"

#define MAX_BYTES  (1 << 20)
#define MAX_STMTS  20000
#define MAX_INDENT 100 /* depth of blocks; as in the interpreter */

/* ---- statements ------------------------------------------------------------------------------ */

static const struct {
	const char *word;
	enum df_stmt_kind kind;
} words[] = {
	{"if", DF_STMT_IF},	    {"elif", DF_STMT_ELIF},	  {"else", DF_STMT_ELSE},
	{"for", DF_STMT_FOR},	    {"while", DF_STMT_WHILE},	  {"try", DF_STMT_TRY},
	{"except", DF_STMT_EXCEPT}, {"finally", DF_STMT_FINALLY}, {"with", DF_STMT_WITH},
	{"match", DF_STMT_MATCH},   {"case", DF_STMT_CASE},	  {"def", DF_STMT_DEF},
	{"class", DF_STMT_CLASS},   {"break", DF_STMT_BREAK},	  {"continue", DF_STMT_CONTINUE},
	{"return", DF_STMT_RETURN}, {"raise", DF_STMT_RAISE},
};

static int is_name(char c)
{
	return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
	       (unsigned char)c >= 0x80;
}

static int is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\f' || c == '\r';
}

static enum df_stmt_kind kind_of(const char *at, const char *end)
{
	const char *word = at;

	while (at < end && is_name(*at))
		at++;
	if (at - word == 5 && !strncmp(word, "async", 5)) {
		while (at < end && is_blank(*at))
			at++;
		for (word = at; at < end && is_name(*at);)
			at++;
	}
	for (size_t i = 0; i < DF_ARRAY_LEN(words); i++)
		if ((size_t)(at - word) == strlen(words[i].word) &&
		    !strncmp(word, words[i].word, (size_t)(at - word)))
			return words[i].kind;
	return DF_STMT_OTHER;
}

static int is_head(enum df_stmt_kind kind)
{
	return kind >= DF_STMT_IF && kind <= DF_STMT_CLASS;
}

/* Returns the end of the string that begins at the quote `at`, and counts its lines. */
static const char *skip_string(const char *at, const char *end, int *line)
{
	char quote = *at;
	int triple = end - at >= 3 && at[1] == quote && at[2] == quote;

	for (at += triple ? 3 : 1; at < end; at++) {
		if (*at == '\n' && !triple)
			return at;
		if (*at == '\\' && at + 1 < end)
			at++;
		else if (*at == quote && !triple)
			return at + 1;
		else if (*at == quote && end - at >= 3 && at[1] == quote && at[2] == quote)
			return at + 3;
		*line += *at == '\n';
	}
	return end;
}

/*
 * Reads one statement from `at` on, whose first character is not blank. Returns its end: a new
 * line, a semicolon, or the first character of a block on the same line, with *inside set.
 */
static const char *read_stmt(struct df_stmt *s, const char *at, const char *end, int *line,
			     int *inside)
{
	const char *cut = NULL; /* end of the text that is shown */
	int depth = 0;

	*s = (struct df_stmt){.text = at, .first = *line, .kind = kind_of(at, end)};
	*inside = 0;
	while (at < end) {
		if (*at == '"' || *at == '\'') {
			int before = *line;
			const char *to = skip_string(at, end, line);

			if (*line != before && !cut)
				cut = memchr(at, '\n', (size_t)(to - at));
			at = to;
			continue;
		}
		if (*at == '#') {
			cut = cut ?: at;
			while (at < end && *at != '\n')
				at++;
			continue;
		}
		if (*at == '\n' && !depth)
			break;
		if (*at == '\n' || (*at == '\\' && at + 1 < end && at[1] == '\n')) {
			cut = cut ?: at;
			at += *at == '\\';
			++*line;
		} else if (*at == '(' || *at == '[' || *at == '{') {
			depth++;
		} else if (*at == ')' || *at == ']' || *at == '}') {
			depth -= depth > 0;
		} else if (!depth && *at == ';') {
			break;
		} else if (!depth && *at == ':' && is_head(s->kind) &&
			   (at + 1 == end || at[1] != '=')) {
			*inside = 1;
			at++;
			break;
		}
		at++;
	}
	/* `match` and `case` without a colon are names of variables. */
	if (!*inside && is_head(s->kind))
		s->kind = DF_STMT_OTHER;
	s->last = *line;
	s->more = s->last > s->first;
	cut = cut ?: at;
	while (cut > s->text && is_blank(cut[-1]))
		cut--;
	s->bytes = (uint32_t)(cut - s->text);
	return at;
}

int df_source_parse(struct df_source *src, char *text, size_t bytes)
{
	const char *at = text, *end = text + bytes;
	int line = 1, indent = 0, inside = 0, is_new = 1;

	*src = (struct df_source){.text = text};
	while (at < end) {
		struct df_stmt *s;

		if (is_new)
			indent = 0;
		for (; at < end && is_blank(*at); at++)
			indent += !is_new ? 0 : *at == '\t' ? 8 - indent % 8 : *at == ' ';
		is_new = 0;
		if (at == end)
			break;
		if (*at == '\n') {
			is_new = 1;
			inside = 0;
			line++;
			at++;
		} else if (*at == '#') {
			while (at < end && *at != '\n')
				at++;
		} else if (*at == ';') {
			at++;
		} else {
			int in = inside;

			s = src->nr < MAX_STMTS ? DF_VEC_PUSH(src->stmts, src->nr, src->cap) : NULL;
			if (!s) {
				df_source_fini(src);
				return -ENOMEM;
			}
			at = read_stmt(s, at, end, &line, &inside);
			s->indent = 2 * indent + in;
			inside |= in;
		}
	}
	return 0;
}

/* Writes the mount point `from` with its escapes (\\040 for a blank) replaced. */
static void unescape(char *to, size_t size, const char *from)
{
	size_t n = 0;

	while (*from && n + 1 < size) {
		if (from[0] == '\\' && from[1] && from[2] && from[3]) {
			to[n++] = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 |
					 (from[3] - '0'));
			from += 4;
		} else {
			to[n++] = *from++;
		}
	}
	to[n] = '\0';
}

/* Writes the path without ".", ".." and empty parts. */
static void normalise(char *to, size_t size, const char *path)
{
	size_t n = 0, len;

	for (; *path; path += len) {
		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 2 && !strncmp(path, "..", 2)) {
			while (n && to[--n] != '/')
				;
		} else if (len && !(len == 1 && *path == '.') && n + len + 2 < size) {
			to[n++] = '/';
			memcpy(to + n, path, len);
			n += len;
		}
	}
	to[n] = '\0';
}

int df_source_mounts(const char *file, FILE *mounts)
{
	char line[2 * PATH_MAX + 256], at[PATH_MAX], escaped[PATH_MAX], path[PATH_MAX], type[32];
	size_t n, deepest = 0;
	int found = 0;

	normalise(path, sizeof(path), file);
	while (fgets(line, sizeof(line), mounts)) {
		const char *rest = strstr(line, " - ");

		if (!rest || sscanf(line, "%*s %*s %*s %*s %4095s", escaped) != 1 ||
		    sscanf(rest, " - %31s", type) != 1)
			continue;
		unescape(at, sizeof(at), escaped);
		n = strcmp(at, "/") ? strlen(at) : 0;
		/* Later lines are mounted over earlier ones. */
		if (n < deepest || strncmp(path, at, n) != 0 || path[n] != '/')
			continue;
		deepest = n;
		found = !strcmp(type, "autofs") || !strcmp(type, "proc");
	}
	return found;
}

int df_source_read(struct df_source *s, const char *path, int64_t before)
{
	size_t name = strlen(path), bytes = 0;
	struct stat st;
	char *text = NULL;
	int fd, rc = -EINVAL;
	ssize_t n = 0;
	FILE *mounts;

	*s = (struct df_source){0};
	if (name < 4 || path[0] != '/' || strcmp(path + name - 3, ".py") != 0)
		return -EINVAL;
	mounts = fopen("/proc/self/mountinfo", "re");
	if (mounts) {
		rc = df_source_mounts(path, mounts) ? -EXDEV : 0;
		fclose(mounts);
	}
	if (rc)
		return rc;
	rc = -EINVAL;
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= MAX_BYTES &&
	    (st.st_uid == geteuid() || !st.st_uid || !geteuid()) &&
	    (!before || st.st_mtime <= before)) {
		text = malloc((size_t)st.st_size);
		while (text && bytes < (size_t)st.st_size &&
		       (n = read(fd, text + bytes, (size_t)st.st_size - bytes)) > 0)
			bytes += (size_t)n;
		rc = !text ? -ENOMEM : n < 0 ? -errno : 0;
		if (rc)
			free(text);
		else
			rc = df_source_parse(s, text, bytes);
	}
	close(fd);
	return rc;
}

void df_source_fini(struct df_source *s)
{
	free(s->text);
	free(s->stmts);
	*s = (struct df_source){0};
}

/* ---- what is where --------------------------------------------------------------------------- */

uint32_t df_source_at(const struct df_source *s, int line)
{
	uint32_t found = DF_SOURCE_NONE;

	/* A jump calls nothing, unless it returns or raises the result. */
	for (uint32_t i = 0; i < s->nr && s->stmts[i].first <= line; i++)
		if (s->stmts[i].last >= line &&
		    (found == DF_SOURCE_NONE || s->stmts[i].kind < DF_STMT_BREAK ||
		     memchr(s->stmts[i].text, '(', s->stmts[i].bytes)))
			found = i;
	return found;
}

uint32_t df_source_function(const struct df_source *s, uint32_t stmt)
{
	int indent = s->stmts[stmt].indent;

	while (stmt-- && indent) {
		if (s->stmts[stmt].indent >= indent)
			continue;
		indent = s->stmts[stmt].indent;
		if (s->stmts[stmt].kind == DF_STMT_DEF)
			return stmt;
	}
	return DF_SOURCE_NONE;
}

uint32_t df_source_end(const struct df_source *s, uint32_t stmt)
{
	uint32_t i = stmt + 1;

	if (stmt == DF_SOURCE_NONE)
		return (uint32_t)s->nr;
	while (i < s->nr && s->stmts[i].indent > s->stmts[stmt].indent)
		i++;
	return i;
}

/* ---- the order of execution ------------------------------------------------------------------ */

struct around {
	uint32_t head, after;	   /* of the innermost loop */
	uint32_t handler, outside; /* where an exception leads; the end of the function */
	int depth;
};

/* Whether this statement continues the compound statement before it. */
static int is_clause(enum df_stmt_kind kind)
{
	return kind == DF_STMT_ELIF || kind == DF_STMT_ELSE || kind == DF_STMT_EXCEPT ||
	       kind == DF_STMT_FINALLY;
}

/* Returns the first clause of this kind from `at` on, or NONE. */
static uint32_t clause(const struct df_source *s, uint32_t at, uint32_t end, enum df_stmt_kind kind)
{
	for (; at < end && is_clause(s->stmts[at].kind); at = df_source_end(s, at))
		if (s->stmts[at].kind == kind)
			return at;
	return DF_SOURCE_NONE;
}

static int is_forever(const struct df_stmt *s)
{
	return (s->bytes == 11 && !strncmp(s->text, "while True:", 11)) ||
	       (s->bytes == 8 && !strncmp(s->text, "while 1:", 8));
}

/* Sets the order of the statements of a block, after which `follow` is executed. */
static void flow(struct df_source *s, uint32_t at, uint32_t end, uint32_t follow, struct around a)
{
	uint32_t next, after, tail;

	for (; at < end; at = next) {
		struct df_stmt *x = &s->stmts[at];
		struct around in = a;

		next = df_source_end(s, at);
		/* Behind the other clauses of this statement. */
		for (after = next; after < end && (is_clause(s->stmts[after].kind) ||
						   (x->kind == DF_STMT_CASE &&
						    s->stmts[after].kind == DF_STMT_CASE));)
			after = df_source_end(s, after);
		after = after < end ? after : follow;
		tail = after;
		x->next[0] = at + 1 < next && is_head(x->kind) ? at + 1 : after;
		x->next[1] = DF_SOURCE_NONE;
		x->handler = a.handler;
		in.depth++;
		switch (x->kind) {
		case DF_STMT_IF:
		case DF_STMT_ELIF:
		case DF_STMT_CASE:
			x->next[1] = next < end ? next : after;
			break;
		case DF_STMT_EXCEPT:
			/* An exception that no clause takes goes on to the next handler. */
			x->next[1] = next < end && s->stmts[next].kind == DF_STMT_EXCEPT ? next
				     : a.handler != DF_SOURCE_NONE			 ? a.handler
								   : a.outside;
			break;
		case DF_STMT_FOR:
		case DF_STMT_WHILE:
			in.head = at;
			in.after = after;
			tail = at;
			if (!is_forever(x))
				x->next[1] = clause(s, next, end, DF_STMT_ELSE);
			if (!is_forever(x) && x->next[1] == DF_SOURCE_NONE)
				x->next[1] = after;
			break;
		case DF_STMT_TRY:
			in.handler = clause(s, next, end, DF_STMT_EXCEPT);
			in.handler = in.handler != DF_SOURCE_NONE ? in.handler : a.handler;
			tail = clause(s, next, end, DF_STMT_ELSE);
			tail = tail != DF_SOURCE_NONE ? tail
						      : clause(s, next, end, DF_STMT_FINALLY);
			tail = tail != DF_SOURCE_NONE ? tail : after;
			break;
		case DF_STMT_BREAK:
			x->next[0] = a.after;
			break;
		case DF_STMT_CONTINUE:
			x->next[0] = a.head;
			break;
		case DF_STMT_RETURN:
			x->next[0] = a.outside;
			break;
		case DF_STMT_RAISE:
			x->next[0] = a.handler != DF_SOURCE_NONE ? a.handler : a.outside;
			break;
		case DF_STMT_DEF:
		case DF_STMT_CLASS:
			x->next[0] = after; /* its block is not executed here */
			continue;
		default:
			break;
		}
		if (is_head(x->kind) && in.depth < MAX_INDENT)
			flow(s, at + 1, next, tail, in);
	}
}

void df_source_flow(struct df_source *s, uint32_t function, uint32_t outside)
{
	struct around a = {outside, outside, DF_SOURCE_NONE, outside, 0};
	uint32_t first = function == DF_SOURCE_NONE ? 0 : function + 1,
		 end = df_source_end(s, function);

	for (uint32_t i = first; i < end; i++)
		s->stmts[i].next[0] = s->stmts[i].next[1] = s->stmts[i].handler = DF_SOURCE_NONE;
	flow(s, first, end, outside, a);
}
