/* SPDX-License-Identifier: Apache-2.0
 *
 * `uniform`: one min and step per tensor, 2^bits levels, round half to even.
 * Formula and layout: CODECS.md. Test: tests/unit/test_codec.c, test_codec_golden.c
 */
#include "common/codec/stages/quant.h"

struct uniform {
	uint64_t n;
	const struct gp_codec_loops *loops;
	struct gp_quant_table table;
};

static uint64_t bound(const double *value, uint64_t n)
{
	return gp_quant_bytes((int)value[0], 0, n);
}

static enum gp_status open_uniform(const double *value, const struct gp_codec_setup *setup, void **state,
				   struct gp_err *err)
{
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof(struct uniform), err));
	struct uniform *u = s;
	u->n = setup->n;
	u->loops = gp_codec_loops_choose();
	u->table.bits = (int)value[0];
	*state = u;
	return GP_OK;
}

static int unit(const double *value)
{
	return value[0] == 16 ? 2 : 1;
}

static struct gp_codec_codes codes(const double *value, uint64_t n, size_t len)
{
	return gp_codec_codes_at_end((int)value[0], n, len);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	(void)pass;
	struct uniform *u = state;
	float min, max;
	if (!u->loops->range(x, u->n, &min, &max) || !gp_quant_set(&u->table, 0, min, max))
		return false;
	gp_quant_write(u->loops, &u->table, max, x, u->n, out);
	*len = gp_quant_bytes(u->table.bits, 0, u->n);
	return true;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	(void)pass;
	struct uniform *u = state;
	return gp_quant_read(u->loops, &u->table, in, u->n, x, err);
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct uniform *)state)->n = n;
}

const struct gp_codec_ops gp_codec_uniform = {
	.id = GP_CODEC_ID_uniform,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "uniform",
		 .summary = "2^bits evenly spaced levels between the tensor's min and max",
		 .examples = GP_EXAMPLES("uniform:bits=8", "uniform:bits=3", "uniform:bits=16", "uniform:bits=1",
					 "uniform:bits=2", "uniform:bits=4", "uniform:bits=5", "uniform:bits=6",
					 "uniform:bits=7", "uniform:bits=9", "uniform:bits=11", "uniform:bits=12",
					 "uniform:bits=13", "uniform:bits=15")},
	.keys = 1,
	.key = {{.name = "bits", .min = 1, .max = 16, .initial = 8, .help = "bits of a code"}},
	.resize = resize,
	.bound = bound,
	.open = open_uniform,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
	.unit = unit,
	.codes = codes,
};
