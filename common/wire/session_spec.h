/* SPDX-License-Identifier: Apache-2.0
 *
 * What a session computes, beside the graph and the weights: the numbers and
 * codecs that the command line gives, OPEN carries (PROTOCOL.md section 5.2), a
 * body is made from and checkpoints are compared by. One struct from end to
 * end; to add a setting, add it here, to gpsplit.proto and to the three
 * functions below.
 *
 * Threads: any; pure functions. Test: tests/unit/test_session_spec.c; fuzz:
 * tests/fuzz/fuzz_server_session.c
 */
#ifndef GP_SESSION_SPEC_H
#define GP_SESSION_SPEC_H

#include "common/codec/codec_ladder.h"
#include "common/graph/decay.h"
#include "common/graph/device.h"
#include "common/graph/optim.h"
#include "common/store/manifest.h"
#include "common/wire/direction.h"
#include "proto/gpsplit.pb-c.h"

struct gp_session_spec {
	struct gp_optim optim;
	enum gp_precision precision; /* of the body; of everything in a local run */
	bool choose_precision; /* the fastest is tried first, and `precision` set to it: common/graph/precision_trial.h */
	uint64_t seed;
	int chunk_samples, chunks; /* samples per chunk, chunks per step */
	int window;                /* chunks in flight */
	bool eval_only;            /* forward alone: no gradients, no updates */
	bool calibrates;           /* running statistics will be taken anew in an evaluation */
	bool lengths;   /* chunks may have their own sequence length, and rows are left out: PROTOCOL.md 4.4 */
	bool recompute; /* blocks are computed a second time before their backward: struct gp_plan_spec */
	struct gp_codec_spec maps; /* by which they lie encoded: struct gp_plan_spec; without stages: they do not */
	struct gp_codec_spec coded[GP_STRUCTS]; /* what passes through which codec: struct gp_plan_spec */
	bool no_master;                         /* of coded weights */
	bool undo; /* a step may be taken back. Each end decides this for itself: it is not in OPEN */
	struct gp_codec_spec codec[GP_DIRECTIONS];
	/* Between what a direction may change, and which it begins with is `codec`; without rungs: that one stays. */
	struct gp_codec_ladder ladder[GP_DIRECTIONS];
	uint32_t survey_every; /* steps between two that all rungs are tried in; 0: never */
	/* What of the body's inputs is known only from the rest of the model (flows.h). Bit i: input i is data, not an
	 * activation; nothing before input i is trained, so that its gradient has no use. */
	uint64_t data_inputs, frozen_inputs;
	struct gp_decays decays; /* the client's are of the whole model: each has one of its nodes in the body */
};

static inline bool gp_session_has_ladder(const struct gp_session_spec *s)
{
	bool has = false;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		has |= s->ladder[d].rungs > 0;
	return has;
}

/* For struct gp_plan_spec; NULL: maps are kept as they are. */
static inline const struct gp_codec_spec *gp_session_maps(const struct gp_session_spec *s)
{
	return s->maps.stages > 0 && !s->eval_only ? &s->maps : NULL;
}

/* The same; NULL: such things pass through no codec. */
static inline const struct gp_codec_spec *gp_session_codec(const struct gp_session_spec *s, enum gp_structure which)
{
	return s->coded[which].stages > 0 && !s->eval_only ? &s->coded[which] : NULL;
}
/* All of them into the spec of a plan. */
void gp_session_coded(const struct gp_session_spec *s, struct gp_plan_spec *out);
/* For READY: a bit for each that is asked for. */
uint32_t gp_session_coded_bits(const struct gp_session_spec *s);
/* As --compress and OPEN name it: "weight-grads". */
extern const char *const gp_structure_name[GP_STRUCTS];

/* Samples of a step. */
static inline int64_t gp_session_batch(const struct gp_session_spec *s)
{
	return (int64_t)s->chunk_samples * s->chunks;
}

/* What of OPEN lies in messages of its own. */
struct gp_session_parts {
	Gpsplit__Optimizer optimizer;
	Gpsplit__Decay decay[GP_DECAYS_MAX], *decays[GP_DECAYS_MAX];
};

/* Fills the fields of OPEN that the spec has. It borrows from `s` and from `parts`, which is filled, too. */
void gp_session_spec_write(const struct gp_session_spec *s, Gpsplit__Open *open, struct gp_session_parts *parts);
/* Reads and checks them, but for what decays say of the graph (gp_decays_check); `undo` is false. GP_INVALID,
 * GP_UNSUPPORTED or GP_PROTO say what of it cannot be, and *out is of no use then. */
enum gp_status gp_session_spec_read(const Gpsplit__Open *open, int64_t window_max, struct gp_session_spec *out,
				    struct gp_err *err);

/* What must be the same for a run to go on with its checkpoints, as names and texts. Window, undo, recompute and
 * eval_only decide only where, how fast and in how much memory, and calibrates only what may be asked for: they are not in it. */
struct gp_session_words {
	struct gp_pairs pairs;
	char text[32][GP_CODEC_SPEC_MAX];
};
enum gp_status gp_session_spec_describe(const struct gp_session_spec *s, const struct gp_graph *body,
					struct gp_session_words *out, struct gp_err *err);

#endif
