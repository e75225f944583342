/* SPDX-License-Identifier: Apache-2.0
 *
 * State arrays that lie encoded. See moment_store.h. Test: tests/unit/test_codec_store.c
 */
#include "common/codec/moment_store.h"

#include "common/base/rng.h"
#include "common/codec/codec_impl.h"

enum { PLACE_BYTES = 4, ALIGN = 64 };

/* Where the blocks begin. */
static uint64_t head_bytes(uint64_t n)
{
	return (gp_store_blocks(n) * PLACE_BYTES + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t gp_moment_bytes(const struct gp_codec_spec *spec, uint64_t n)
{
	return head_bytes(n) + gp_store_bytes(spec, n);
}

static uint64_t elements_of(uint64_t n, uint64_t block)
{
	const uint64_t left = n - block * GP_STORE_BLOCK;
	return left < GP_STORE_BLOCK ? left : GP_STORE_BLOCK;
}

static uint32_t find_zero(const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (x[i] == 0.0f)
			return (uint32_t)i + 1;
	return 0;
}

uint64_t gp_moment_array(uint64_t seed, const char *parameter, int which)
{
	uint32_t word[4];
	gp_rng_block(seed, gp_rng_stream(GP_RNG_ROUNDING, gp_rng_name_id(parameter)), (uint64_t)which, word);
	return (uint64_t)word[1] << 32 | word[0];
}

void gp_moment_encode(struct gp_store_coder *c, const struct gp_moment_draw *draw, const float *x, uint64_t n,
		      uint64_t block, uint8_t *array)
{
	const struct gp_codec_pass draws = {.draw = draw->array,
					    .first = gp_moment_first_draw(draw->update) + block * GP_STORE_BLOCK};
	const uint64_t here = elements_of(n, block);
	uint8_t *code = array + head_bytes(n) + block * gp_store_coder_block_bytes(c);
	gp_put_u32(array + block * PLACE_BYTES, find_zero(x, here));
	gp_store_encode_drawn(c, &draws, x, here, 0, code);
	gp_store_clear_rest(c, here, code);
}

void gp_moment_decode(struct gp_store_coder *c, const uint8_t *array, uint64_t n, uint64_t block, float *x)
{
	const uint64_t here = elements_of(n, block);
	const uint32_t place = gp_get_u32(array + block * PLACE_BYTES);
	gp_store_decode(c, array + head_bytes(n) + block * gp_store_coder_block_bytes(c), here, 0, x);
	if (place == 0)
		return;
	const float zero = x[place - 1];
	for (uint64_t i = 0; i < here; i++)
		x[i] = x[i] == zero ? 0.0f : x[i];
}

enum gp_status gp_moment_accept(struct gp_store_coder *c, const uint8_t *array, uint64_t n, struct gp_err *err)
{
	for (uint64_t block = 0; block < gp_store_blocks(n); block++)
		if (gp_get_u32(array + block * PLACE_BYTES) > elements_of(n, block))
			GP_FAIL(err, GP_INVALID, "the place of a zero is %u in a block of %llu elements",
				gp_get_u32(array + block * PLACE_BYTES), (unsigned long long)elements_of(n, block));
	return gp_store_accept(c, array + head_bytes(n), n, err);
}
