/*
 * What is changed in a job of the evaluation.
 */
#ifndef DEADLOCK_EVAL_CHANGE_H
#define DEADLOCK_EVAL_CHANGE_H

#include "eval_units.h"

static inline int ev_talks(const struct ev_unit *u)
{
	return u->kind == EU_COLL || u->kind == EU_P2P;
}

/* A unit of rank r that communicates; -1 none. */
static inline int ev_pick(struct ev_job *j, int r, enum ev_unit_kind kind)
{
	for (int tries = 0; tries < 200; tries++) {
		int i = (int)ev_below(j, (uint64_t)j->nr[r]);

		if (j->u[r][i].kind == kind || (kind == EU_JOIN && ev_talks(&j->u[r][i])))
			return i;
	}
	return -1;
}

static inline void ev_swap_units(struct ev_unit *a, struct ev_unit *b)
{
	struct ev_unit t = *a;

	*a = *b;
	*b = t;
}

/* Rank r, units i < k: of different communicators, or of one. */
static inline int ev_pick_pair(struct ev_job *j, int r, int same, int *i, int *k)
{
	for (int tries = 0; tries < 300; tries++) {
		const struct ev_unit *u = j->u[r];

		*i = ev_pick(j, r, EU_JOIN);
		if (*i < 0)
			return 0;
		for (*k = *i + 1; *k < j->nr[r] && *k < *i + 6; ++*k)
			if (ev_talks(&u[*k]) && (u[*k].comm == u[*i].comm) == same &&
			    ev_below(j, 2))
				return 1;
	}
	return 0;
}

static inline int ev_find(const struct ev_job *j, int r, int site)
{
	for (int i = 0; i < j->nr[r]; i++)
		if (j->u[r][i].site == site)
			return i;
	return -1;
}

/* Exchanges two places of the program on rank q, if it has both. */
static inline void ev_swap_on(struct ev_job *j, int q, int site, int other)
{
	int i = ev_find(j, q, site), k = ev_find(j, q, other);

	if (i >= 0 && k >= 0)
		ev_swap_units(&j->u[q][i], &j->u[q][k]);
}

/*
 * Exchanges two places of the program on a rank, or on every second one, as on the black fields of a board: that
 * makes circles between rows and columns.
 */
static inline void ev_swap_sites(struct ev_job *j, int r, int site, int other)
{
	int many = (int)ev_below(j, 2), parity = (r / j->tp + r % j->tp) & 1;

	for (int q = 0; q < j->ranks; q++)
		if (q == r || (many && ((q / j->tp + q % j->tp) & 1) == parity))
			ev_swap_on(j, q, site, other);
}

static inline void ev_mutate(struct ev_job *j)
{
	int r = (int)ev_below(j, (uint64_t)j->ranks), i, k, site, other;
	struct ev_unit *u, copy;

	switch (j->change) {
	case EV_SWAP:
		if (ev_pick_pair(j, r, 0, &i, &k))
			ev_swap_sites(j, r, j->u[r][i].site, j->u[r][k].site);
		break;
	case EV_SWAP_SAME:
		if (ev_pick_pair(j, r, 1, &i, &k))
			ev_swap_units(&j->u[r][i], &j->u[r][k]);
		break;
	case EV_SWAP_SYNC:
		if (!ev_pick_pair(j, r, 0, &i, &k))
			break;
		site = j->u[r][i].site;
		other = j->u[r][k].site;
		ev_swap_sites(j, r, site, other);
		for (int q = 0; q < j->ranks; q++) {
			i = ev_find(j, q, site);
			k = ev_find(j, q, other);
			if (i < 0 || k < 0)
				continue;
			i = i < k ? i : k;
			/* The result must not be needed by what follows: only the device's wait counts. */
			j->u[q][i].blocking = 0;
			u = ev_at(j, q, i + 1);
			u->kind = ev_below(j, 2) ? EU_DSYNC : EU_ISYNC;
			u->site = -1;
		}
		break;
	case EV_SWAP_ALL:
		if (!ev_pick_pair(j, r, 0, &i, &k))
			break;
		site = j->u[r][i].site;
		other = j->u[r][k].site;
		for (int q = 0; q < j->ranks; q++)
			ev_swap_on(j, q, site, other);
		break;
	case EV_DROP:
		i = ev_pick(j, r, EU_JOIN);
		memmove(&j->u[r][i], &j->u[r][i + 1],
			(size_t)(--j->nr[r] - i) * sizeof(struct ev_unit));
		break;
	case EV_REPEAT:
		i = ev_pick(j, r, EU_JOIN);
		copy = j->u[r][i];
		*ev_at(j, r, i) = copy;
		break;
	case EV_COUNT:
		u = &j->u[r][ev_pick(j, r, EU_JOIN)];
		u->n += 1 + ev_below(j, u->n + 1);
		if (u->nr)
			u->m[ev_below(j, (uint64_t)u->nr)].n += 1 + ev_below(j, 100);
		break;
	case EV_KIND:
		i = ev_pick(j, r, EU_COLL);
		if (i >= 0)
			j->u[r][i].coll = j->u[r][i].coll == SC_AR ? SC_AG : SC_AR;
		break;
	case EV_STOP:
		j->nr[r] = 1 + (int)ev_below(j, (uint64_t)j->nr[r] - 1);
		break;
	case EV_UNGROUP:
		i = ev_pick(j, r, EU_P2P);
		site = i >= 0 ? j->u[r][i].site : -1;
		for (int q = 0; site >= 0 && q < j->ranks; q++) {
			i = ev_find(j, q, site);
			if (i >= 0)
				j->u[q][i].grouped = 0;
		}
		break;
	case EV_SYNC:
		for (int n = 0; n < 3; n++) {
			i = ev_pick(j, r, EU_JOIN);
			u = ev_at(j, r, i);
			u->kind = EU_SSYNC + (int)ev_below(j, 3);
			u->site = -1;
		}
		break;
	default:
		break;
	}
}

#endif
