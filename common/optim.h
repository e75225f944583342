/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and learning-rate schedules: what is configured and the schedule
 * formulas. The update itself runs on the device (device.h). The client owns
 * the schedule and sends the rate with COMMIT, so both sides use the same bits.
 * Formulas: torch.optim.SGD (Nesterov: g + momentum*buf), PyTorch 1.13.
 * Test: tests/unit/test_optim.c
 */
#ifndef GP_OPTIM_H
#define GP_OPTIM_H

#include "common/status.h"

enum gp_optim_kind { GP_OPTIM_SGD = 0, GP_OPTIM_ADAM = 1, GP_OPTIM_ADAMW = 2 }; /* wire ids: pinned */

struct gp_optim {
	enum gp_optim_kind kind;
	float momentum;     /* SGD */
	bool nesterov;      /* SGD, needs momentum > 0 */
	float weight_decay; /* L2 into the gradient for SGD and Adam, decoupled for AdamW */
	float beta1, beta2, eps; /* Adam, AdamW */
};

enum gp_schedule_kind { GP_SCHEDULE_CONST, GP_SCHEDULE_COSINE, GP_SCHEDULE_STEP, GP_SCHEDULE_POLY };

struct gp_schedule {
	enum gp_schedule_kind kind;
	double base_lr, final_lr; /* final_lr: what cosine and poly end at */
	int64_t total_steps, warmup_steps; /* warm-up: base_lr * (step+1)/warmup_steps */
	double gamma;             /* step: factor */
	int64_t every;            /* step: period in steps */
	double power;             /* poly */
};

/* Checks ranges (GP_USAGE names the flag). */
enum gp_status gp_optim_check(const struct gp_optim *o, struct gp_err *err);
enum gp_status gp_schedule_check(const struct gp_schedule *s, struct gp_err *err);
/* Rate for 0-based `step`; steps past the end keep the last value. Pure. */
float gp_schedule_lr(const struct gp_schedule *s, int64_t step);

#endif
