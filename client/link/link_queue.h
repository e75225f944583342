/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes on their way through the emulated link: a ring of them, in order, each
 * piece with the time at which it arrives at the far end. Not here: how that
 * time is found (link_pace.h).
 *
 * Threads: the caller's. Test: tests/unit/test_link_queue.c
 */
#ifndef GP_LINK_QUEUE_H
#define GP_LINK_QUEUE_H

#include <uv.h>

#include "common/base/mem.h"

#define GP_LINK_PIECES                                                                                                 \
	4096 /* stamps kept; when they run out, bytes join the last piece and come later, never earlier */

struct gp_link_piece {
	uint64_t end; /* stream position behind its last byte */
	uint64_t due_ns;
};

struct gp_link_queue {
	uint8_t *bytes;
	size_t cap;
	uint64_t in, out; /* stream positions: put so far, taken so far */
	struct gp_link_piece *piece;
	unsigned first, count;
};

enum gp_status gp_link_queue_init(struct gp_link_queue *q, size_t cap, struct gp_err *err);
void gp_link_queue_deinit(struct gp_link_queue *q); /* also of a zeroed one */
size_t gp_link_queue_room(const struct gp_link_queue *q);
bool gp_link_queue_empty(const struct gp_link_queue *q);
/* Copies the bytes; len is at most the room that is left. due_ns never goes back from one call to the next. */
void gp_link_queue_put(struct gp_link_queue *q, const uint8_t *data, size_t len, uint64_t due_ns);
/* Flips the lowest bit of the byte at a stream position that has been put and not been taken. */
void gp_link_queue_flip(struct gp_link_queue *q, uint64_t position);
/* Bytes that have arrived at now_ns. */
size_t gp_link_queue_due(const struct gp_link_queue *q, uint64_t now_ns);
/* When the first byte arrives; UINT64_MAX when there is none. */
uint64_t gp_link_queue_next_ns(const struct gp_link_queue *q);
/* The first `len` bytes (1 to what is due) as one or two buffers; they stay until gp_link_queue_take. */
unsigned gp_link_queue_peek(const struct gp_link_queue *q, size_t len, uv_buf_t out[2]);
void gp_link_queue_take(struct gp_link_queue *q, size_t len);

#endif
