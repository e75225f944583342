/* SPDX-License-Identifier: Apache-2.0
 *
 * From the spec of a codec to what the kernels of k_codec_store.cu want to know of
 * it. See cuda_stored.h. Test: tests/unit/test_cuda_stored.c
 */
#include "kernels/cuda/codec/cuda_stored.h"

#include "common/codec/codec_store.h"
#include "common/codec/stages/fp8.h"
#include "common/codec/stages/smaq.h"
#include "common/codec/stages/sortquant.h"

_Static_assert(GP_STORE_BLOCK == GPK_STORE_BLOCK, "the device's blocks are the host's");

struct gpk_smaq gp_cuda_smaq_numbers(const double *value)
{
	struct gp_smaq_coder c;
	gp_smaq_init(&c, value, 1);
	return (struct gpk_smaq){.width = c.width,
				 .extra_width = c.extra_width,
				 .low_bits = c.values.low_bits,
				 .main_scale = c.values.main_scale,
				 .outlier_scale = c.values.outlier_scale,
				 .main_step = 1 / c.values.main_scale,
				 .outlier_step = 1 / c.values.outlier_scale,
				 .top = c.values.top,
				 .half = c.values.half,
				 .drawn = gp_smaq_draws(value),
				 .reach = c.reach};
}

static enum gp_status sortquant_of(const struct gp_codec_spec *spec, struct gpk_store *q, struct gp_err *err)
{
	const struct gp_sortquant_cut cut = gp_sortquant_cut_of(spec->stage[0].value, GP_STORE_BLOCK);
	if (cut.sampled > 0)
		GP_FAIL(err, GP_UNSUPPORTED,
			"'%.60s': a GPU finds partitions of what lies in memory from all elements; leave sample out, "
			"or "
			"compute on a CPU",
			spec->text);
	q->kind = GPK_STORE_SORTQUANT;
	q->width = cut.bits + cut.split;
	q->split = cut.split;
	q->parts = cut.parts;
	q->chunked = cut.chunked;
	return GP_OK;
}

enum gp_status gp_cuda_stored(const struct gp_codec_spec *spec, struct gpk_store *out, struct gp_err *err)
{
	const double *value = spec->stage[0].value;
	struct gpk_store q = {.width = 8, .parts = 1};
	switch (spec->stage[0].id) {
	case GP_CODEC_ID_fp16:
	case GP_CODEC_ID_bf16:
		q.kind = spec->stage[0].id == GP_CODEC_ID_fp16 ? GPK_STORE_FP16 : GPK_STORE_BF16;
		q.width = 16;
		break;
	case GP_CODEC_ID_fp8:
		q.kind = value[0] == GP_FP8_E4M3 ? GPK_STORE_E4M3 : GPK_STORE_E5M2;
		break;
	case GP_CODEC_ID_s2fp8:
		q.kind = GPK_STORE_S2FP8;
		break;
	case GP_CODEC_ID_uniform:
		q.kind = GPK_STORE_UNIFORM;
		q.width = (int)value[0];
		break;
	case GP_CODEC_ID_smaq:
		q.kind = GPK_STORE_SMAQ;
		q.smaq = gp_cuda_smaq_numbers(value);
		q.width = q.smaq.width;
		break;
	case GP_CODEC_ID_sortquant:
		GP_TRY(sortquant_of(spec, &q, err));
		break;
	default:
		GP_FAIL(err, GP_UNSUPPORTED,
			"'%.60s': a GPU has no code for this of what lies in memory; use fp16, bf16, fp8, s2fp8, smaq, "
			"uniform or sortquant, or compute on a CPU",
			spec->text);
	}
	q.block_bytes = gp_store_block_bytes(spec);
	*out = q;
	return GP_OK;
}
