/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox4x32-10 and what is drawn from it. See rng.h. Test: tests/unit/test_rng.c
 */
#include "common/base/rng.h"

#include <math.h>

void gp_rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
	uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
	uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = (uint64_t)0xD2511F53u * c0;
		uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
		uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		c0 = n0;
		c2 = n2;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

uint64_t gp_rng_name_id(const char *name)
{
	uint64_t h = 0xcbf29ce484222325ULL;
	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3ULL;
	return h;
}

uint32_t gp_rng_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint32_t w[4];
	gp_rng_block(seed, stream, index >> 2, w);
	return w[index & 3];
}

float gp_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
	return (float)(gp_rng_u32(seed, stream, index) >> 8) * 0x1p-24f;
}

float gp_rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
	uint32_t w[4];
	gp_rng_block(seed, stream, index, w);
	double u = ((double)w[0] + 1.0) * 0x1p-32; /* (0, 1] */
	double v = (double)w[1] * 0x1p-32;
	return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

uint32_t gp_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint32_t bound)
{
	return (uint32_t)(((uint64_t)gp_rng_u32(seed, stream, index) * bound) >> 32);
}

void gp_rng_permutation(uint64_t seed, uint64_t stream, uint32_t *perm, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		perm[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = gp_rng_below(seed, stream, i, i);
		uint32_t t = perm[i - 1];
		perm[i - 1] = perm[j];
		perm[j] = t;
	}
}
