/* SPDX-License-Identifier: Apache-2.0
 *
 * When bytes arrive at the far end of the emulated link. See link_pace.h.
 * Test: tests/unit/test_link_pace.c
 */
#include "client/link/link_pace.h"

#include "common/base/rng.h"

#define PIECE_S          1e-3
#define PIECE_BYTES_MIN  512
#define PIECE_BYTES_MAX  (64u << 10)
#define QUEUE_BYTES_MIN  (16u << 10)
#define QUEUE_BYTES_MAX  (64u << 20)
#define UNSHAPED_BYTES   (1u << 20)
#define UNSHAPED_BYTES_S 1.25e9 /* without a rate: room for 10 Gbit/s on the way */

void gp_link_pace_init(struct gp_link_pace *p, const struct gp_link_shape *shape, uint64_t seed, uint64_t stream)
{
	*p = (struct gp_link_pace){.shape = *shape, .seed = seed, .stream = gp_rng_stream(GP_RNG_LINK, stream)};
}

static size_t clamp(double bytes, size_t least, size_t most)
{
	return bytes < (double)least ? least : bytes > (double)most ? most : (size_t)bytes;
}

size_t gp_link_pace_piece_bytes(const struct gp_link_shape *shape)
{
	if (shape->rate_bps <= 0)
		return PIECE_BYTES_MAX;
	return clamp(shape->rate_bps / 8 * PIECE_S, PIECE_BYTES_MIN, PIECE_BYTES_MAX);
}

static uint64_t to_ns(double seconds)
{
	return (uint64_t)(seconds * 1e9 + 0.5);
}

static uint64_t draw_delay(struct gp_link_pace *p)
{
	double extra = 0;
	if (p->shape.jitter_s > 0)
		extra = p->shape.jitter_s * (double)gp_rng_uniform(p->seed, p->stream, p->pieces);
	p->pieces++;
	return to_ns(p->shape.delay_s + extra);
}

uint64_t gp_link_pace_due(struct gp_link_pace *p, uint64_t now_ns, size_t bytes)
{
	uint64_t leaves_ns = now_ns;
	if (p->shape.rate_bps > 0) {
		const uint64_t saved_ns = now_ns > GP_LINK_BURST_NS ? now_ns - GP_LINK_BURST_NS : 0;
		if (p->free_ns < saved_ns)
			p->free_ns = saved_ns;
		p->free_ns += to_ns((double)bytes * 8 / p->shape.rate_bps);
		leaves_ns = p->free_ns > now_ns ? p->free_ns : now_ns;
	}
	const uint64_t due_ns = leaves_ns + draw_delay(p);
	if (due_ns > p->due_ns)
		p->due_ns = due_ns;
	return p->due_ns;
}

size_t gp_link_pace_queue_bytes(const struct gp_link_shape *shape)
{
	const double way_s = shape->delay_s + shape->jitter_s;
	if (shape->rate_bps <= 0)
		return clamp(UNSHAPED_BYTES + way_s * UNSHAPED_BYTES_S, UNSHAPED_BYTES, QUEUE_BYTES_MAX);
	return clamp(shape->rate_bps / 8 * (shape->queue_s + way_s), QUEUE_BYTES_MIN, QUEUE_BYTES_MAX);
}
