/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers with fixed levels:
 *   qsgd, qsgdinf  evenly spaced, by L2 norm or largest magnitude of a bucket
 *                  (Alistarh et al., "QSGD", NeurIPS 2017)
 *   nuqsgd         +-2^-j (Ramezani-Kebrya et al., "NUQSGD", JMLR 2021)
 *   terngrad       -1, 0, 1 of the largest magnitude (Wen et al., NeurIPS 2017)
 * as in the experiments of Faghri et al., "Adaptive gradient quantization for
 * data-parallel SGD", NeurIPS 2020. Formulas and layout: CODECS.md. How buckets
 * and codes are written: level.c. Test: tests/unit/test_codec_level.c
 */
#include "common/codec/stages/level.h"

enum { TERNARY_LEVELS = 3, TERNARY_BITS = 2 };

void gp_level_init_fixed(struct gp_level_coder *c, enum gp_level_kind kind, const double *value,
			 const struct gp_codec_setup *setup)
{
	static const float ternary[TERNARY_LEVELS] = {-1, 0, 1};
	float level[GP_LEVEL_MOST];
	const bool three = kind == GP_LEVEL_TERNGRAD, largest = three || kind == GP_LEVEL_QSGDINF;
	const int bits = three ? TERNARY_BITS : (int)value[0];
	if (kind == GP_LEVEL_NUQSGD)
		gp_level_exponential(level, bits, 0.5f);
	else if (!three)
		gp_level_uniform(level, bits);
	gp_level_init(c, setup, bits, (uint64_t)value[three ? 0 : 1], largest ? GP_LEVEL_LARGEST : GP_LEVEL_L2);
	gp_level_set(c, three ? ternary : level, three ? TERNARY_LEVELS : 1 << bits);
}

static enum gp_status open_fixed(const double *value, const struct gp_codec_setup *setup, enum gp_level_kind kind,
				 void **state, struct gp_err *err)
{
	struct gp_level_coder *c = gp_alloc_aligned(sizeof *c);
	if (!c)
		GP_FAIL(err, GP_NOMEM, "out of memory for a codec's levels");
	gp_level_init_fixed(c, kind, value, setup);
	*state = c;
	return GP_OK;
}

static enum gp_status open_qsgd(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_QSGD, state, err);
}

static enum gp_status open_qsgdinf(const double *value, const struct gp_codec_setup *setup, void **state,
				   struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_QSGDINF, state, err);
}

static enum gp_status open_nuqsgd(const double *value, const struct gp_codec_setup *setup, void **state,
				  struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_NUQSGD, state, err);
}

static enum gp_status open_terngrad(const double *value, const struct gp_codec_setup *setup, void **state,
				    struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_TERNGRAD, state, err);
}

static uint64_t bound(const double *value, uint64_t n)
{
	return gp_level_bytes((int)value[0], (uint64_t)value[1], n);
}

static uint64_t bound_terngrad(const double *value, uint64_t n)
{
	return gp_level_bytes(TERNARY_BITS, (uint64_t)value[0], n);
}

static struct gp_codec_codes codes(const double *value, uint64_t n, size_t len)
{
	return gp_codec_codes_at_end((int)value[0], n, len);
}

static struct gp_codec_codes codes_terngrad(const double *value, uint64_t n, size_t len)
{
	(void)value;
	return gp_codec_codes_at_end(TERNARY_BITS, n, len);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct gp_level_coder *c = state;
	if (!gp_level_write_norms(c, x, out))
		return false;
	*len = gp_level_bytes(c->bits, c->bucket, c->n);
	return gp_level_write_codes(c, pass, x, out);
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	return gp_level_read(state, pass, in, x, err);
}

