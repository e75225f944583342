/* SPDX-License-Identifier: Apache-2.0
 *
 * `uniform` on a GPU: the payload is the host's byte for byte. Nothing waits
 * between the passes: the table is found on the device, and whether the tensor
 * can be coded at all is told with the payload. See common/codec/stages/uniform.c.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "common/codec/stages/quant.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_uniform.h"

enum { HEAD = 8 };

struct uniform {
	struct gp_codec_site *site;
	uint64_t n;
	struct gp_quant_table table;
};

static enum gp_status open_uniform(const double *value, const struct gp_codec_setup *setup, void **state,
				   struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct uniform), err));
	struct uniform *u = p;
	u->site = setup->site;
	u->n = setup->n;
	u->table.bits = (int)value[0];
	*state = u;
	return GP_OK;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct uniform *u = state;
	struct gp_codec_site *const p = u->site;
	uint8_t *const body = gp_cuda_codec_body(p, HEAD);
	const struct gpk_range *const told = p->told;
	(void)pass;
	*len = gp_quant_bytes(u->table.bits, 0, u->n);
	gp_rt_fill(p->stream, p->note, 0, sizeof *told);
	gpk_range(p->stream, x, (int64_t)u->n, p->note);
	gpk_uniform_encode(p->stream, x, (int64_t)u->n, u->table.bits, p->note, (float *)(void *)body, body + HEAD);
	gp_rt_copy_down(p->stream, out, body, *len);
	gp_cuda_codec_tell(p, sizeof *told);
	return gp_cuda_codec_wait(p) && !told->bad;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	struct uniform *u = state;
	(void)pass;
	GP_TRY(gp_quant_read_table(&u->table, in, u->n, err));
	const uint8_t *const body = gp_cuda_codec_up(u->site, in, HEAD);
	gpk_uniform_decode(u->site->stream, body + HEAD, (int64_t)u->n, u->table.bits, u->table.min[0],
			   u->table.step[0], x);
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_uniform = {
	.open = open_uniform,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
};
