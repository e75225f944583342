/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to body.c and body_params.c.
 */
#ifndef GP_BODY_IMPL_H
#define GP_BODY_IMPL_H

#include "server/body.h"

enum slot_state {
	SLOT_EMPTY,
	SLOT_FORWARD,  /* ACT_UP arriving, decoding, computing, encoding */
	SLOT_WAITING,  /* ACT_DOWN sent; the client's gradient comes next */
	SLOT_BACKWARD, /* GRAD_UP arriving, decoding, computing, encoding */
};

struct body_slot {
	struct gp_body *body;
	int index;
	enum slot_state state;
	uint32_t chunk;
	uint8_t flags;
	struct gp_task compute;
};

enum direction_index { ACT_UP, ACT_DOWN, GRAD_UP, GRAD_DOWN, DIRECTIONS };

struct gp_body {
	struct gp_device *dev;
	struct gp_channel *ch;
	struct gp_body_spec spec;
	struct gp_body_cbs cbs;
	void *arg;
	struct gp_plan *plan;
	struct gp_lane compute;
	struct gp_direction dir[DIRECTIONS];
	struct body_slot *slot;
	uint64_t step;                     /* committed steps = number of the step under way */
	uint32_t begun, grads_begun, done; /* chunks of the step under way */
	uint32_t backwards;                /* computed: the gradients are complete when all are */
	int eval_in_flight;
	struct gp_task build, optim, measure;
	float lr;
	double grad_norm;
	double *squares; /* with clip_norm: of each trained parameter */
	bool measured;   /* the squares of the step under way have been handed out */
	bool optim_pending, stopping, ready;
	/* weights in: one frame per parameter, freed when all are set */
	struct gp_frame *param_in;
	struct gp_task *param_task;
	uint8_t *param_block;
	uint32_t params_begun, params_set;
	/* weights out: one frame, parameter after parameter */
	struct gp_frame param_out;
	struct gp_task param_get;
	uint32_t param_out_index;
	bool fetching;
};

/* A task came back. False: the body is stopping or the task failed (which was reported); do nothing more. */
bool gp_body_task_ok(struct gp_body *b, struct gp_task *t);

enum gp_status gp_body_params_init(struct gp_body *b, struct gp_err *err);
void gp_body_params_deinit(struct gp_body *b);
/* Bytes of staging that gp_body_params_init takes. */
uint64_t gp_body_param_bytes(const struct gp_body_spec *spec);
enum gp_status gp_body_param_begin(struct gp_body *b, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err);
void gp_body_param_arrived(struct gp_body *b, struct gp_frame *f);
void gp_body_param_sent(struct gp_body *b);

#endif
