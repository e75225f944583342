/* SPDX-License-Identifier: Apache-2.0
 *
 * What a curious server gets to see of the attacked model's samples: this runs the
 * head on batches of a loader, as a training step does (batch norms by the chunk's
 * statistics), and passes what would go up the link through its codec and back. In
 * this process alone; nothing is trained.
 *
 * Threads: one at a time for a struct. Test: tests/unit/test_attack.c
 */
#ifndef GP_ATTACK_SOURCE_H
#define GP_ATTACK_SOURCE_H

#include "client/engine/batch_map.h"
#include "client/engine/crossing.h"
#include "common/graph/weights.h"

/* All of it outlives what is made of it. */
struct gp_attack_victim {
	const struct gp_graph *graph; /* the whole model, insertions included */
	struct gp_cut cut;
	const struct gp_weights *weights;  /* NULL: drawn from seed */
	const struct gp_codec_spec *codec; /* of activations that go up */
	const char *device;
	int threads;
	int batch; /* samples of a chunk: of the batches of every loader */
	uint64_t seed;
};

/* An activation that goes up. */
struct gp_attack_tensor {
	int input;             /* of the body */
	struct gp_shape shape; /* of one sample */
	size_t each;           /* its elements */
	float *x;              /* of a chunk, as the server has it decoded */
	struct gp_codec *codec;
};

struct gp_attack_source {
	const struct gp_attack_victim *of;
	struct gp_session_spec session;
	struct gp_crossing *cross;
	struct gp_device *device;
	struct gp_plan *plan; /* of the head */
	struct gp_attack_tensor tensor[GP_GRAPH_MAX_PORTS];
	int tensors;
	uint8_t *payload;
	size_t room;
	uint64_t passes, payload_bytes; /* of the last chunk, all tensors */
};

/* On failure `s` needs no close. */
enum gp_status gp_attack_source_open(struct gp_attack_source *s, const struct gp_attack_victim *of, struct gp_err *err);
void gp_attack_source_close(struct gp_attack_source *s);
/* The next batch of a loader, which the caller gives back: the tensors hold what the server has of it. `eval`: codecs neither
 * read nor change what they remember. */
enum gp_status gp_attack_source_next(struct gp_attack_source *s, struct gp_loader *loader, bool eval,
				     struct gp_batch **out, struct gp_err *err);

#endif
