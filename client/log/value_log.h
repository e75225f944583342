/* SPDX-License-Identifier: Apache-2.0
 *
 * What values a training has, for the log (--log-json, --log-histograms N): of the first step of a process and of
 * every N-th step histograms of activations and gradients at the cuts, of parameters of this side, their gradients
 * and what the optimizer remembers of them, each from a sample of some thousand values; and how much a codec loses of
 * what this side sends. It reads, and changes nothing: a run with it ends in the same parameters.
 *
 * Only the tensors of a step's first chunk are looked at. Parameters of more than GP_VALUE_LOG_PARAM elements, and
 * tensors that do not lie in the host's memory, are passed over.
 *
 * Threads: any; a lock is inside. Test: tests/unit/test_value_log.c
 */
#ifndef GP_VALUE_LOG_H
#define GP_VALUE_LOG_H

#include <jansson.h>

#include "common/graph/device.h"
#include "common/wire/transfer.h"

#define GP_VALUE_LOG_SAMPLE 4096 /* values of a histogram, about */
#define GP_VALUE_LOG_BINS   64
#define GP_VALUE_LOG_PARAM  (4u << 20)

struct gp_value_log;

enum gp_status gp_value_log_new(uint64_t every, struct gp_value_log **out, struct gp_err *err);
void gp_value_log_free(struct gp_value_log *v);
/* Whether something is to be noted of this step, as it is in frames: the first one is 0. NULL: no. */
bool gp_value_log_wants(struct gp_value_log *v, uint64_t step);
/* Some values of a step that is wanted: every `stride`-th of them. `what`, `of`: as in client/JSON.md. The step behind
 * it may have begun; what is of older ones is dropped. */
void gp_value_log_add(struct gp_value_log *v, uint64_t step, const char *what, const char *of, const float *x,
		      uint64_t count, uint64_t stride);
/* A tensor of a flow that is about to be encoded, or was decoded: `length` positions, 0: all of them. */
void gp_value_log_add_tensor(struct gp_value_log *v, uint64_t step, const struct gp_flow *flow, const float *x,
			     uint32_t length);
/* The same, before it is encoded: what the flow's codec loses of it. A fresh instance, which remembers nothing,
 * codes it. */
void gp_value_log_add_error(struct gp_value_log *v, uint64_t step, const struct gp_flow *flow, const float *x,
			    uint32_t length);
/* All parameters of a plan of this side, before its update; `part`: head, tail, model. */
void gp_value_log_add_plan(struct gp_value_log *v, uint64_t step, struct gp_plan *plan, const char *part);

/* So many steps are done: what was noted of the last one as pairs of an event's name and its keys, which the
 * caller writes one after another. Each call gives one; NULL behind the last. */
json_t *gp_value_log_take(struct gp_value_log *v, uint64_t steps, const char **event);

/* The keys of an event "histogram" but "step", "what" and "of". Reorders nothing. */
json_t *gp_value_log_histogram(const float *x, int count);

#endif
