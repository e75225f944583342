/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers: a tensor becomes a frame (encode) or a frame becomes a tensor
 * (verify, decode) on a codec worker, with the time of each stage accounted.
 * A *flow* is one tensor of a cut in one direction, chunk after chunk: its
 * codec, its lane and one transfer per slot. All flows of a session: flows.h.
 *
 * A chunk may have its own length (PROTOCOL.md 4.4): fewer positions than its flow's sequence. Its tensor then begins
 * at the same address and has no gaps; of an activation or gradient only the positions that a sample has itself, its
 * *rows*, travel behind their counts, and the receiver fills the others with zeros. A codec that works along the
 * sequence gets the tensor with all of the chunk's positions instead, with zeros at those that a sample does not
 * have.
 *
 * Ownership: a transfer's frame is with the direction's owner, with a task
 * (between start and done) or with the channel (between send and `sent`).
 * Encoding into a frame that the channel still holds waits for `sent`.
 *
 * Threads: loop thread, but for the codec work itself. Steady state allocates
 * nothing. Test: tests/unit/test_transfer.c, tests/e2e
 */
#ifndef GP_TRANSFER_H
#define GP_TRANSFER_H

#include "common/wire/channel.h"
#include "common/wire/direction.h"
#include "common/codec/codec.h"
#include "common/wire/survey.h"
#include "common/base/stop.h"
#include "common/base/worker.h"

/* In front of the rows of a chunk: how many there are, of each sample. */
#define GP_ROW_COUNT_BYTES sizeof(uint32_t)

struct gp_flow;

struct gp_transfer {
	struct gp_flow *flow;
	int slot;
	struct gp_frame frame;
	struct gp_frame_head head; /* of the next encode: the channel may still read frame.head */
	struct gp_task task;
	void *tensor;
	uint64_t draw;
	uint32_t *
		rows; /* of each sample: set before encode (gp_transfer_set_rows), or decoded; NULL: none are left out */
	bool rows_known; /* gp_transfer_tell_rows: of the samples' rows, so many hold no padding */
	uint64_t known_rows;
	const uint32_t *sample; /* (optional) set before encode: numbers in the data set, valid until done */
	bool with_channel, waiting, travelled_raw;
	bool encoded;                /* the frame holds what was encoded last, until the next encode into it */
	struct gp_codec_stats stats; /* the codec's, when this task had ended */
	/* Loop thread; the status is in task.status. After encode the frame is ready to be sent. */
	void (*done)(struct gp_transfer *t);
	void *arg;
};

struct gp_flow {
	enum gp_direction direction;
	int tensor;                         /* which of the body's inputs, or of its outputs */
	uint64_t tensor_bytes, codec_bytes; /* of a chunk's tensor, with all positions; of RAM that the codec takes */
	/* What a chunk's tensor would have without an insertion, where its owner sets it; 0: there is none. */
	uint64_t uncompressed_bytes;
	int64_t positions; /* of its sequence; 0: it has none, or every chunk has all of them */
	int64_t samples;   /* of a chunk */
	bool leaves_out; /* of rows: only those that a sample has travel, or, `along`, all with zeros for the others */
	bool along;      /* the codec works along the sequence */
	int64_t width;   /* elements of a position */
	int64_t row_positions; /* as in the spec */
	struct gp_type type;   /* of a chunk, with all positions */
	float *packed;         /* those rows of one tensor, for the codec that encodes */
	const struct gp_codec_device *device;
	struct gp_codec *codec; /* NULL: this tensor has no such flow */
	struct gp_codec_spec spec;
	const struct gp_codec_ladder *ladder; /* of which `spec` is a rung; NULL: it stays */
	uint32_t survey_every;                /* where this end encodes: steps between two surveys; 0: none */
	uint64_t seed;                        /* the codec's */
	struct gp_survey survey;              /* the newest; between two tasks */
	size_t frame_bytes;                   /* that each slot has room for: `cap` of the most that a rung needs */
	uint16_t codec_id;
	struct gp_lane lane;
	const struct gp_stop *stop;       /* NULL: never */
	uint64_t work_ns;                 /* what a pass may take, as estimated; UINT64_MAX: nothing is known of it */
	atomic_uint_least64_t running_ns; /* since when a pass runs; 0: none does. Of its thread, any may read it */
	int slots;
	struct gp_transfer *slot;
	struct {
		uint64_t frames, tensor_bytes, uncompressed_bytes, payload_bytes;
		uint64_t row_bytes;      /* of tensor_bytes: of rows that hold no padding, as far as this end knows */
	} total;                         /* sent, or received whole */
	struct gp_codec_stats stats;     /* of all transfers whose `done` has run; the codec's own may be ahead */
	struct gp_codec_stats past;      /* of codecs before this one: gp_flow_reopen */
	uint32_t chunks;                 /* of a step */
	uint64_t made;                   /* of a training: the chunk that is encoded next, counted over all steps */
	bool damaged;                    /* a frame was, so those behind it are of no use; of the lane's tasks */
	uint64_t raw_noted;              /* tensors that travelled raw; the log tells of the first */
	struct gp_kind_account *account; /* (optional) gets encode, decode and wait times */
};

