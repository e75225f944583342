/* SPDX-License-Identifier: Apache-2.0
 *
 * Pruning by magnitude with a bitmap: the smallest magnitude that stays is an
 * order statistic (codec_select.c). See codec_prune.h.
 * Test: tests/unit/test_codec_sortquant.c
 */
#include "common/codec_prune.h"

#include <math.h>

struct gp_prune {
	uint64_t n, k;
	struct gp_select *select; /* of n magnitudes; NULL: does not encode */
	float *values;            /* the magnitudes, then the kept elements */
};

uint64_t gp_prune_kept(double ratio, uint64_t n)
{
	const uint64_t k = (uint64_t)(ratio * (double)n);
	return k < 1 ? 1 : k < n ? k : n;
}

uint64_t gp_prune_bitmap_bytes(uint64_t n)
{
	return (n + 7) / 8;
}

uint64_t gp_prune_memory(uint64_t n, uint64_t k, bool encodes)
{
	return sizeof(struct gp_prune) + 4 * (encodes ? n : k) + (encodes ? gp_select_bytes(n, 1) : 0);
}

enum gp_status gp_prune_new(const struct gp_codec_loops *loops, uint64_t n, uint64_t k, bool encodes,
			    struct gp_prune **out, struct gp_err *err)
{
	void *block;
	GP_TRY(gp_alloc_array(&block, 1, sizeof **out, err));
	struct gp_prune *p = block;
	p->n = n;
	p->k = k;
	enum gp_status status = gp_alloc_array(&block, encodes ? n : k, sizeof *p->values, err);
	if (status == GP_OK) {
		p->values = block;
		status = encodes ? gp_select_new(loops, n, 1, &p->select, err) : GP_OK;
	}
	if (status != GP_OK) {
		gp_prune_free(p);
		return status;
	}
	*out = p;
	return GP_OK;
}

void gp_prune_free(struct gp_prune *p)
{
	if (!p)
		return;
	gp_select_free(p->select);
	gp_free(p->values);
	gp_free(p);
}

float *gp_prune_values(struct gp_prune *p)
{
	return p->values;
}

/* Smallest magnitude that stays, and how many elements that have it. */
static bool find_threshold(struct gp_prune *p, const float *x, float *threshold, uint64_t *ties)
{
	const uint64_t rank = p->n - p->k;
	uint64_t above = 0;
	float min, max;
	for (uint64_t i = 0; i < p->n; i++)
		p->values[i] = fabsf(x[i]);
	if (!gp_select_ranks(p->select, p->values, &rank, 1, threshold, &min, &max))
		return false;
	for (uint64_t i = 0; i < p->n; i++)
		above += p->values[i] > *threshold;
	*ties = p->k - above;
	return true;
}

bool gp_prune_split(struct gp_prune *p, const float *x, uint8_t *bitmap)
{
	float threshold;
	uint64_t ties, kept = 0;
	if (!find_threshold(p, x, &threshold, &ties))
		return false;
	for (uint64_t i = 0; i < p->n; i++) {
		const float magnitude = fabsf(x[i]);
		const bool tied = magnitude == threshold && ties;
		const unsigned keep = magnitude > threshold || tied;
		if (i % 8 == 0)
			bitmap[i / 8] = 0;
		bitmap[i / 8] |= (uint8_t)(keep << i % 8);
		ties -= tied;
		if (keep)
			p->values[kept++] = x[i];
	}
	return true;
}

enum gp_status gp_prune_check(const struct gp_prune *p, const uint8_t *bitmap, struct gp_err *err)
{
	uint64_t set = 0;
	for (uint64_t i = 0; i < gp_prune_bitmap_bytes(p->n); i++)
		set += (uint64_t)__builtin_popcount(bitmap[i]);
	if (set != p->k)
		GP_FAIL(err, GP_PROTO, "a payload's bitmap keeps %llu elements instead of %llu",
			(unsigned long long)set, (unsigned long long)p->k);
	if (p->n % 8 && bitmap[p->n / 8] >> p->n % 8)
		GP_FAIL(err, GP_PROTO, "a payload's bitmap has bits set behind its last element");
	return GP_OK;
}

void gp_prune_join(const struct gp_prune *p, const uint8_t *bitmap, float *x)
{
	uint64_t next = 0;
	for (uint64_t i = 0; i < p->n; i++)
		x[i] = bitmap[i / 8] >> i % 8 & 1 ? p->values[next++] : 0.0f;
}
