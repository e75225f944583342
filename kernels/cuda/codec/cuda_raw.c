/* SPDX-License-Identifier: Apache-2.0
 *
 * `raw` on a GPU: a copy, and nothing but. See common/codec/stages/raw.c.
 * Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"

struct raw {
	struct gp_codec_site *site;
	uint64_t n;
};

static enum gp_status open_raw(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	void *p;
	(void)value;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct raw), err));
	*(struct raw *)p = (struct raw){.site = setup->site, .n = setup->n};
	*state = p;
	return GP_OK;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct raw *r = state;
	(void)pass;
	*len = 4 * r->n;
	gp_rt_copy_down(r->site->stream, out, x, *len);
	return true;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	const struct raw *r = state;
	(void)pass;
	if (in.len != 4 * r->n)
		GP_FAIL(err, GP_PROTO, "raw payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(4 * r->n));
	gp_rt_copy_up(r->site->stream, x, in.data, in.len);
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_raw = {
	.open = open_raw,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
};
