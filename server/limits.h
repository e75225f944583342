/* SPDX-License-Identifier: Apache-2.0
 *
 * What a name may take of the server: the file of --limits, a line for each
 * name or pattern,
 *
 *     NAME  key=value key=value ...       # a comment
 *
 * as in server/README.md. NAME is what a client has proved to be
 * (credentials.h), with "*" for any characters; "anonymous" where clients have no
 * names; "default" for who has no line. An exact name goes before patterns, of
 * patterns the first one. What a line leaves out is as in the line "default", and
 * what that leaves out as the options say.
 *
 * Pairs are those of common/base/spec.h, with blanks between them, too. Names hold
 * ":" and ",", so that they cannot be the NAME of a spec; they stand before the
 * first blank, as in a file of tokens.
 *
 * Here is what may be taken, not what is: that is in usage.h, of checkpoints in
 * state_dir.h.
 *
 * Threads: a table does not change; any may look things up. Test: tests/unit/test_limits.c; fuzz: fuzz_limits.c
 */
#ifndef GP_LIMITS_H
#define GP_LIMITS_H

#include "common/base/status.h"
#include "server/credentials.h"

#define GP_LIMITS_ANY          UINT64_MAX
#define GP_LIMITS_NAMES_MAX    GP_CLIENT_TOKENS_MAX
#define GP_LIMITS_PATTERNS_MAX 256

struct gp_limits {
	uint64_t sessions;         /* at once, parked ones included */
	uint64_t memory_bytes;     /* of the host, all sessions together */
	uint64_t device_bytes;     /* of GPUs' own memory, all sessions together */
	uint64_t checkpoint_bytes; /* of all runs */
	uint64_t runs;             /* with checkpoints */
	uint64_t links;            /* begun in a minute */
	uint64_t measures;         /* measuring sessions, begun in a minute */
	/* All its sessions on a device together count there as so many sessions; 0: each of them counts as one. */
	double device_share;
};

struct gp_limits_table;

/* path NULL: there is no file, and everybody has `base`. GP_INVALID has "PATH:LINE: " and what is wrong. */
enum gp_status gp_limits_load(const char *path, const struct gp_limits *base, struct gp_limits_table **out,
			      struct gp_err *err);
void gp_limits_free(struct gp_limits_table *t); /* NULL is fine */
/* What `who` may take; "": a client without a name. Lives as long as the table. */
const struct gp_limits *gp_limits_find(const struct gp_limits_table *t, const char *who);
/* Calls `each` for every line that is one name's: no pattern, not "default", not "anonymous". */
void gp_limits_each_name(const struct gp_limits_table *t,
			 void (*each)(void *arg, const char *name, const struct gp_limits *l), void *arg);

/* A line that no client can have the name of, where clients have certificates, tokens, both or neither; returns its name and
 * sets *line, or NULL: there is none. */
const char *gp_limits_misfit(const struct gp_limits_table *t, bool certificates, bool tokens, int *line);

#endif
