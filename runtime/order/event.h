/* The hooks of a machine's events (struct df_hooks in runtime/backend.h). */
#ifndef DF_RUNTIME_ORDER_EVENT_H
#define DF_RUNTIME_ORDER_EVENT_H

struct df_event_info;
struct df_stream_info;

int df_hook_event_record(const struct df_event_info *info, const struct df_stream_info *si);
void df_hook_event_wait(const struct df_stream_info *si, const struct df_event_info *info);
int df_hook_event_time(const struct df_event_info *info, void **event);
int df_hook_event_query(const struct df_event_info *info);
void df_hook_event_sync(const struct df_event_info *info);
void df_hook_event_destroy(const struct df_event_info *info);

#endif
