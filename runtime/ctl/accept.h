/*
 * Connections to other processes, and those that they make to this one. The control plane's lock is
 * held.
 */
#ifndef DF_RUNTIME_CTL_ACCEPT_H
#define DF_RUNTIME_CTL_ACCEPT_H

#include <stddef.h>
#include <stdint.h>

struct df_link;
struct df_link_ops;
struct df_member;

/*
 * After a failed call: returns 1 if errno says that it lacked a descriptor and trying again may
 * succeed. Keeps errno.
 */
int df_link_no_file(void);
/*
 * Connects to a process at the addresses in its member row (unix on this node, else TCP), and
 * greets it by its number and key. Frames may be sent at once. Returns NULL and *error if out of
 * memory or descriptors, or if the connection was refused at once.
 */
struct df_link *df_link_open_member(const struct df_member *m, const struct df_link_ops *ops,
				    void *owner, int *error);
/* Called by the loop: accepts the connections that wait at a listener. */
void df_link_accept(int listener, int is_unix, void *tag);

/*
 * Writes "HOST (pid N at ADDRESS) cannot reach TO: reason", for users. error: the error of the
 * failed connection.
 */
void df_link_why(const char *to, int error, char *text, size_t size);
/* Returns a listener on an abstract unix socket, or -errno. It is not registered with the loop. */
int df_link_listen_unix(uint64_t sock);
/* Resumes paused listeners whose pause is over. */
uint64_t df_accept_timers(uint64_t now);
void df_accept_forget_all(void);
/* The callbacks of connections that are not identified yet. */
extern const struct df_link_ops df_stranger_ops;

#endif
