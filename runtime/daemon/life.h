/*
 * The daemon's part of a communicator: functions of struct df_executor, where they are described.
 */
#ifndef DF_RUNTIME_DAEMON_LIFE_H
#define DF_RUNTIME_DAEMON_LIFE_H

#include <stdint.h>

struct df_cal;
struct df_comm;
struct df_member;

int df_life_open(struct df_comm *comm, int nranks, struct df_member *me);
void df_life_terms(const struct df_comm *comm, int nranks, struct df_cal *cal, uint32_t *avoid);
int df_life_meet(struct df_comm *comm, const struct df_comm *parent, const struct df_cal *rows);
void df_life_start(struct df_comm *comm);
void df_life_end(struct df_comm *comm);
void df_life_forget(struct df_comm *comm);

#endif
