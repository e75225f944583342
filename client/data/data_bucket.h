/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of samples that are about equally long, so that little of a batch is
 * padding: the key bucket=N of texts.
 *
 * An epoch's order begins as without it, a permutation drawn from the seed. It is
 * then cut into buckets of N batches; in each of them the samples are sorted by
 * length (equal ones keep their order), so that a batch has neighbours; and the
 * batches of the epoch are permuted by a second draw, so that lengths come in any
 * order. What of the samples makes no whole batch stays where it is, at the end.
 * The same on any machine: a function of seed, epoch, batch, N and the lengths.
 * With N as large as an epoch batches are as alike as can be, and always made of
 * the same samples, but for chance; with a few dozen most of the padding is gone
 * and epochs still differ.
 *
 * Threads: any. Test: tests/unit/test_data_bucket.c
 */
#ifndef GP_DATA_BUCKET_H
#define GP_DATA_BUCKET_H

#include <stdint.h>

#define GP_BUCKET_MOST 1000000

struct gp_bucket {
	int batches; /* of a bucket; below 2: the order stays */
	uint32_t batch;
	uint64_t seed;
	uint32_t (*length)(const void *arg, uint32_t sample);
	const void *arg;
	uint64_t *room; /* twice as many as there are samples */
};

/* Changes an epoch's order of `samples` samples. */
void gp_bucket_order(const struct gp_bucket *b, uint32_t epoch, uint32_t *order, uint32_t samples);

#endif
