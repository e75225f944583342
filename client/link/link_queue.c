/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes on their way through the emulated link. See link_queue.h.
 * Test: tests/unit/test_link_queue.c
 */
#include "client/link/link_queue.h"

#include <string.h>

enum gp_status gp_link_queue_init(struct gp_link_queue *q, size_t cap, struct gp_err *err)
{
	struct gp_link_queue made = {.cap = cap};
	GP_TRY(gp_alloc_array((void **)&made.bytes, cap, 1, err));
	enum gp_status status = gp_alloc_array((void **)&made.piece, GP_LINK_PIECES, sizeof *made.piece, err);
	if (status != GP_OK) {
		gp_free(made.bytes);
		return status;
	}
	*q = made;
	return GP_OK;
}

void gp_link_queue_deinit(struct gp_link_queue *q)
{
	gp_free(q->bytes);
	gp_free(q->piece);
	*q = (struct gp_link_queue){0};
}

size_t gp_link_queue_room(const struct gp_link_queue *q)
{
	return q->cap - (size_t)(q->in - q->out);
}

bool gp_link_queue_empty(const struct gp_link_queue *q)
{
	return q->in == q->out;
}

static struct gp_link_piece *piece_at(const struct gp_link_queue *q, unsigned i)
{
	return &q->piece[(q->first + i) % GP_LINK_PIECES];
}

void gp_link_queue_put(struct gp_link_queue *q, const uint8_t *data, size_t len, uint64_t due_ns)
{
	gp_require(len <= gp_link_queue_room(q));
	if (len == 0)
		return;
	const size_t at = (size_t)(q->in % q->cap), first = len < q->cap - at ? len : q->cap - at;
	memcpy(q->bytes + at, data, first);
	memcpy(q->bytes, data + first, len - first);
	q->in += len;
	q->count += q->count < GP_LINK_PIECES;
	*piece_at(q, q->count - 1) = (struct gp_link_piece){.end = q->in, .due_ns = due_ns};
}

void gp_link_queue_flip(struct gp_link_queue *q, uint64_t position)
{
	gp_require(position >= q->out && position < q->in);
	q->bytes[position % q->cap] ^= 1;
}

size_t gp_link_queue_due(const struct gp_link_queue *q, uint64_t now_ns)
{
	uint64_t end = q->out;
	for (unsigned i = 0; i < q->count && piece_at(q, i)->due_ns <= now_ns; i++)
		end = piece_at(q, i)->end;
	return (size_t)(end - q->out);
}

uint64_t gp_link_queue_next_ns(const struct gp_link_queue *q)
{
	return q->count > 0 ? piece_at(q, 0)->due_ns : UINT64_MAX;
}

unsigned gp_link_queue_peek(const struct gp_link_queue *q, size_t len, uv_buf_t out[2])
{
	const size_t at = (size_t)(q->out % q->cap), first = len < q->cap - at ? len : q->cap - at;
	out[0] = uv_buf_init((char *)q->bytes + at, (unsigned)first);
	out[1] = uv_buf_init((char *)q->bytes, (unsigned)(len - first));
	return len > first ? 2 : 1;
}

void gp_link_queue_take(struct gp_link_queue *q, size_t len)
{
	gp_require(len <= q->in - q->out);
	q->out += len;
	while (q->count > 0 && piece_at(q, 0)->end <= q->out) {
		q->first = (q->first + 1) % GP_LINK_PIECES;
		q->count--;
	}
}
