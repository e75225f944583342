/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient plan` says: a prediction with the parts that it is made of, or a ranking, as text and as JSON
 * (client/JSON.md). The last line of the text is the answer in one sentence.
 *
 * Threads: any. Test: tests/e2e/plan.sh
 */
#ifndef GP_PLAN_REPORT_H
#define GP_PLAN_REPORT_H

#include <jansson.h>
#include <stdio.h>

#include "client/plan/plan_rank.h"

struct gp_plan_report {
	const struct gp_plan_study *study;
	const struct gp_plan_ranking *ranking;
	const char *model, *server; /* server: HOST:PORT, or NULL */
	bool link_measured;
	bool swept;  /* more than one choice was asked for */
	bool padded; /* chunks of the training may be shorter: texts, whose padding does not travel */
};

/* Why none of the choices is possible, where the ranking has none that is. */
const char *gp_plan_report_obstacle(const struct gp_plan_report *r);
void gp_plan_report_print(const struct gp_plan_report *r, FILE *to);
/* One object, or with a sweep an array; a new reference. NULL: out of memory. */
json_t *gp_plan_report_json(const struct gp_plan_report *r);
/* "Cut at 3:-1 with uniform:bits=8 in 8 chunks: 0.83 s a batch, bound by the way up." Returns text. */
#define GP_PLAN_SENTENCE 1024
const char *gp_plan_sentence(const struct gp_plan_report *r, const struct gp_plan_row *row,
			     char text[GP_PLAN_SENTENCE]);

#endif
