/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and learning-rate schedules: what is configured and the schedule
 * formulas. The update itself runs on the device (device.h). The client owns
 * the schedule and sends the rate with COMMIT, so both sides use the same bits.
 *
 * Formulas of PyTorch 1.13: torch.optim.SGD (Nesterov: g + momentum*buf), Adam
 * and AdamW without amsgrad; torch.optim.lr_scheduler's CosineAnnealingLR,
 * StepLR and PolynomialLR over the steps after the warm-up, which is LinearLR
 * (start_factor 1/warmup_steps, total_iters warmup_steps-1): its first step has
 * base_lr/warmup_steps, its last base_lr. transformers'
 * get_cosine_schedule_with_warmup has the same cosine behind a warm-up that is
 * one step late: its first step has rate 0 and so changes nothing. So are its
 * linear and polynomial schedules beside those here.
 * Clipping: clip.h.
 *
 * Threads: any (pure functions). Tests: tests/unit/test_optim.c,
 * tests/unit/test_optim_steps.c
 */
#ifndef GP_OPTIM_H
#define GP_OPTIM_H

#include "common/base/status.h"

enum gp_optim_kind { GP_OPTIM_SGD = 0, GP_OPTIM_ADAM = 1, GP_OPTIM_ADAMW = 2 }; /* wire ids: pinned */

struct gp_optim {
	enum gp_optim_kind kind;
	float momentum;      /* SGD */
	bool nesterov;       /* SGD, needs momentum > 0 */
	float weight_decay;  /* L2 into the gradient for SGD and Adam, decoupled for AdamW */
	double beta1, beta2; /* Adam, AdamW; a float's 1 - 0.999f is 1e-5 off */
	float eps;           /* Adam, AdamW */
	double clip_norm;    /* most that the norm of all gradients together may be; 0: unlimited (clip.h) */
	double clip_value;   /* most that an element of a gradient may be; 0: unlimited. Not both */
};

enum gp_schedule_kind {
	GP_SCHEDULE_CONST,
	GP_SCHEDULE_COSINE,
	GP_SCHEDULE_STEP,
	GP_SCHEDULE_POLY,
	GP_SCHEDULE_LINEAR, /* poly with power 1 */
};

struct gp_schedule {
	enum gp_schedule_kind kind;
	double base_lr, final_lr;          /* final_lr: what cosine, poly and linear end at */
	int64_t total_steps, warmup_steps; /* warm-up: base_lr * (step+1)/warmup_steps */
	double gamma;                      /* step: factor */
	int64_t every;                     /* step: period in steps */
	double power;                      /* poly */
};

/* Checks ranges (GP_USAGE names the flag). */
enum gp_status gp_optim_check(const struct gp_optim *o, struct gp_err *err);
/* Arrays of a parameter's size that it remembers: 0 or 1 (momentum_buffer) of SGD, 2 of Adam (exp_avg, exp_avg_sq). */
int gp_optim_states(const struct gp_optim *o);
enum gp_status gp_schedule_check(const struct gp_schedule *s, struct gp_err *err);
/* Rate for 0-based `step`; steps past the end keep the last value. Pure. */
float gp_schedule_lr(const struct gp_schedule *s, int64_t step);

#endif
