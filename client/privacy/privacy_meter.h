/* SPDX-License-Identifier: Apache-2.0
 *
 * The privacy meter of --privacy-every K: behind every K-th step the distance correlation
 * (distance_correlation.h) between the inputs of its batch and what crossed the link in
 * each direction, as the receiver has it decoded; and between their labels and the
 * same. It looks at what is there anyway: parameters stay the same, bit for bit.
 *
 * An engine puts the tensors of a step that is due into it, chunk by chunk, and asks for
 * the figures when the step is done. Where several tensors cross in a direction, a
 * sample is all of their numbers together. Integers that cross (lengths, masks) are left out.
 *
 * Memory: the tensors of all directions for the samples that are looked at, at most
 * GP_DISTANCE_SAMPLES of a batch.
 *
 * Threads: one at a time for the tensors of a step; while gp_privacy_measure works on one step, on whatever
 * thread, those of the next may be put. Test: tests/unit/test_privacy_meter.c, tests/e2e/privacy.sh
 */
#ifndef GP_PRIVACY_METER_H
#define GP_PRIVACY_METER_H

#include <jansson.h>

#include "client/data/dataset.h"
#include "client/privacy/distance_correlation.h"
#include "common/wire/direction.h"

struct gp_privacy_meter;

/* What one measured step has come to. */
struct gp_privacy_report {
	uint64_t step; /* the number of the step, the first is 1 */
	int samples;
	bool labels; /* samples have one label each */
	double seconds;
	struct gp_privacy_reading {
		bool there; /* something crosses in this direction */
		struct gp_distance_correlation inputs, labels;
	} of[GP_DIRECTIONS];
};

/* Behind every step whose number is a multiple of `every`, 1 or more. */
enum gp_status gp_privacy_meter_new(uint64_t every, struct gp_privacy_meter **out, struct gp_err *err);
void gp_privacy_meter_free(struct gp_privacy_meter *m);
/* Before anything is put: samples of a batch, and the most numbers of one sample in any direction. The first call
 * counts: where ranks have decayed there would be memory for more samples, but what is kept already, and may be
 * measured on another thread just now, has room for so many. */
void gp_privacy_set_size(struct gp_privacy_meter *m, int64_t batch, uint64_t each);
/* Whether the step with `done` steps before it is measured. False for NULL. */
bool gp_privacy_due(const struct gp_privacy_meter *m, uint64_t done);

/* A tensor of some samples of a step. */
struct gp_privacy_tensor {
	uint64_t done; /* steps before it */
	enum gp_direction direction;
	int tensor;
	int first, samples; /* of the batch */
	size_t each, room;  /* numbers of a sample: in `x`; at most, where its chunk is a shorter one */
	const float *x;
};
/* Copies what it needs. A step that begins anew is put anew. */
enum gp_status gp_privacy_put(struct gp_privacy_meter *m, const struct gp_privacy_tensor *t, struct gp_err *err);
/* Memory for `count` floats, the same each time; NULL: there is none. */
float *gp_privacy_scratch(struct gp_privacy_meter *m, size_t count);
/* Measures the step with `done` steps before it, from its batch. */
enum gp_status gp_privacy_measure(struct gp_privacy_meter *m, uint64_t done, const struct gp_batch *batch,
				  struct gp_privacy_report *out, struct gp_err *err);

/* The event `privacy` of one direction; NULL where nothing crosses that way. */
json_t *gp_privacy_event_json(const struct gp_privacy_report *r, enum gp_direction d);
/* The object `privacy` of train --json: of the last of `measured` reports. null for none. */
json_t *gp_privacy_json(const struct gp_privacy_report *last, uint64_t measured, double seconds);
/* "act_up 0.93, act_down 0.41" of inputs, or of labels. Returns text. */
#define GP_PRIVACY_TEXT 128
const char *gp_privacy_text(const struct gp_privacy_report *r, bool labels, char text[GP_PRIVACY_TEXT]);

#endif
