/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads and stores of fewer than sixteen floats for lanes.h, where the
 * instruction set has none; only for that header.
 *
 * Threads: any; they touch only memory that they are given. Test: tests/unit/test_lanes.c
 */
#ifndef GP_CPU_LANES_SOME_H
#define GP_CPU_LANES_SOME_H

static __attribute__((noinline)) struct lanes lanes_load_few(const float *at, int64_t n)
{
	float room[LANES] = {0};
	memcpy(room, at, (size_t)n * sizeof *at);
	return lanes_load(room);
}

static __attribute__((noinline)) void lanes_store_few(float *at, struct lanes x, int64_t n)
{
	float room[LANES];
	lanes_store(room, x);
	memcpy(at, room, (size_t)n * sizeof *at);
}

GP_INLINE struct lanes lanes_load_some(const float *at, int64_t n)
{
	return n >= LANES ? lanes_load(at) : lanes_load_few(at, n);
}

GP_INLINE void lanes_store_some(float *at, struct lanes x, int64_t n)
{
	if (n >= LANES)
		lanes_store(at, x);
	else
		lanes_store_few(at, x, n);
}

#endif
