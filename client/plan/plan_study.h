/* SPDX-License-Identifier: Apache-2.0
 *
 * All that `gpclient plan` measures, once, before it predicts: blocks of the model for each size of a chunk, codecs
 * on the tensors of each cut, making batches, and from a server its speed. Then any cut, codec and number of chunks
 * of the study is predicted without measuring again.
 *
 * Life: zeroed, then cuts, codecs, chunks and the world are filled in; gp_plan_study_measure; gp_plan_study_serve where there is
 * a server; then gp_plan_study_predict at will; gp_plan_study_deinit.
 *
 * Threads: the main thread. Test: tests/unit/test_plan_measure.c, tests/e2e/plan.sh
 */
#ifndef GP_PLAN_STUDY_H
#define GP_PLAN_STUDY_H

#include "client/plan/plan_predict.h"
#include "client/plan/plan_server.h"

/* The codecs of the four directions. */
struct gp_plan_codec_set {
	char text[GP_CODEC_SPEC_MAX]; /* as a user would write it */
	bool same;                    /* in all directions */
	struct gp_codec_spec spec[GP_DIRECTIONS];
};

enum { GP_PLAN_CODECS_MAX = 64, GP_PLAN_CHUNKS_MAX = 16 };

struct gp_plan_study {
	struct gp_plan_world world;       /* filled in by the caller, but for server and load_s */
	const struct gp_weights *weights; /* NULL: drawn from the session's seed */
	enum gp_loss_kind loss;
	double codec_seconds, block_seconds; /* to measure each for */
	uint64_t memory_bytes;               /* that measuring may take; 0: what is there */
	int window;                          /* 0: as train chooses it */
	int batch;
	int cuts, codecs, chunkings;
	struct gp_cut *cut;
	struct gp_plan_codec_set codec[GP_PLAN_CODECS_MAX];
	int chunks[GP_PLAN_CHUNKS_MAX];
	/* measured */
	struct gp_plan_blocks blocks[GP_PLAN_CHUNKS_MAX];
	struct gp_plan_coding *coding; /* [boundary][codec][first or second cut][GP_CODED] */
	bool served;
	struct gp_plan_server server;
};

/* One of the choices that a study has. */
struct gp_plan_pick {
	int cut, codec, chunking;
};

/* A codec of all directions. GP_USAGE: it is none, or one too many. */
enum gp_status gp_plan_study_add_codec(struct gp_plan_study *s, const char *text, struct gp_err *err);
/* The batch has study->batch samples. `tell` (optional) hears what is measured next. */
enum gp_status gp_plan_study_measure(struct gp_plan_study *s, const struct gp_batch *batch,
				     void (*tell)(void *arg, const char *what, int done, int of), void *arg,
				     struct gp_err *err);
/* Safe on a zeroed struct. Frees the cuts, too. */
void gp_plan_study_deinit(struct gp_plan_study *s);
/* From what a server took for `pick`: world.server, how much faster than this machine it is. */
void gp_plan_study_serve(struct gp_plan_study *s, const struct gp_plan_server *server, const struct gp_plan_pick *pick);
/* GP_INVALID: a codec does not fit. `cross`: as in struct gp_plan_choice. */
enum gp_status gp_plan_study_predict(const struct gp_plan_study *s, const struct gp_plan_pick *pick,
				     const struct gp_crossing *cross, struct gp_prediction *out, struct gp_err *err);
enum gp_status gp_plan_study_memory(const struct gp_plan_study *s, const struct gp_plan_pick *pick,
				    struct gp_prediction *p, struct gp_err *err);

#endif
