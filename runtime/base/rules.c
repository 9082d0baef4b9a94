#define _GNU_SOURCE
#include "runtime/base/rules.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/base/ascii.h"

int df_words_index(const char *list, const char *text, size_t len)
{
	int i;

	for (i = 0; *list; i++) {
		size_t n = strcspn(list, "|");

		if (n == len && !df_strncasecmp(list, text, len))
			return i;
		list += n + (list[n] == '|');
	}
	return -1;
}

int df_rule_next(const char **at, struct df_rule *r)
{
	const char *s = *at, *eq, *colon;
	size_t len;
	char *end;

	while (*s == ',' || *s == ' ')
		s++;
	*at = s;
	if (!*s)
		return 0;
	len = strcspn(s, ",");
	memset(r, 0, sizeof(*r));
	r->word = s;
	eq = memchr(s, '=', len);
	if (eq) {
		/*
		 * The last colon separates name and word: a name may contain colons, a word does
		 * not.
		 */
		colon = memrchr(eq, ':', len - (size_t)(eq - s));
		if (!colon || colon == eq + 1)
			return -EINVAL;
		r->key = s;
		r->key_len = (size_t)(eq - s);
		r->name = eq + 1;
		r->name_len = (size_t)(colon - eq - 1);
		r->word = colon + 1;
		if (!r->key_len)
			return -EINVAL;
	}
	r->word_len = len - (size_t)(r->word - s);
	r->number = strtol(r->word, &end, 10);
	/* strtol() returns the largest number for a larger one. */
	r->is_number = r->word_len && end == s + len && r->number > INT_MIN && r->number < INT_MAX;
	*at = s + len;
	return 1;
}

int df_rule_is_for(const struct df_rule *r, const char *key, const char *name)
{
	return strlen(key) == r->key_len && !strncmp(key, r->key, r->key_len) &&
	       strlen(name) == r->name_len && !df_strncasecmp(name, r->name, r->name_len);
}

int df_rules_check(const char *rules, const char *keys, const char *words, const char **bad)
{
	struct df_rule r;
	int ret;

	for (;;) {
		while (*rules == ',' || *rules == ' ')
			rules++;
		*bad = rules;
		ret = df_rule_next(&rules, &r);
		if (ret <= 0)
			return ret;
		if (r.key_len ? df_words_index(keys, r.key, r.key_len) < 0 : !words)
			return -EINVAL;
		if (words ? df_words_index(words, r.word, r.word_len) < 0 : !r.is_number)
			return -EINVAL;
	}
}

int df_rules_word(const char *rules, const char *key, const char *name, const char *words)
{
	struct df_rule r;
	int all = 0;

	while (rules && df_rule_next(&rules, &r) > 0) {
		if (!r.key_len)
			all = df_words_index(words, r.word, r.word_len);
		else if (df_rule_is_for(&r, key, name))
			return df_words_index(words, r.word, r.word_len);
	}
	return all;
}

int df_rules_have(const char *rules, const char *words, int word)
{
	struct df_rule r;

	while (rules && df_rule_next(&rules, &r) > 0)
		if (df_words_index(words, r.word, r.word_len) == word)
			return 1;
	return 0;
}
