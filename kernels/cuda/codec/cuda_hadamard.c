/* SPDX-License-Identifier: Apache-2.0
 *
 * `hadamard` on a GPU: common/codec/stages/hadamard.c's tensors, bit for bit.
 * Test: tests/unit/test_cuda_codec.c, tests/unit/test_cuda_codec_block.c
 */
#include "common/base/rng.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_hadamard.h"

enum { SIZE, SEED };
enum { LEVELS_LEAST = 3 };

#define NOT_FINITE UINT32_C(0x7f800000)
#define TOO_LARGE  UINT32_C(0x71800000) /* 2^100, as on the host */

struct hadamard {
	struct gp_codec_site *site;
	uint64_t n;
	struct gpk_hadamard turn;
};

static enum gp_status open_hadamard(const double *value, const struct gp_codec_setup *setup, void **state,
				    struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct hadamard), err));
	struct hadamard *h = p;
	h->site = setup->site;
	h->n = setup->n;
	for (h->turn.levels = LEVELS_LEAST; 1 << h->turn.levels < (int)value[SIZE];)
		h->turn.levels++;
	for (uint32_t i = 0; i < 1u << h->turn.levels; i++)
		h->turn.signs[i / 32] |=
			gp_rng_u32((uint64_t)value[SEED], gp_rng_stream(GP_RNG_SIGNS, 0), i) >> 31 << i % 32;
	*state = h;
	return GP_OK;
}

/* Waits for what a pass has found. False: some y is too large, or the device failed. */
static bool fine(struct gp_codec_site *p)
{
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	return gp_cuda_codec_wait(p) && !*(const uint32_t *)p->told;
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	const struct hadamard *h = state;
	struct gp_codec_site *const p = h->site;
	(void)pass;
	(void)side;
	*side_len = 0;
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_hadamard_forward(p->stream, &h->turn, x, (int64_t)h->n, TOO_LARGE, tensor[0], p->note);
	return fine(p);
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	const struct hadamard *h = state;
	struct gp_codec_site *const p = h->site;
	(void)pass;
	(void)side; /* none: the driver has checked it against the bound */
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_hadamard_backward(p->stream, &h->turn, tensor[0], (int64_t)h->n, NOT_FINITE, x, p->note);
	if (fine(p))
		return GP_OK;
	if (p->failed)
		GP_FAIL(err, GP_DEVICE, "%s", p->why.text);
	GP_FAIL(err, GP_PROTO, "a hadamard payload has elements whose sums are not finite");
}

const struct gp_codec_ops gp_cuda_codec_hadamard = {
	.open = open_hadamard,
	.close = gp_free,
	.split = split,
	.join = join,
};
