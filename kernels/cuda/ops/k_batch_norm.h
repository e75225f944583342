/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization of (rows, channels) with what stands behind it: an
 * addition of a residual, then an activation.
 *
 *   y = act(a x + b + residual),   a = gamma invstd, b = beta - mean a
 *
 * Training takes mean and variance of the batch, keeps them for backward and
 * moves the running ones; sums and residual are rounded to `type` where ops
 * apart would write them: the same bits. Evaluation takes the running ones. Statistics,
 * coefficients and parameters are fp32, sums double beyond a thread; x, y,
 * residual and gradients are of `type`. All in device memory.
 *
 * Backward, PyTorch's formula: with g = dy where the activation let it pass,
 *   dbeta += sum g, dgamma += invstd * sum g (x - mean),
 *   dx = gamma invstd (g - sum g / n - (x - mean) invstd^2 sum g (x - mean) / n),   dresidual = g
 *
 * In mode running, forward takes the running statistics, which backward takes for constants:
 *   dgamma, dbeta as above,   dx = gamma invstd g
 * With renorm the normalized value is multiplied by r, and d is added (common/graph/ops/op_batch_norm.h); both are constants:
 *   dgamma += sum of g times that, dx = r times the above
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * Test: tests/unit/test_cuda_batch_norm.c
 */
#ifndef GP_K_BATCH_NORM_H
#define GP_K_BATCH_NORM_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum gpk_act { GPK_ACT_NONE, GPK_ACT_RELU, GPK_ACT_RELU6 };

/* What becomes of a chunk's statistics: the running ones move towards them; they are merged with those of other chunks; so,
 * and the running ones become what was merged; nothing. */
enum gpk_bn_use { GPK_BN_MOVE, GPK_BN_MERGE, GPK_BN_TAKE, GPK_BN_LEAVE };

struct gpk_bn {
	enum gp_rt_type type;
	int64_t rows, channels;
	int64_t high, wide; /* of each image, in whose strips sums are added (gpk_strips.h); 0: rows are no images */
	float eps, momentum; /* running = (1 - momentum) * running + momentum * batch, unbiased variance */
	enum gpk_act act;
	const float *gamma, *beta;
	float *running_mean, *running_var;
	float *saved; /* GPK_BN_SAVED lines of `channels`, from forward to backward; with renorm GPK_BN_SAVED_RENORM */
	void *room;   /* gpk_bn_room bytes, of one call */
	enum gpk_bn_use use;
	double *merged; /* for MERGE, TAKE and gpk_bn_end_step: GPK_BN_MERGED lines of `channels`; zeros: nothing */
	bool fixed;     /* mode running */
	bool renorm;
	float r_max, d_max; /* of renorm: r and d are within these and what `warmup` says of *updates */
	int32_t warmup;
	const uint64_t *updates; /* in device memory */
};
#define GPK_BN_SAVED        4 /* mean, invstd, a, b */
#define GPK_BN_SAVED_RENORM 6 /* r, d */
#define GPK_BN_MERGED       3 /* rows, mean, sum of squared differences from it */

uint64_t gpk_bn_room(int64_t rows, int64_t channels);
/* Whether batch norm of so many rows is one launch each way. */
bool gpk_bn_at_once(int64_t rows, int64_t channels);

/* y may be x, or residual; residual may be NULL. Eval, by the running statistics, needs neither `saved` nor `room`. */
void gpk_bn_forward(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual, void *y);
void gpk_bn_forward_eval(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual, void *y);
/* In mode running, in training: as eval, and fills `saved`. */
void gpk_bn_forward_running(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			    void *y);
/*
 * gpk_bn_forward in parts, where a depthwise convolution does the other one (k_depthwise.h). statistics: takes the
 * chunk's, and fills `saved`; needs a room of many rows. keep_running: fills `saved` by the running ones. apply: makes y by
 * `saved`. backward_apply: dx by the coefficients that k_depthwise.h left in n->room; g is behind the activation's mask.
 */
void gpk_bn_statistics(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x);
void gpk_bn_keep_running(struct gp_rt_stream *s, const struct gpk_bn *n);
void gpk_bn_apply(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual, void *y);
void gpk_bn_backward_apply(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *g, void *dx);
/* Running statistics move towards what was merged, if anything was; then nothing is. */
void gpk_bn_end_step(struct gp_rt_stream *s, const struct gpk_bn *n);
/*
 * `y`: forward's output, for the activation's mask; NULL: there was no residual, and the mask is found again from x.
 * `dresidual` (NULL: nobody wants it) is overwritten, and may be dy. dx may be NULL, or dy unless dy holds dresidual.
 * dgamma, dbeta: accumulated (+=); one of them may be NULL.
 */
void gpk_bn_backward(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y, const void *dy,
		     void *dresidual, void *dx, float *dgamma, float *dbeta);
/* The same where forward took the running statistics, which are constants: dx = gamma / sqrt(var + eps) g. Not both dresidual
 * and dx are NULL. */
void gpk_bn_backward_frozen(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y,
			    const void *dy, void *dresidual, void *dx);

#ifdef __cplusplus
}
#endif
#endif
