/* SPDX-License-Identifier: Apache-2.0
 *
 * What codecs make of the tensors at one cut: payload, seconds to encode and to decode, error; measured here, on one
 * thread, with captured activations and gradients (capture.h). A gradient's codec gets its activation's, as in a
 * training. Per element, so that chunks of other sizes and other cuts beside this one can be predicted
 * (plan_predict.h).
 *
 * Threads: the caller's. Test: tests/unit/test_plan_measure.c
 */
#ifndef GP_PLAN_CODECS_H
#define GP_PLAN_CODECS_H

#include "client/train/capture.h"
#include "common/codec/codec.h"

enum gp_coded { GP_CODED_ACT, GP_CODED_GRAD, GP_CODED };

/* One codec on all activations that pass one cut, or on all their gradients, of one chunk. */
struct gp_plan_coding {
	bool fits;
	char why[GP_ERR_TEXT]; /* it does not */
	double elements;       /* 0: nothing of this kind passes there */
	double payload_bytes, encode_s, decode_s;
	double rel_err; /* the largest of its tensors, in one pass: the L2 norm of the error by that of the tensor */
};

/*
 * `first`: the tensors that pass the first cut of the capture, else those of the second. Integers cross as they are
 * and are not looked at. A codec that does not fit is no failure: fits is false.
 */
enum gp_status gp_plan_codecs_measure(const struct gp_capture *capture, bool first,
				      const struct gp_codec_spec *const spec[GP_CODED], double seconds,
				      struct gp_plan_coding out[GP_CODED], struct gp_err *err);

#endif
