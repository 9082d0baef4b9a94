#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "runtime/base/demangle.h"

#define NAME_MAX_BYTES 512

/* A qualified name under construction. */
struct name {
	char text[NAME_MAX_BYTES];
	size_t at, last; /* last: start of its last part */
};

static int put(struct name *n, const char *before, const char *text, size_t nr)
{
	int len =
		snprintf(n->text + n->at, sizeof(n->text) - n->at, "%s%.*s", before, (int)nr, text);

	if (len < 0 || (size_t)len >= sizeof(n->text) - n->at)
		return 0;
	n->at += (size_t)len;
	return 1;
}

static int put_part(struct name *n, const char *text, size_t nr)
{
	const char *before = n->at ? "::" : "";

	n->last = n->at + strlen(before);
	return put(n, before, text, nr);
}

/* Reads a part like "3abc". Returns the rest, or NULL if there is none. */
static const char *source_name(struct name *n, const char *at)
{
	size_t nr = 0;

	for (; isdigit((unsigned char)*at); at++) {
		nr = nr * 10 + (size_t)(*at - '0');
		if (nr > NAME_MAX_BYTES)
			return NULL;
	}
	if (!nr || strnlen(at, nr) < nr)
		return NULL;
	if (!strncmp(at, "_GLOBAL__N", 10))
		return put_part(n, "{}", 2) ? at + nr : NULL;
	return put_part(n, at, nr) ? at + nr : NULL;
}

/* Reads the text after "_Z". Returns 1 if it is a supported name. */
static int qualified(struct name *n, const char *at)
{
	int nested = *at == 'N', known = 1;

	if (nested)
		at += 1 + strspn(at + 1, "rVKRO");
	if (!strncmp(at, "St", 2)) {
		known = put_part(n, "std", 3);
		at += 2;
	}
	while (known && isdigit((unsigned char)*at)) {
		at = source_name(n, at);
		known = at != NULL;
		if (!nested)
			break;
	}
	if (!known || !n->at)
		return 0;
	/* Constructors and destructors have the name of their class. */
	if (nested && (*at == 'C' || *at == 'D') && isdigit((unsigned char)at[1])) {
		char class[NAME_MAX_BYTES];

		snprintf(class, sizeof(class), "%s", n->text + n->last);
		return put(n, *at == 'C' ? "::" : "::~", class, strlen(class));
	}
	if (*at == 'I')
		return put(n, "<>", "", 0);
	return !nested || *at == 'E';
}

void df_demangle_name(char *name, size_t size)
{
	char mangled[NAME_MAX_BYTES];
	struct name n = {.at = 0};
	size_t nr, left;

	if (strncmp(name, "_Z", 2) != 0)
		return;
	nr = strcspn(name, "+");
	left = strlen(name + nr);
	if (nr >= sizeof(mangled))
		return;
	memcpy(mangled, name, nr);
	mangled[nr] = 0;
	if (!qualified(&n, mangled + 2) || n.at + left >= size)
		return;
	memmove(name + n.at, name + nr, left + 1);
	memcpy(name, n.text, n.at);
}

void df_demangle_frame(char *frame, size_t size)
{
	char *symbol = strchr(frame, '!');

	if (symbol)
		df_demangle_name(symbol + 1, size - (size_t)(symbol + 1 - frame));
}
