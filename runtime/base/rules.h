/*
 * Settings that are rules: "KEY=NAME:WORD", separated by commas. A rule is for what has that name; a WORD alone, where the setting
 * takes one, is for everything that no rule names. Pure; any thread.
 */
#ifndef DF_BASE_RULES_H
#define DF_BASE_RULES_H

#include <stddef.h>

/* The number of a text among the words of "a|b|c", in any case; -1 if it is not there. */
int df_words_index(const char *list, const char *text, size_t len);

/* Points into the text. */
struct df_rule {
	const char *key, *name, *word;
	size_t key_len, name_len, word_len; /* key_len 0: a word alone */
	long number;			    /* the word's value, if it is one */
	int is_number;
};

/* Takes one rule off the list. 1: there was one; 0: the end; -EINVAL: *at is no rule. */
int df_rule_next(const char **at, struct df_rule *r);
/* Is it for what has this name (any case)? */
int df_rule_is_for(const struct df_rule *r, const char *key, const char *name);

/*
 * keys: "a|b"; words: "a|b|c", of which one may stand alone, NULL: numbers, which may not. 0, or -EINVAL with the first that cannot be
 * understood in *bad (points into rules).
 */
int df_rules_check(const char *rules, const char *keys, const char *words, const char **bad);
/* The number among words of the first rule for this name, else of the word alone, else 0. rules: checked, or NULL. */
int df_rules_word(const char *rules, const char *key, const char *name, const char *words);
/* 1: some rule has word number `word`. */
int df_rules_have(const char *rules, const char *words, int word);

#endif
