/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts a training step for one way to split it: from what was measured (blocks, codecs, link, server) and what
 * is chosen (cut, chunks, window) to time per batch, what bounds it, bytes and memory. No measuring here: `gpclient
 * plan` and `gpclient bench` fill in the parts.
 *
 * Threads: any; allocates, and is pure otherwise. Test: tests/unit/test_plan_measure.c
 */
#ifndef GP_PLAN_PREDICT_H
#define GP_PLAN_PREDICT_H

#include "client/plan/plan_blocks.h"
#include "client/plan/plan_codecs.h"
#include "client/plan/plan_link.h"
#include "common/wire/session_spec.h"

/* How much faster the server does the same work than this machine; 1: as fast. */
struct gp_plan_speed {
	double forward, backward, update, codec;
};

/* What stays the same from one prediction to the next. */
struct gp_plan_world {
	const struct gp_graph *graph;
	struct gp_device *device; /* of this side: says what plans take of memory; NULL: memory is not predicted */
	struct gp_session_spec session; /* optimizer, precision, seed; the rest is of the choice */
	struct gp_plan_speed server;
	struct gp_plan_link link;
	double load_s; /* one thread makes a batch */
	int threads, server_threads;
	double processors, server_processors; /* 0: as many as wanted */
	int server_codec_threads;
	bool same_machine;
};

struct gp_crossing;

struct gp_plan_choice {
	struct gp_cut cut;
	int chunks, chunk_samples;
	int window;                                         /* 0: as `train --window 0` chooses it */
	const struct gp_plan_blocks *blocks;                /* of such a chunk */
	struct gp_codec_spec codec[GP_DIRECTIONS];          /* a copy of those that `coding` is of */
	const struct gp_plan_coding *coding[GP_DIRECTIONS]; /* on tensors of this cut */
	const struct gp_crossing
		*cross; /* (optional) what gp_plan_cross has found for this cut; NULL: it is found anew */
};

struct gp_prediction {
	struct gp_plan_time time;
	int window;
	double payload_bytes[GP_DIRECTIONS], tensor_bytes[GP_DIRECTIONS]; /* of a batch */
	double wire_up_bytes, wire_down_bytes;
	uint64_t client_memory_bytes, server_memory_bytes; /* plans, frames and codecs; 0: not predicted */
	double rel_err;                                    /* largest of the codecs'; 0: nothing is lost */
	struct gp_plan_schedule schedule;                  /* what the time was found from */
};

/* What crosses this cut, of one sample: for several predictions of one cut. The caller frees it (gp_crossing_free). */
enum gp_status gp_plan_cross(const struct gp_plan_world *w, const struct gp_cut *cut, struct gp_crossing **out,
			     struct gp_err *err);
/* GP_INVALID: the model cannot be cut there, or a codec does not fit a tensor that crosses. */
enum gp_status gp_plan_predict(const struct gp_plan_world *w, const struct gp_plan_choice *c, struct gp_prediction *out,
			       struct gp_err *err);
/* The memory of a prediction, which takes longer to find than its time. */
enum gp_status gp_plan_predict_memory(const struct gp_plan_world *w, const struct gp_plan_choice *c,
				      struct gp_prediction *p, struct gp_err *err);

#endif
