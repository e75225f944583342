/* SPDX-License-Identifier: Apache-2.0
 *
 * When a body did what, for a client that has asked for it in OPEN (PROTOCOL.md section 5.9): noted as tasks and frames
 * come back, and told by `intervals` of the body's callbacks when a chunk is through, when a step is committed, and when
 * as many are there as fit into a message. Nothing allocates. What a link could not be told is forgotten. Chunks of
 * evaluations are not noted.
 *
 * Private to the body's files.
 *
 * Threads: loop thread. Test: tests/unit/test_body.c, tests/e2e/trace.sh
 */
#ifndef GP_BODY_INTERVALS_H
#define GP_BODY_INTERVALS_H

#include "server/body_impl.h"

void gp_body_note_task(struct gp_body *b, enum gp_interval_stage stage, const struct body_slot *s,
		       const struct gp_task *t);
/* A transfer's codec has run; where it decoded, its frame has come before. */
void gp_body_note_decoded(struct gp_body *b, const struct gp_transfer *t);
void gp_body_note_encoded(struct gp_body *b, const struct gp_transfer *t);
void gp_body_note_sent(struct gp_body *b, const struct gp_transfer *t);
/* What is of a step that has been committed: its update, or its checkpoint. */
void gp_body_note_step(struct gp_body *b, enum gp_interval_stage stage, const struct gp_task *t);
/* Tells what has been noted. */
void gp_body_tell_intervals(struct gp_body *b);

#endif
