/* Asking all processes what is unfinished, and judging it. For the watchdog's thread only. */
#ifndef DF_RUNTIME_WATCH_LOOK_H
#define DF_RUNTIME_WATCH_LOOK_H

#include <stdint.h>

struct df_check_result;
struct df_check_set;
struct df_member;

/*
 * The processes that were asked. `others` counts them without this one. `silent` counts those that
 * live but have not answered; `mute` is one of these, and `heard` counts those of them that have
 * confirmed the question. `speaker` is the process that reports the verdict, among those that have
 * seen no progress for nearly as long as this process and so reach a verdict, too.
 */
struct df_asked {
	unsigned others, silent, heard;
	uint64_t mute, speaker;
};

/* Adds the operations that processes reported when they exited (df_ctl_each_words()). */
void df_look_add_left(struct df_check_set *set);
/* Adds a rank whose process has not confirmed the question (df_snapshot_is_silent()). */
void df_look_add_silent(struct df_check_set *set, uint64_t comm, const struct df_member *m,
			int certain);
/*
 * Judges what all processes know. `stale` is the time without progress. `aged`: as in struct
 * df_check_opts. Returns NULL if there is nothing to judge.
 */
struct df_check_result *df_look(uint64_t stale, uint64_t aged, struct df_asked *asked);
/*
 * Names a process that did not answer, because the report lacks its part and the user can examine
 * it.
 */
void df_look_tell_silent(const struct df_asked *asked);

#endif