/* A random number for each. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	return gp_level_work((uint64_t)value[1], setup, 8);
}

static uint64_t work_terngrad(const double *value, const struct gp_codec_setup *setup)
{
	return gp_level_work((uint64_t)value[0], setup, 8);
}

#define BITS                                                                                                           \
	{                                                                                                              \
		.name = "bits", .min = 1, .max = GP_LEVEL_MAX_BITS, .initial = 4,                                      \
		.help = "bits of a code: 2^bits levels"                                                                \
	}
#define BUCKET                                                                                                         \
	{                                                                                                              \
		.name = "bucket", .min = 1, .max = GP_LEVEL_BUCKET_MAX, .initial = 512,                                \
		.help = "elements that share a norm"                                                                   \
	}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct gp_level_coder *)state)->n = n;
}

const struct gp_codec_ops gp_codec_qsgd = {
	.id = GP_CODEC_ID_qsgd,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "qsgd",
		 .summary = "random rounding to evenly spaced levels of each bucket's L2 norm",
		 .examples = GP_EXAMPLES("qsgd", "qsgd:bits=1,bucket=3", "qsgd:bits=8,bucket=64",
					 "qsgd:bits=1,bucket=1", "qsgd:bits=2,bucket=2048", "qsgd:bits=3",
					 "qsgd:bits=3,bucket=100", "qsgd:bits=5,bucket=16", "qsgd:bits=6,bucket=17",
					 "qsgd:bits=8", "qsgd:bits=8,bucket=33", "qsgd:bits=8,bucket=1048576")},
	.keys = 2,
	.key = {BITS, BUCKET},
	.resize = resize,
	.bound = bound,
	.codes = codes,
	.work = work,
	.open = open_qsgd,
	.close = gp_free_aligned,
	.encode = encode,
	.decode = decode,
};

const struct gp_codec_ops gp_codec_qsgdinf = {
	.id = GP_CODEC_ID_qsgdinf,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "qsgdinf",
		 .summary = "random rounding to evenly spaced levels of each bucket's largest",
		 .examples = GP_EXAMPLES("qsgdinf:bits=4,bucket=16", "qsgdinf:bits=5,bucket=1000",
					 "qsgdinf:bits=1,bucket=7", "qsgdinf:bits=2,bucket=7", "qsgdinf:bits=3",
					 "qsgdinf:bits=3,bucket=1024", "qsgdinf:bits=3,bucket=100000", "qsgdinf:bits=4",
					 "qsgdinf:bits=7,bucket=33", "qsgdinf:bits=8", "qsgdinf:bits=8,bucket=16",
					 "qsgdinf:bits=8,bucket=20000")},
	.keys = 2,
	.key = {BITS, BUCKET},
	.resize = resize,
	.bound = bound,
	.codes = codes,
	.work = work,
	.open = open_qsgdinf,
	.close = gp_free_aligned,
	.encode = encode,
	.decode = decode,
};

const struct gp_codec_ops gp_codec_nuqsgd = {
	.id = GP_CODEC_ID_nuqsgd,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "nuqsgd",
		 .summary = "random rounding to powers of 2 of each bucket's L2 norm",
		 .examples =
			 GP_EXAMPLES("nuqsgd:bits=3,bucket=16", "nuqsgd:bits=7,bucket=100", "nuqsgd:bits=2,bucket=1",
				     "nuqsgd:bits=3", "nuqsgd:bits=4", "nuqsgd:bits=5,bucket=64", "nuqsgd:bits=8",
				     "nuqsgd:bits=8,bucket=256", "nuqsgd:bits=8,bucket=1000")},
	.keys = 2,
	.key = {BITS, BUCKET},
	.resize = resize,
	.bound = bound,
	.codes = codes,
	.work = work,
	.open = open_nuqsgd,
	.close = gp_free_aligned,
	.encode = encode,
	.decode = decode,
};

const struct gp_codec_ops gp_codec_terngrad = {
	.id = GP_CODEC_ID_terngrad,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "terngrad",
		 .summary = "random rounding to -1, 0 or 1 times each bucket's largest",
		 .examples = GP_EXAMPLES("terngrad", "terngrad:bucket=5", "terngrad:bucket=32", "terngrad:bucket=100",
					 "terngrad:bucket=5000")},
	.keys = 1,
	.key = {BUCKET},
	.resize = resize,
	.bound = bound_terngrad,
	.codes = codes_terngrad,
	.work = work_terngrad,
	.open = open_terngrad,
	.close = gp_free_aligned,
	.encode = encode,
	.decode = decode,
};
