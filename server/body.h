/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of one session: its graph, plan, codecs and the chunks in flight.
 * Frames come in, tasks run on the compute and codec workers, frames go out.
 * PROTOCOL.md section 5. Not here: handshake and lifetime (session.c).
 *
 * One chunk: ACT_UP decoded -> forward -> ACT_DOWN encoded -> (client) ->
 * GRAD_UP decoded -> backward -> GRAD_DOWN encoded. Backwards run before
 * forwards where both wait: a backward frees memory and fills the down link.
 *
 * Threads: loop thread. Every frame header is checked here against the state
 * before a buffer is given. Test: tests/unit/test_server.c, tests/e2e
 */
#ifndef GP_BODY_H
#define GP_BODY_H

#include "common/device.h"
#include "common/transfer.h"

struct gp_body_spec {
	struct gp_graph *graph; /* taken */
	struct gp_optim optim;
	enum gp_precision precision;
	uint64_t session, seed;
	int chunk_samples, window, chunks;
	bool eval_only;
	uint32_t weights;              /* PARAM_UP frames to come: 0 or all parameters */
	struct gp_codec_spec codec[4]; /* act up, act down, grad up, grad down */
};

struct gp_body_cbs {
	void (*ready)(void *arg);                                             /* plan made, weights in place */
	void (*failed)(void *arg, enum gp_status status, struct gp_err *err); /* the session has to end */
	/* With clip_norm, after the last chunk's backward pass: the sums of clip.h. `sum` lives until the next step. */
	void (*measured)(void *arg, uint64_t step, const double *sum, int n);
	void (*committed)(void *arg, uint64_t step);
	void (*params_sent)(void *arg, uint32_t count);
	void (*idle)(void *arg); /* a task came back while stopping: see gp_body_busy */
};

struct gp_body;

/* Bytes a session with this spec will take: plan, frames, staging. */
enum gp_status gp_body_estimate(struct gp_device *dev, const struct gp_body_spec *spec, uint64_t *bytes,
				struct gp_err *err);
/* Takes spec->graph (also on failure). The plan is made on the compute worker; `ready` follows. */
enum gp_status gp_body_new(struct gp_device *dev, struct gp_worker *compute, struct gp_worker *codec,
			   struct gp_channel *ch, const struct gp_body_spec *spec, const struct gp_body_cbs *cbs,
			   void *arg, struct gp_body **out, struct gp_err *err);
/* Must not be busy. */
void gp_body_free(struct gp_body *b);

enum gp_status gp_body_frame_begin(struct gp_body *b, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err);
void gp_body_frame(struct gp_body *b, struct gp_frame *f);
void gp_body_frame_sent(struct gp_body *b, struct gp_frame *f);
/* grad_norm: of the whole model, with clip_norm; else 0. */
enum gp_status gp_body_commit(struct gp_body *b, uint64_t step, float lr, double grad_norm, struct gp_err *err);
enum gp_status gp_body_fetch_params(struct gp_body *b, struct gp_err *err);

/* No new work from here on; `idle` runs when a pending task has come back. */
void gp_body_stop(struct gp_body *b);
bool gp_body_busy(const struct gp_body *b);
/* True while a step or an evaluation is under way (for the step deadline). */
bool gp_body_in_step(const struct gp_body *b);
uint64_t gp_body_steps(const struct gp_body *b); /* committed */

#endif
