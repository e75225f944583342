/* SPDX-License-Identifier: Apache-2.0
 *
 * What each name takes of the server, held against what it may take (limits.h):
 * sessions, memory of the host and of GPUs, links, its share of a device. What a
 * name has is what its sessions have, parked ones and those that are ending
 * included; there is no second account of it. Checkpoints are counted in state_dir.h.
 *
 * A limit that was lowered holds for what is asked for from then on: sessions that
 * are open go on.
 *
 * Threads: loop thread. Test: tests/unit/test_limits.c, tests/unit/test_server_limits.c
 */
#ifndef GP_USAGE_H
#define GP_USAGE_H

#include "server/limits.h"

struct gp_server;
struct gp_server_session;

/* Reads --limits (set.limits; NULL: there is none) for all that is asked for from now on, and says in the log what an
 * operator should know of it. On failure the old limits stay. */
enum gp_status gp_usage_load_limits(struct gp_server *srv, struct gp_err *err);
void gp_usage_free_limits(struct gp_server *srv);

struct gp_usage {
	uint64_t sessions, memory_bytes, device_bytes;
	uint64_t ended; /* sessions that count no more and still wait for the disk or for a device */
};

/* `but`: a session that is not counted; NULL: all are. */
struct gp_usage gp_usage_of(const struct gp_server *srv, const char *who, const struct gp_server_session *but);

/* Each says with its figures what is asked for, what the name has, and what it may have. GP_BUSY where it may be let in
 * later, GP_DENIED and GP_NOMEM where not. */
enum gp_status gp_usage_check_session(const struct gp_limits *may, const struct gp_usage *has, const char *who,
				      struct gp_err *err);
/* The same of those that have ended: a name cannot fill what there is of them. */
enum gp_status gp_usage_check_ended(const struct gp_server *srv, const struct gp_limits *may,
				    const struct gp_usage *has, const char *who, struct gp_err *err);
enum gp_status gp_usage_check_memory(const struct gp_limits *may, const struct gp_usage *has, const char *who,
				     uint64_t bytes, struct gp_err *err);
enum gp_status gp_usage_check_device(const struct gp_limits *may, const struct gp_usage *has, const char *who,
				     uint64_t bytes, struct gp_err *err);
/* Sets `bytes` of the server's memory aside, which is from here on all that this session has, in the name's account and the
 * server's: GP_NOMEM where it may never have it, GP_BUSY where others have it now. On failure it keeps what it had. */
enum gp_status gp_usage_reserve_memory(struct gp_server_session *s, uint64_t bytes, struct gp_err *err);
/* Counts a link of that name. GP_BUSY: it is one too many, the next may come after *wait_ms. */
enum gp_status gp_usage_begin_link(struct gp_server *srv, const char *who, uint64_t now_ns, uint32_t *wait_ms,
				   struct gp_err *err);

/* A session of a client begins with what those of the same client stood at on its device that have ended lately: who opens one
 * after the other has no more turns than who stays. A client is a name, or without one an address. */
void gp_usage_follow(struct gp_server_session *s);
/* The session is at its end. */
void gp_usage_note_end(const struct gp_server_session *s);

/* Divides the name's share of each device among its sessions there, anew: one has come, gone or moved. */
void gp_usage_share_devices(struct gp_server *srv, const char *who);

#endif
