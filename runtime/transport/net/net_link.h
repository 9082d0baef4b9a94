/* The links of an endpoint, and their events; see net.h. */
#ifndef DF_TRANSPORT_NET_NET_LINK_H
#define DF_TRANSPORT_NET_NET_LINK_H

#include <stdint.h>

#include "runtime/transport/transport.h"

struct df_net_ep;
struct df_net_link;

struct df_net_link *df_net_link_of(struct df_net_ep *ep, uint64_t proc, int device,
				   uint32_t without);
void df_net_up(struct df_net_link *l);
void df_net_down(struct df_net_link *l, int why);
/* Returns the other side; it is unknown if it connected before peer_get() was called here. */
const struct df_member *df_net_member(const struct df_net_link *l);
/* Records a sign of life of the other side. */
void df_net_alive(struct df_net_link *l, uint64_t now);
/* Gives up the link as after the time-out, with the reason in l->why and l->what. */
void df_net_lost(struct df_net_link *l);
/* The reason of the last break, as text. */
const char *df_net_why(const struct df_net_link *l);
/* Reports an event (df_net_on_event()) of the last `ns`. On the thread. */
void df_net_report(const struct df_net_link *l, enum df_net_what what, uint64_t ns);
/* Whether df_net_goodbye() has been called. */
int df_net_has_left(void);
/* df_net_look_held() (runtime/transport/transport.h) for one endpoint. */
void df_net_look_inside(struct df_net_ep *ep, uint64_t now, uint64_t pause);
/* In the child of a fork. */
void df_net_links_forked(void);

#endif
