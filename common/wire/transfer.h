/* SPDX-License-Identifier: Apache-2.0
 *
 * Transfers: a tensor becomes a frame (encode) or a frame becomes a tensor
 * (verify, decode) on a codec worker, with the time of each stage accounted.
 * A *direction* is one of the four tensor flows of a session (act_up,
 * act_down, grad_up, grad_down): its codec, its lane and one transfer per slot.
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
#include "common/codec/codec.h"
#include "common/base/worker.h"

struct gp_direction;

struct gp_transfer {
	struct gp_direction *direction;
	int slot;
	struct gp_frame frame;
	struct gp_frame_head head; /* of the next encode: the channel may still read frame.head */
	struct gp_task task;
	float *tensor;
	uint64_t draw;
	const uint32_t *sample; /* (optional) set before encode: numbers in the data set, valid until done */
	bool with_channel, waiting, travelled_raw;
	/* Loop thread; the status is in task.status. After encode the frame is ready to be sent. */
	void (*done)(struct gp_transfer *t);
	void *arg;
};

struct gp_direction {
	enum gp_frame_type type;
	uint64_t tensor_bytes, codec_bytes; /* of a tensor; of what the codec takes */
	const struct gp_codec_device *device;
	struct gp_codec *codec;
	uint16_t codec_id;
	struct gp_lane lane;
	int slots;
	struct gp_transfer *slot;
	uint64_t raw_noted;              /* tensors that travelled raw; the log tells of the first */
	struct gp_kind_account *account; /* (optional) gets encode, decode and wait times */
};

/* What the directions of a session share. */
struct gp_directions {
	uint64_t seed;
	int slots;
	uint32_t chunks; /* of a step */
	bool train;      /* gradients come back */
	bool undo;       /* gp_direction_undo will be called */
	bool client;     /* this end: a client encodes what goes up and decodes what comes down */
	/* (optional) Where the tensors lie that transfers are given: a device, outlives the directions. Frames then
	 * lie in host memory that the device copies at full speed. NULL: on the host. */
	const struct gp_codec_device *device;
};

/* `shape`: a chunk with batch. `activation`: for a gradient, the direction of its activation at the same cut, which
 * outlives this one; else NULL. `arg` is handed to every transfer. */
enum gp_status gp_direction_init(struct gp_direction *d, enum gp_frame_type type, const struct gp_codec_spec *spec,
				 const struct gp_shape *shape, const struct gp_directions *all,
				 const struct gp_direction *activation, struct gp_worker *worker, void *arg,
				 struct gp_err *err);
/* No task may be pending. Safe on a zeroed struct. */
void gp_direction_deinit(struct gp_direction *d);
/* Bytes that gp_direction_init will allocate for frames and for the codec. */
enum gp_status gp_direction_estimate(enum gp_frame_type type, const struct gp_codec_spec *spec,
				     const struct gp_shape *shape, const struct gp_directions *all, uint64_t *bytes,
				     struct gp_err *err);

/* The part of those bytes that the codec takes; no less than its state when that is saved. */
enum gp_status gp_direction_codec_bytes(enum gp_frame_type type, const struct gp_codec_spec *spec,
					const struct gp_shape *shape, const struct gp_directions *all, uint64_t *bytes,
					struct gp_err *err);

/* Encodes `tensor` (untouched until done) into the slot's frame; head.step, chunk, session, flags from `head`. */
void gp_transfer_encode(struct gp_transfer *t, const struct gp_frame_head *head, float *tensor, uint64_t draw,
			void (*done)(struct gp_transfer *t));
/* Verifies and decodes the slot's frame into `tensor`. */
void gp_transfer_decode(struct gp_transfer *t, float *tensor, void (*done)(struct gp_transfer *t));
/* Hands an encoded frame to the channel. */
void gp_transfer_send(struct gp_transfer *t, struct gp_channel *ch);
/* The channel's `sent` for a frame of a transfer. */
void gp_transfer_sent(struct gp_transfer *t);

/* Puts what the codec remembers back to where it was before `step`, the latest one, whose frames may then be sent
 * again. No task may be pending. */
void gp_direction_undo(struct gp_direction *d, uint64_t step);

/* Before tearing a session down: forgets encodes that wait for the channel, and the channel's account. */
void gp_direction_cancel(struct gp_direction *d);

/* XXH3-64 over the four directions of a session (act_up, act_down, grad_up, grad_down; zeroed where there is none), of
 * what both ends' codecs must remember alike: PROTOCOL.md section 5.6. Between two passes. */
uint64_t gp_directions_state_hash(const struct gp_direction d[4]);

static inline struct gp_transfer *gp_transfer_of(struct gp_frame *f)
{
	return f->owner;
}

#endif
