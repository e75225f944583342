/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of top-k in plain C, and the choice between the versions. See
 * topk_loops.h. Test: tests/unit/test_topk_loops.c
 */
#include "kernels/loops/topk_loops.h"

#include <string.h>

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/versions.h"

static uint32_t key_of(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u & 0x7fffffffu;
}

static size_t sift(const float *x, size_t n, struct gp_topk_window *w, uint32_t *chosen)
{
	size_t used = 0;
	for (size_t i = 0; i < n; i++) {
		const uint32_t key = key_of(x[i]);
		w->above += key > w->hi;
		w->from_hi += key >= w->hi;
		w->from_lo += key >= w->lo;
		w->largest = key > w->largest ? key : w->largest;
		chosen[used] = key;
		used += key > w->lo && key < w->hi;
	}
	return used;
}

static void mark(const float *x, size_t n, uint32_t threshold, uint64_t *ties, uint64_t *bits)
{
	memset(bits, 0, (n + 63) / 64 * sizeof *bits);
	for (size_t i = 0; i < n; i++) {
		const uint32_t key = key_of(x[i]);
		const bool tie = key == threshold && *ties > 0;
		*ties -= tie;
		bits[i / 64] |= (uint64_t)(tie || key > threshold) << i % 64;
	}
}

static size_t gather(const float *x, size_t n, const uint64_t *bits, float *chosen, size_t room)
{
	size_t used = 0;
	for (size_t at = 0; at < n; at += 64)
		for (uint64_t word = bits[at / 64]; word && used < room; word &= word - 1)
			chosen[used++] = x[at + (size_t)__builtin_ctzll(word)];
	return used;
}

static void scatter(const uint64_t *bits, size_t n, const float *chosen, size_t count, float *x)
{
	size_t used = 0;
	memset(x, 0, n * sizeof *x);
	for (size_t at = 0; at < n; at += 64)
		for (uint64_t word = bits[at / 64]; word && used < count; word &= word - 1)
			x[at + (size_t)__builtin_ctzll(word)] = chosen[used++];
}

const struct gp_topk_loops gp_topk_loops_portable = {
	.sift = sift,
	.mark = mark,
	.gather = gather,
	.scatter = scatter,
};

const struct gp_topk_loops *gp_topk_loops_choose(void)
{
	static const struct gp_topk_loops *const loops[] = GP_LOOP_VERSIONS(&gp_topk_loops);
	return loops[gp_isa_wanted()];
}
