/* SPDX-License-Identifier: Apache-2.0
 *
 * Every choice of a study, the fastest first, with what cannot be struck out: a codec that does not fit or loses too
 * much, memory that is not there.
 *
 * Threads: any. Test: tests/e2e/plan.sh
 */
#ifndef GP_PLAN_RANK_H
#define GP_PLAN_RANK_H

#include "client/plan/plan_study.h"

struct gp_plan_limits {
	uint64_t client_bytes, server_bytes; /* 0: no limit */
	double max_error;                    /* of a codec, relative */
	int most;                            /* rows that are possible, to look for */
};

struct gp_plan_row {
	struct gp_plan_pick pick;
	struct gp_prediction prediction;
	char struck[128]; /* why it cannot be; "": it can */
};

struct gp_plan_ranking {
	struct gp_plan_row *row;
	int rows;     /* looked at: possible ones, and between them those that were struck out for their memory */
	int possible; /* of these */
	int choices;  /* of the study */
	int misfits;  /* of these, whose codec does not fit */
	int lossy;    /* of these, whose codec loses too much */
};

enum gp_status gp_plan_rank(const struct gp_plan_study *s, const struct gp_plan_limits *limits,
			    struct gp_plan_ranking *out, struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_plan_ranking_deinit(struct gp_plan_ranking *r);

#endif