/* What the flows of a session share. */
struct gp_flow_options {
	uint64_t seed;
	int slots;
	uint32_t chunks; /* of a step */
	bool undo;       /* gp_flow_undo will be called */
	/* (optional) Whose time the codecs' work takes, which outlives the flows; NULL: each worker counts by itself.
	 * */
	struct gp_share *share;
	/* (optional) The users of that share, on the worker and on `slow`; gp_flows_init has its own. */
	struct gp_lane_user *user, *slow_user;
	bool client; /* this end: a client encodes what goes up and decodes what comes down */
	/* (optional) Where the tensors lie that transfers are given: a device's memory, outlives the flows. Frames then
	 * lie in host memory that the device copies at full speed. NULL: on the host. */
	const struct gp_codec_device *device;
	/* (optional) Threads for codecs whose pass may take longer than GP_FLOW_SLOW_NS (gp_codec_work_for): there
	 * they hold up each other, and nobody else's. NULL: they share those of all others. */
	struct gp_worker *slow;
	/* (optional) Outlives the flows; any thread may set it, for good: what has not begun by then does nothing,
	 * and is done with GP_CANCELED. */
	const struct gp_stop *stop;
};

#define GP_FLOW_SLOW_NS UINT64_C(50000000)

/* What a flow carries. */
struct gp_flow_spec {
	enum gp_direction direction;
	int tensor;
	struct gp_type type;   /* of a chunk, with batch */
	bool has_gradient;     /* an activation whose gradient comes back */
	int64_t positions;     /* of the sequence that it is, where chunks may have fewer; else 0 */
	bool leaves_out;       /* rows, with `positions` */
	int64_t row_positions; /* rows of a sample, whether or not they may be left out; 0: it has none */
	const struct gp_codec_spec *codec;
	const struct gp_codec_ladder *ladder; /* (optional) of which `codec` is a rung: outlives the flow */
	uint32_t survey_every;                /* with a ladder; 0: never */
};

/* Whether its codec codes chunks of fewer positions. */
bool gp_flow_takes_lengths(const struct gp_flow_spec *spec);
/* `activation`: for a gradient, the flow of its activation, which outlives this one; else NULL. `arg` is handed to
 * every transfer. */
enum gp_status gp_flow_init(struct gp_flow *f, const struct gp_flow_spec *spec, const struct gp_flow_options *all,
			    const struct gp_flow *activation, struct gp_worker *worker, void *arg, struct gp_err *err);
/* No task may be pending. Safe on a zeroed struct. */
void gp_flow_deinit(struct gp_flow *f);
/*
 * Between two steps, with no task pending: the flow carries a tensor of a smaller shape, or goes through another rung
 * of its ladder, from here on, with a codec that remembers nothing. Its frames stay where they are, and with the
 * channel if it has some. In two parts, because the codec of a gradient uses its activation's: first the gradient's
 * flow is closed, then the activation's; they are opened again the other way round. After a failure only
 * gp_flow_deinit is left to do. GP_INVALID: a frame would need more than before.
 */
void gp_flow_close(struct gp_flow *f);
enum gp_status gp_flow_reopen(struct gp_flow *f, const struct gp_flow_spec *spec, const struct gp_flow_options *all,
			      const struct gp_flow *activation, struct gp_err *err);
