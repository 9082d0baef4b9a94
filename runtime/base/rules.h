/*
 * Settings that are rules: "KEY=NAME:WORD", separated by commas. A rule applies to the objects of
 * that name. A WORD alone, where the setting allows it, applies to all objects that no rule names.
 * Pure; any thread.
 */
#ifndef DF_BASE_RULES_H
#define DF_BASE_RULES_H

#include <stddef.h>

/* Returns the index of a text among the words of "a|b|c", in any case, or -1. */
int df_words_index(const char *list, const char *text, size_t len);

/* One rule. Its strings point into the list. */
struct df_rule {
	const char *key, *name, *word;
	size_t key_len, name_len, word_len; /* key_len is 0 for a word alone */
	long number;			    /* the value of the word if it is a number */
	int is_number;
};

/*
 * Takes one rule off the list. Returns 1 if there was one, 0 at the end, or -EINVAL if *at is not a
 * rule.
 */
int df_rule_next(const char **at, struct df_rule *r);
/* Whether the rule is for this key and name (in any case). */
int df_rule_is_for(const struct df_rule *r, const char *key, const char *name);

/*
 * Checks a list of rules. keys: the allowed keys "a|b". words: the allowed words "a|b|c", one of
 * which may also stand alone; NULL: words are numbers and may not stand alone. Returns 0, or
 * -EINVAL and in *bad the first rule that cannot be used, which points into rules.
 */
int df_rules_check(const char *rules, const char *keys, const char *words, const char **bad);
/*
 * Returns the index among words that the first rule for this name selects, else that of the word
 * alone, else 0. rules: a checked list, or NULL.
 */
int df_rules_word(const char *rules, const char *key, const char *name, const char *words);
/* Whether some rule has word number `word`. */
int df_rules_have(const char *rules, const char *words, int word);

#endif
