/* Compares names, so that a message can suggest the name that a misspelt one may stand for. */
#ifndef DF_BASE_NEAR_H
#define DF_BASE_NEAR_H

#include <string.h>

#include "runtime/base/err.h"

/*
 * Returns the number of letters to insert, remove or replace to turn a into b; 99 for long names.
 */
static inline int df_near_edits(const char *a, const char *b)
{
	int row[64], n = (int)strlen(b);

	if (n > 62 || strlen(a) > 62)
		return 99;
	for (int j = 0; j <= n; j++)
		row[j] = j;
	for (int i = 1; a[i - 1]; i++) {
		int diag = row[0];

		row[0] = i;
		for (int j = 1; j <= n; j++) {
			int sub = diag + (a[i - 1] != b[j - 1]);

			diag = row[j];
			row[j] = DF_MIN(sub, DF_MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[n];
}

#endif
