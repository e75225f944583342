/* SPDX-License-Identifier: Apache-2.0
 *
 * One allocation cut into aligned rooms: the same calls measure it (base NULL)
 * and hand the rooms out. For stages that keep many small ones on a device.
 *
 * Threads: any (pure functions). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_CARVE_H
#define GP_CARVE_H

#include <stddef.h>
#include <stdint.h>

struct gp_carve {
	uint8_t *base;
	uint64_t bytes; /* taken so far */
};

/* NULL while measuring. Aligned to 256 bytes, as base is. */
static inline void *gp_carve(struct gp_carve *c, uint64_t bytes)
{
	uint8_t *const at = c->base ? c->base + c->bytes : NULL;
	c->bytes += (bytes + 255) / 256 * 256;
	return at;
}

#endif
