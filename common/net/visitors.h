/* SPDX-License-Identifier: Apache-2.0
 *
 * What each visitor of the server has done lately, so that one of them cannot
 * take everything: TLS handshakes under way and begun, wrong tokens, links, measuring
 * sessions, lines of the log, time of devices. A visitor is an address, which is one IPv4 address
 * or one /64 of IPv6 (what a host gets as its own), or a name that was proved.
 *
 * Addresses have a table of fixed size: where it is full, the one that was away
 * longest makes room; one with a handshake under way stays. Names have a table of
 * their own, so that neither pushes the other out. A name makes room when it was away
 * for a minute, and has its whole budget again anyway; until then the table grows, as there are only as
 * many names as the operator has given out. Here is no clock: who asks says what time it is.
 *
 * Threads: one at a time. Test: tests/unit/test_visitors.c
 */
#ifndef GP_VISITORS_H
#define GP_VISITORS_H

#include "common/base/status.h"

#define GP_VISITORS_MAX   4096                  /* addresses */
#define GP_VISITOR_MINUTE UINT64_C(60000000000) /* in nanoseconds */

struct gp_visitor_key {
	uint8_t kind; /* '4', '6', 'n'; 0: an address that cannot be read, all of them together */
	uint8_t bytes[8];
};

struct gp_visitor_limits {      /* 0: no limit */
	int64_t handshakes;     /* of one address, under way */
	int64_t handshake_rate; /* of one address, begun in a minute */
	int64_t wrong_tokens;   /* of one address, in a minute */
	int64_t lines;          /* of the log about one visitor, in a minute */
};

struct gp_visitors;

/* `left_out` is told how many lines about a visitor were not written, from within gp_visitors_may_tell and
 * gp_visitors_sum_up. */
enum gp_status gp_visitors_new(const struct gp_visitor_limits *limits,
			       void (*left_out)(void *arg, const char *name, uint64_t lines), void *arg,
			       struct gp_visitors **out, struct gp_err *err);
void gp_visitors_free(struct gp_visitors *v); /* NULL is fine */

/* "192.0.2.7:4040", "[2001:db8::1]:4040" */
struct gp_visitor_key gp_visitor_of_address(const char *peer);
struct gp_visitor_key gp_visitor_of_name(const char *who);

/* False: this one is too many. True: gp_visitors_handshake_over must follow. A newcomer for whom the table has no room, as
 * every address in it has a handshake under way, is let in without being counted: so many open connections must not lock others
 * out, and who lets them in bounds how many of them there are. */
bool gp_visitors_handshake(struct gp_visitors *v, struct gp_visitor_key key, uint64_t now_ns);
void gp_visitors_handshake_over(struct gp_visitors *v, struct gp_visitor_key key);

/* Whether a token from there is looked at: false after too many wrong ones. */
bool gp_visitors_may_try_token(struct gp_visitors *v, struct gp_visitor_key key, uint64_t now_ns);
void gp_visitors_wrong_token(struct gp_visitors *v, struct gp_visitor_key key, uint64_t now_ns);

/* Counts a link of a visitor that may begin `per_minute` (1 or more). 0: it may have it; else the nanoseconds after which
 * there will be one. */
uint64_t gp_visitors_link(struct gp_visitors *v, struct gp_visitor_key key, int64_t per_minute, uint64_t now_ns);

/* The same of measuring sessions; 0 a minute: any number. */
uint64_t gp_visitors_measure(struct gp_visitors *v, struct gp_visitor_key key, int64_t per_minute, uint64_t now_ns);

/* Where the sessions of a visitor stood that have ended, on a device (numbered below GP_VISITOR_DEVICES): gp_share_used. 0: there
 * was none that is remembered. */
#define GP_VISITOR_DEVICES 16
void gp_visitors_note_used(struct gp_visitors *v, struct gp_visitor_key key, int device, uint64_t used_ns,
			   uint64_t now_ns);
uint64_t gp_visitors_used(struct gp_visitors *v, struct gp_visitor_key key, int device);

/* Whether a line about this visitor is written; `name` is what left_out calls it. */
bool gp_visitors_may_tell(struct gp_visitors *v, struct gp_visitor_key key, const char *name, uint64_t now_ns);
/* Tells left_out about every visitor. */
void gp_visitors_sum_up(struct gp_visitors *v);

#endif
