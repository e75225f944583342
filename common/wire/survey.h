/* SPDX-License-Identifier: Apache-2.0
 *
 * A survey: what every rung of a ladder makes of one tensor, in bytes and error. It is made on the host by the end
 * that encodes the tensor, beside the encoding, and changes nothing of the training. PROTOCOL.md section 5.3.
 *
 * Threads: one at a time for a survey. Allocates while it runs, and frees that again. Test:
 * tests/unit/test_codec_ladder.c
 */
#ifndef GP_SURVEY_H
#define GP_SURVEY_H

#include "common/codec/codec_device.h"
#include "common/codec/codec_ladder.h"

/* One rung. Sums, so that tensors can be added up; elements that are not finite travel as they are and are left out. */
struct gp_surveyed {
	uint64_t tensor_bytes, payload_bytes;
	double dd, xx, yy, xy; /* squares of error, tensor, what is decoded; products of tensor and what is decoded */
};

struct gp_survey {
	bool done;
	uint64_t step; /* that it was made in */
	struct gp_surveyed rung[GP_LADDER_RUNGS];
};

struct gp_survey_spec {
	const struct gp_codec_ladder *ladder;
	struct gp_shape shape;
	uint64_t seed;
	const struct gp_codec_device *device; /* where the tensor lies; NULL: on the host */
};

/* Most bytes that a survey takes while it runs, and most nanoseconds. GP_INVALID: a rung cannot take this shape. */
enum gp_status gp_survey_estimate(const struct gp_survey_spec *spec, uint64_t *bytes, uint64_t *ns, struct gp_err *err);
/* GP_CANCELED by pass->stop; GP_NOMEM, GP_DEVICE. *out is changed on success alone. */
enum gp_status gp_survey_run(const struct gp_survey_spec *spec, const struct gp_codec_pass *pass, const float *x,
			     struct gp_survey *out, struct gp_err *err);
void gp_surveyed_add(struct gp_surveyed *sum, const struct gp_surveyed *s);
/* The L2 norm of the error by that of the tensor; 0 where it equals the tensor. */
double gp_surveyed_error(const struct gp_surveyed *s);
/* Between the tensor and what is decoded; 1 where they are equal. */
double gp_surveyed_cosine(const struct gp_surveyed *s);

#endif
