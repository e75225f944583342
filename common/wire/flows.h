/* SPDX-License-Identifier: Apache-2.0
 *
 * All flows of a session (transfer.h): which tensors cross the two cuts, in
 * which directions, and with which codec. Both ends find them from the body's
 * graph and two masks of OPEN, so that they always agree.
 *
 *   ACT_UP     every input of the body         ACT_DOWN  every output of the body
 *   GRAD_DOWN  inputs whose gradient has a use GRAD_UP   outputs whose gradient has a use
 *
 * A tensor in which parameters had a part is an activation and goes through its
 * direction's codec; any other (token ids, a mask) is data and travels raw.
 *
 * Threads: as transfer.h. Ownership: gp_flows owns its flows.
 * PROTOCOL.md section 5.2. Test: tests/unit/test_flows.c
 */
#ifndef GP_FLOWS_H
#define GP_FLOWS_H

#include "common/graph/graph.h"
#include "common/wire/session_spec.h"
#include "common/wire/transfer.h"

/* What there is, before anything is allocated. */
struct gp_flow_list {
	int count;
	struct gp_flow_spec flow[GP_DIRECTIONS * GP_GRAPH_MAX_PORTS]; /* by direction, then tensor */
	struct gp_codec_spec raw;
	uint64_t grad_inputs, grad_outputs; /* of the body: those with GRAD_DOWN, with GRAD_UP */
	int64_t sequence;                   /* positions of the body's sequences (gp_graph_sequence); 0: it has none */
	int64_t positions;                  /* the same, where a chunk may have fewer; 0: it may not */
};

/* GP_INVALID: masks that name inputs which the body has not; lengths where the body has no sequences, or a codec that
 * cannot code a part of a tensor. The list borrows the codecs of `spec`. */
enum gp_status gp_flow_list_find(const struct gp_graph *body, const struct gp_session_spec *spec,
				 struct gp_flow_list *out, struct gp_err *err);

struct gp_flows {
	/* By direction and tensor. One that does not exist has no codec; `used` counts those that do. */
	struct gp_flow *flow[GP_DIRECTIONS];
	int tensors[GP_DIRECTIONS], used[GP_DIRECTIONS];
	int64_t positions;                   /* as in the list */
	struct gp_lane_user user, slow_user; /* of all lanes: the number of tensors gives no session more turns */
};

/* `list` may go afterwards. */
enum gp_status gp_flows_init(struct gp_flows *f, const struct gp_flow_list *list, const struct gp_flow_options *all,
			     struct gp_worker *worker, void *arg, struct gp_err *err);
/* No task may be pending. Safe on a zeroed struct. */
void gp_flows_deinit(struct gp_flows *f);
/* As gp_flow_reopen, of every flow whose tensor has another shape in this list, or another codec; the others go on.
 * The tensors are those of gp_flows_init, none is larger, and so are the options. After a failure only
 * gp_flows_deinit is left to do. */
enum gp_status gp_flows_reshape(struct gp_flows *f, const struct gp_flow_list *list, const struct gp_flow_options *all,
				struct gp_err *err);
/* Bytes that gp_flows_init will allocate for frames, and for codecs. */
enum gp_status gp_flows_estimate(const struct gp_flow_list *list, const struct gp_flow_options *all, uint64_t *frames,
				 uint64_t *codecs, struct gp_err *err);

/* Calls fn for every flow that exists, by direction and then tensor. */
void gp_flows_each(struct gp_flows *f, void (*fn)(struct gp_flow *flow, void *arg), void *arg);
/* Tasks under way. */
int gp_flows_pending(const struct gp_flows *f);
/* Time that codecs took, of all tensors. */
uint64_t gp_flows_codec_ns(const struct gp_flows *f);
/*
 * Seconds, by `now_ns` and not before `since_ns`, of a codec's pass under way that has taken longer than `limit_s` and
 * `times` what was estimated, and whose it is; 0: there is none.
 */
double gp_flows_overrun_s(const struct gp_flows *f, double times, double limit_s, uint64_t since_ns, uint64_t now_ns,
			  const struct gp_flow **out);
/* gp_flow_cancel, gp_flow_lose_account, gp_flow_undo, gp_flow_begin_at, gp_flow_forget_damage of each. */
void gp_flows_cancel(struct gp_flows *f);
void gp_flows_lose_account(struct gp_flows *f);
void gp_flows_undo(struct gp_flows *f, uint64_t step);
void gp_flows_begin_at(struct gp_flows *f, uint64_t step);
void gp_flows_forget_damage(struct gp_flows *f);
/* gp_flow_check_due and gp_flow_send_again for every tensor of a direction, `due` by tensor. */
enum gp_status gp_flows_check_due(const struct gp_flows *f, enum gp_direction d, const uint64_t *due, uint64_t first,
				  struct gp_err *err);
void gp_flows_send_again(struct gp_flows *f, enum gp_direction d, const uint64_t *due, uint64_t session,
			 struct gp_channel *ch);
/* Times of stages are counted there from now on. `client`: this end. */
void gp_flows_account(struct gp_flows *f, struct gp_account *account, bool client);
/* XXH3-64 over all flows, zero where there is none, of what both ends' codecs must remember alike: PROTOCOL.md section
 * 5.6. Between two passes. */
uint64_t gp_flows_state_hash(const struct gp_flows *f);
/*
 * Whether chunks of the next step may go up before COMMIT (PROTOCOL.md section 5.3): where no gradient comes down, so
 * that nothing before the cut changes, and no codec of ACT_UP remembers anything at this end. What a codec remembers
 * can be taken back by one step, and a checkpoint is to have it as it is between two. Nor where codecs may change.
 */
bool gp_flows_ahead(const struct gp_flows *f, const struct gp_session_spec *spec);

/* What rung `rung` made of all tensors of a direction in this step, at the end that encodes them. False: nothing was
 * surveyed in it. No task of that chunk may be pending. */
bool gp_flows_surveyed(const struct gp_flows *f, enum gp_direction d, uint64_t step, int rung, struct gp_surveyed *out);

/*
 * The transfer that a frame from the peer belongs to: its direction, tensor, codec, positions and length are checked
 * here, at both ends; `slot`, whether the chunk has so many positions, and whether the frame is due, is the caller's
 * affair. GP_PROTO.
 */
enum gp_status gp_flows_take(struct gp_flows *f, const struct gp_frame_head *head, int slot, struct gp_transfer **out,
			     struct gp_err *err);

/* "act_up.0": a flow in checkpoints. Returns text. */
const char *gp_flow_name(const struct gp_flow *f, char text[24]);

#endif
