/* SPDX-License-Identifier: Apache-2.0
 *
 * See data_bucket.h. Test: tests/unit/test_data_bucket.c
 */
#include "client/data/data_bucket.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"

static int compare_keys(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Length and place in one number: no two are equal, so that any way of sorting gives the same order. */
static void sort_bucket(const struct gp_bucket *b, uint32_t *order, uint32_t count)
{
	uint32_t *const before = (uint32_t *)(b->room + count);
	for (uint32_t i = 0; i < count; i++)
		b->room[i] = (uint64_t)b->length(b->arg, order[i]) << 32 | i;
	qsort(b->room, count, sizeof *b->room, compare_keys);
	memcpy(before, order, count * sizeof *order);
	for (uint32_t i = 0; i < count; i++)
		order[i] = before[(uint32_t)b->room[i]];
}

static void permute_batches(const struct gp_bucket *b, uint32_t epoch, uint32_t *order, uint32_t batches)
{
	const size_t samples = (size_t)batches * b->batch;
	uint32_t *const before = (uint32_t *)b->room, *const place = before + samples;
	memcpy(before, order, samples * sizeof *order);
	gp_rng_permutation(b->seed, gp_rng_stream(GP_RNG_BUCKETS, epoch), place, batches);
	for (uint32_t i = 0; i < batches; i++)
		memcpy(order + (size_t)i * b->batch, before + (size_t)place[i] * b->batch, b->batch * sizeof *order);
}

void gp_bucket_order(const struct gp_bucket *b, uint32_t epoch, uint32_t *order, uint32_t samples)
{
	const uint32_t batches = samples / b->batch;
	if (b->batches < 2 || batches < 2)
		return;
	for (uint32_t first = 0; first < batches; first += (uint32_t)b->batches) {
		const uint32_t left = batches - first;
		const uint32_t count = left < (uint32_t)b->batches ? left : (uint32_t)b->batches;
		sort_bucket(b, order + (size_t)first * b->batch, count * b->batch);
	}
	permute_batches(b, epoch, order, batches);
}
