/* SPDX-License-Identifier: Apache-2.0
 *
 * The servers that a session may go to: those that the user lists in --server, and behind them those that a server has
 * named when it had no room or stopped. Decides which is asked next, and when; not here: connecting (client_session_link.c)
 * and whose word on other servers is followed (client/job/security.h).
 *
 * A **search** begins when a session needs a server and ends when one takes it. It begins at one of them, its **home**:
 * the first of the list, or the one that the session was at. A **round** of it asks each server once, and each address of
 * a name that has several. Between two rounds there is a pause, so that a search never turns without end.
 *
 * Threads: one; pure: the caller says what time it is. Test: tests/unit/test_server_list.c
 */
#ifndef GP_SERVER_LIST_H
#define GP_SERVER_LIST_H

#include "common/base/status.h"
#include "common/net/conn.h"

#define GP_SERVERS_OWN      16 /* that a user may list */
#define GP_SERVERS_TOLD     16 /* that servers have named, besides */
#define GP_SERVERS_MAX      (GP_SERVERS_OWN + GP_SERVERS_TOLD)
#define GP_SERVER_TEXT      272 /* "HOST:PORT" */
#define GP_SERVER_ADDRESSES 16  /* of one name that are told apart */
#define GP_SERVERS_TEXT     128 /* "A:1, B:2 and 3 others" */

struct gp_server_place {
	char host[256]; /* a name or a number */
	uint16_t port;
};

struct gp_server_entry {
	char text[GP_SERVER_TEXT]; /* as it was written */
	char host[256];
	uint16_t port;
	bool srv;               /* "srv:NAME": `host` has SRV records, which say where the servers are */
	bool told;              /* named by a server, not by the user */
	bool by_near;           /* with told: by one that was reached over loopback */
	bool out;               /* of no use in this search, whenever it is asked */
	bool lacks;             /* answers at all of its addresses, and has nothing of the run */
	bool asked;             /* in this round */
	uint64_t not_before_ns; /* it has no room until then */
};

struct gp_server_list {
	struct gp_server_entry entry[GP_SERVERS_MAX]; /* the user's, then those that were named */
	int own, count;
	int home, at;
	uint32_t rounds; /* of this search, that are over */
	/* Addresses of the name of entry[at], where it has several and was looked up, or what its SRV records say. `address_at`:
	 * which is asked, -1: the first of them that answers. */
	struct gp_server_place address[GP_SERVER_ADDRESSES];
	int addresses, address_at, addresses_left; /* left: to be asked before the next server is */
	/* gp_server_list_leave: */
	bool spares;                /* the server that was left was not asked since */
	int left_entry;             /* where it is */
	int left_address;           /* of a name with several addresses: which of them, */
	uint64_t left_until_ns;     /* and until when it is not asked; 0: there is none */
	bool others_reached;        /* another address of the name was, since they were begun with */
	char title[GP_SERVER_TEXT]; /* for messages: as the server was written, or where SRV records lead */
	bool lacked;                /* this try: gp_server_list_lacks */
	bool all_lack;              /* the tries before it at entry[at] */
};

/* "HOST:PORT[,HOST:PORT]...", or "srv:NAME" among them: GP_USAGE says what is wrong with it, with the option's name in front. */
enum gp_status gp_server_list_parse(struct gp_server_list *l, const char *text, struct gp_err *err);
/* Whether it could be. */
enum gp_status gp_server_list_check(const char *text, struct gp_err *err);

/* The server that is asked now. */
const struct gp_server_entry *gp_server_list_at(const struct gp_server_list *l);
/* Where to connect to: its host, or one address of it. */
struct gp_server_place gp_server_list_place(const struct gp_server_list *l);
/* It has SRV records, which have to be asked for before it is known where to connect to; and what they say, in order. */
bool gp_server_list_wants_records(const struct gp_server_list *l);
void gp_server_list_looked_up(struct gp_server_list *l, const struct gp_server_place *place, int count);
/* A connection was tried: the name has these addresses, and the connection is to number `at` of them, or -1. */
void gp_server_list_connected(struct gp_server_list *l, char address[][GP_TCP_NUMERIC], int addresses, int at);

/* A search begins at the server that the session was at; `away`: which has sent it away, and is asked last. Forgets what
 * the last one has found out. */
void gp_server_list_search(struct gp_server_list *l, bool away);
/*
 * Behind gp_server_list_search: the server that the session was at has sent it to others, and is not asked for `ms`, unless it is
 * the only one. It has all of the session's state, and would take it back while the others still wait for what it writes. Of a
 * name, other addresses are other servers if one of them is reached.
 */
void gp_server_list_leave(struct gp_server_list *l, uint64_t now_ns, uint32_t ms);
/* A connection to the server that is asked now stands. */
void gp_server_list_reached(struct gp_server_list *l);
/* The server that was left was not asked since: what the others say is not all that there is to know. */
bool gp_server_list_spares(const struct gp_server_list *l);
/* It has ended at the server that was asked last. Forgets other servers that were named: what was said of them may be old
 * when the next search begins. */
void gp_server_list_found(struct gp_server_list *l);
/*
 * Moves on after a try that has failed: to the next address, the next server, or the next round. Returns how many
 * milliseconds to wait first: 0 within a round; else `pause_ms`, or as long as all servers have no room.
 */
uint64_t gp_server_list_next(struct gp_server_list *l, uint64_t now_ns, uint64_t pause_ms);
/* Whether this round has not asked all yet. */
bool gp_server_list_has_more(const struct gp_server_list *l);

/* What was found out about the server that is asked now: it has no room for so long; it is of no use (false: then there would
 * be none left, and nothing is noted); it has nothing of the run (true: nor has any other). */
void gp_server_list_defer(struct gp_server_list *l, uint64_t now_ns, uint32_t retry_ms);
bool gp_server_list_drop(struct gp_server_list *l);
bool gp_server_list_lacks(struct gp_server_list *l);

/* A server, which was reached over loopback if it is `near`, has named another. False: it is known already, or there is no room
 * for one more. `text` is one that gp_addr_is_plain likes. */
bool gp_server_list_tell(struct gp_server_list *l, const char *text, bool near);

/* Those that are asked, for messages. */
const char *gp_server_list_names(const struct gp_server_list *l, char out[GP_SERVERS_TEXT]);

#endif