/* Bytes that gp_flow_init will allocate for frames, and for the codec: no less than its state when that is saved. */
enum gp_status gp_flow_estimate(const struct gp_flow_spec *spec, const struct gp_flow_options *all, uint64_t *frames,
				uint64_t *codec, struct gp_err *err);

/* Nanoseconds that a chunk's pass may take at this end: gp_codec_work_for. */
enum gp_status gp_flow_work(const struct gp_flow_spec *spec, const struct gp_flow_options *all, uint64_t *ns,
			    struct gp_err *err);

/* Encodes `tensor` (untouched until done) into the slot's frame; head.step, chunk, session, flags from `head`. */
void gp_transfer_encode(struct gp_transfer *t, const struct gp_frame_head *head, void *tensor, uint64_t draw,
			void (*done)(struct gp_transfer *t));
/* Before gp_transfer_encode with head.length: how many positions each sample has. Does nothing where all of them
 * travel. */
void gp_transfer_set_rows(struct gp_transfer *t, const uint32_t *rows);
/* For the figures, before gp_transfer_encode or gp_transfer_decode of a chunk of which all positions travel: how many of
 * each sample's hold no padding. Does nothing where the tensor has no rows. */
void gp_transfer_tell_rows(struct gp_transfer *t, const uint32_t *rows);
/* Bytes of a chunk's tensor, of the same without an insertion (0: there is none), and most of its payload, with so many
 * positions (0: all), which are possible. */
uint64_t gp_flow_tensor_bytes(const struct gp_flow *f, uint32_t length);
uint64_t gp_flow_uncompressed_bytes(const struct gp_flow *f, uint32_t length);
uint64_t gp_flow_payload_bound(const struct gp_flow *f, uint32_t length);
/* Verifies and decodes the slot's frame into `tensor`. GP_DAMAGED: its checksum is wrong, or that of a frame before
 * it. */
void gp_transfer_decode(struct gp_transfer *t, void *tensor, void (*done)(struct gp_transfer *t));
/*
 * What the other end makes of an encoded frame, by a codec of gp_flow_open_peer and within the call, before the frame is handed
 * to the channel: for measures. `activation`: for a gradient, the flow of its activation at this end, as in gp_flow_init. Not for
 * codecs that a decoder remembers anything of: it would have to decode every frame.
 */
enum gp_status gp_flow_open_peer(const struct gp_flow *f, const struct gp_flow *activation, struct gp_codec **out,
				 struct gp_err *err);
enum gp_status gp_transfer_decode_as_peer(struct gp_transfer *t, struct gp_codec *codec, float *tensor,
					  struct gp_err *err);
/* Hands an encoded frame to the channel. */
void gp_transfer_send(struct gp_transfer *t, struct gp_channel *ch);
/*
 * After a link broke, when no task of a flow that encodes is pending: whether the frames of every chunk of training
 * from `due` on that have been encoded are still in their slots, `first` being the first chunk of the step under way.
 * GP_PROTO: `due` is none that a peer can have come to. gp_flow_send_again then sends them, in their order.
 */
enum gp_status gp_flow_check_due(const struct gp_flow *f, uint64_t due, uint64_t first, struct gp_err *err);
void gp_flow_send_again(struct gp_flow *f, uint64_t due, uint64_t session, struct gp_channel *ch);
/* Nothing of this step or a later one has been encoded. */
void gp_flow_begin_at(struct gp_flow *f, uint64_t step);
/* The channel's `sent` for a frame of a transfer. */
void gp_transfer_sent(struct gp_transfer *t);

/* Puts what the codec remembers back to where it was before `step`, the latest; its frames may then come again. No task
 * may be pending. */
void gp_flow_undo(struct gp_flow *f, uint64_t step);

/* After a frame of the link before was damaged, which no task is pending of any more. */
void gp_flow_forget_damage(struct gp_flow *f);

/* The channel's account is going; what waits for the channel's frames goes on when they come back. */
void gp_flow_lose_account(struct gp_flow *f);
/* Before tearing a session down: forgets encodes that wait for the channel, and the channel's account. */
void gp_flow_cancel(struct gp_flow *f);

static inline struct gp_transfer *gp_transfer_of(struct gp_frame *f)
{
	return f->owner;
}

#endif
