/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of plans and codecs in host memory, on its way into a checkpoint
 * (checkpoint.h), and back out of one. Tensors of the state file:
 *
 *   param.NAME          value of a parameter or running statistic, PyTorch's layout
 *   optimizer.K.NAME    array K of what the optimizer remembers of it (device.h: optim_states); where that lies encoded,
 *                       its bytes (optim_code_bytes)
 *   codec.NAME          bytes: what a codec remembers (codec.h: gp_codec_state_save)
 *
 * The number of updates is not there: it is the checkpoint's step.
 * Threads: as for the plan and the codec. Test: tests/unit/test_snapshot.c
 */
#ifndef GP_SNAPSHOT_H
#define GP_SNAPSHOT_H

#include "common/codec/codec.h"
#include "common/graph/device.h"
#include "common/store/safetensors.h"
#include "common/graph/weights.h"

/* Zeroed to begin with. Owns the items' names and data. */
struct gp_snapshot {
	struct gp_st_item *item;
	int count, room;
};

/* Adds all parameters and optimizer state. After a failure only gp_snapshot_deinit is left to do. */
enum gp_status gp_snapshot_add_plan(struct gp_snapshot *s, struct gp_plan *plan, struct gp_err *err);
/* `name`: "act_up". */
enum gp_status gp_snapshot_add_codec(struct gp_snapshot *s, const char *name, const struct gp_codec *c,
				     struct gp_err *err);
void gp_snapshot_deinit(struct gp_snapshot *s);
/* Most bytes that a snapshot of a plan for this graph takes. `state`: spec.coded[GP_STRUCT_STATE] of the plan, or NULL. */
uint64_t gp_snapshot_plan_bytes(const struct gp_graph *g, const struct gp_codec_spec *state);

/*
 * Into a plan of the same graph and optimizer, `steps` updates old. GP_INVALID names a tensor that is missing or has another
 * shape; then nothing has changed.
 */
enum gp_status gp_snapshot_load_plan(const struct gp_st_file *f, uint64_t steps, struct gp_plan *plan,
				     struct gp_err *err);
enum gp_status gp_snapshot_load_codec(const struct gp_st_file *f, const char *name, struct gp_codec *c,
				      struct gp_err *err);
/*
 * Loads what gp_snapshot_add_plan took of a plan after `steps` updates into a plan of a graph with the same parameters and
 * optimizer. Where a matrix has fewer rows or columns there, the first ones are kept; of state that lies encoded, these are
 * decoded and encoded anew.
 */
enum gp_status gp_snapshot_move_plan(const struct gp_snapshot *s, uint64_t steps, struct gp_plan *plan,
				     struct gp_err *err);
/* The plan as plan_new made it, or with the values of `init` where that is not NULL. */
enum gp_status gp_snapshot_begin_plan(struct gp_plan *plan, const struct gp_weights *init, struct gp_err *err);

#endif
