/* SPDX-License-Identifier: Apache-2.0
 *
 * Pruning by magnitude with a bitmap, with the loops and the selection of
 * `topk`. The bitmap's bytes are those of the loops' words, block by block: no
 * word of it need be aligned. See prune.h.
 * Test: tests/unit/test_codec_sortquant.c
 */
#include "common/codec/stages/prune.h"

#include <string.h>

#include "common/codec/stages/topk_select.h"

enum { BLOCK = 4096, WORDS = BLOCK / 64 };

struct gp_prune {
	uint64_t n, k;
	const struct gp_topk_loops *loops;
	struct gp_topk_select *select; /* NULL: does not encode */
	float *values;                 /* the chosen elements */
};

uint64_t gp_prune_chosen(double ratio, uint64_t n)
{
	const uint64_t k = (uint64_t)(ratio * (double)n);
	return k < 1 ? 1 : k < n ? k : n;
}

uint64_t gp_prune_bitmap_bytes(uint64_t n)
{
	return (n + 7) / 8;
}

uint64_t gp_prune_bytes(uint64_t n, uint64_t k, bool encodes)
{
	return sizeof(struct gp_prune) + 4 * k + (encodes ? gp_topk_select_bytes(n) : 0);
}

enum gp_status gp_prune_new(uint64_t n, uint64_t k, bool encodes, struct gp_prune **out, struct gp_err *err)
{
	void *block;
	GP_TRY(gp_alloc_array(&block, 1, sizeof **out, err));
	struct gp_prune *p = block;
	p->n = n;
	p->k = k;
	p->loops = gp_topk_loops_choose();
	enum gp_status status = gp_alloc_array(&block, k, sizeof *p->values, err);
	if (status == GP_OK) {
		p->values = block;
		status = encodes ? gp_topk_select_new(p->loops, n, &p->select, err) : GP_OK;
	}
	if (status != GP_OK) {
		gp_prune_free(p);
		return status;
	}
	*out = p;
	return GP_OK;
}

void gp_prune_resize(struct gp_prune *p, uint64_t n, uint64_t k)
{
	p->n = n;
	p->k = k;
	if (p->select)
		gp_topk_select_resize(p->select, n);
}

void gp_prune_free(struct gp_prune *p)
{
	if (!p)
		return;
	gp_topk_select_free(p->select);
	gp_free(p->values);
	gp_free(p);
}

float *gp_prune_values(struct gp_prune *p)
{
	return p->values;
}

static size_t block_at(const struct gp_prune *p, uint64_t at)
{
	return p->n - at < BLOCK ? p->n - at : BLOCK;
}

/* A block of the bitmap as words, the last one filled up with zeros; returns how many bits are set. */
static uint64_t load_words(const uint8_t *bitmap, size_t length, uint64_t words[WORDS])
{
	uint64_t set = 0;
	words[(length - 1) / 64] = 0;
	memcpy(words, bitmap, (length + 7) / 8);
	for (size_t w = 0; w < (length + 63) / 64; w++)
		set += (uint64_t)__builtin_popcountll(words[w]);
	return set;
}

bool gp_prune_split(struct gp_prune *p, const float *x, uint8_t *bitmap)
{
	uint32_t threshold;
	uint64_t ties, used = 0;
	if (!gp_topk_threshold(p->select, x, p->k, &threshold, &ties))
		return false;
	for (uint64_t at = 0; at < p->n; at += BLOCK) {
		const size_t length = block_at(p, at);
		uint64_t words[WORDS];
		p->loops->mark(x + at, length, threshold, &ties, words);
		used += p->loops->gather(x + at, length, words, p->values + used, p->k - used);
		memcpy(bitmap + at / 8, words, (length + 7) / 8);
	}
	gp_require(used == p->k);
	return true;
}

enum gp_status gp_prune_check(const struct gp_prune *p, const uint8_t *bitmap, struct gp_err *err)
{
	uint64_t set = 0;
	for (uint64_t at = 0; at < p->n; at += BLOCK) {
		uint64_t words[WORDS];
		set += load_words(bitmap + at / 8, block_at(p, at), words);
	}
	if (set != p->k)
		GP_FAIL(err, GP_PROTO, "a payload's bitmap chooses %llu elements instead of %llu",
			(unsigned long long)set, (unsigned long long)p->k);
	if (p->n % 8 && bitmap[p->n / 8] >> p->n % 8)
		GP_FAIL(err, GP_PROTO, "a payload's bitmap has bits set behind its last element");
	return GP_OK;
}

void gp_prune_join(const struct gp_prune *p, const uint8_t *bitmap, float *x)
{
	uint64_t used = 0;
	for (uint64_t at = 0; at < p->n; at += BLOCK) {
		const size_t length = block_at(p, at);
		uint64_t words[WORDS];
		const uint64_t set = load_words(bitmap + at / 8, length, words);
		p->loops->scatter(words, length, p->values + used, set, x + at);
		used += set;
	}
}
