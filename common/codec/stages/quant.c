/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantization tables and packed codes to and from payload bytes, block by
 * block so that codes stay in L1. Finds no partitions: uniform.c and
 * sortquant.c do. Layout: CODECS.md. Test: tests/unit/test_codec.c
 */
#include "common/codec/stages/quant.h"

#include <math.h>

#include "common/codec/codec_cells.h"

static uint64_t code_bytes(int width, uint64_t n)
{
	return (n * (uint64_t)width + 7) / 8;
}

uint64_t gp_quant_bytes(int bits, int split, uint64_t n)
{
	return (UINT64_C(8) << split) + code_bytes(bits + split, n);
}

/* The largest value a partition can give; infinite when it overflows. */
static float top_value(const struct gp_quant_table *t, int p)
{
	return (float)((1 << t->bits) - 1) * t->step[p] + t->min[p];
}

bool gp_quant_set(struct gp_quant_table *t, int p, float min, float max)
{
	t->min[p] = min;
	t->step[p] = (max - min) / (float)((1 << t->bits) - 1);
	t->divisor[p] = t->step[p] > 0 ? t->step[p] : 1;
	return isfinite(top_value(t, p));
}

void gp_quant_write(const struct gp_codec_loops *loops, const struct gp_quant_table *t, float max, const float *x,
		    uint64_t n, uint8_t *out)
{
	uint16_t codes[GP_QUANT_BLOCK];
	struct gp_cells cells;
	const int width = t->bits + t->split;
	for (int p = 0; p < 1 << t->split; p++, out += 8) {
		gp_put_f32(out, t->min[p]);
		gp_put_f32(out + 4, t->step[p]);
	}
	gp_cells_init(&cells, loops, t, max, n);
	for (uint64_t at = 0; at < n; at += GP_QUANT_BLOCK, out += GP_QUANT_BLOCK / 8 * width) {
		size_t count = n - at < GP_QUANT_BLOCK ? n - at : GP_QUANT_BLOCK;
		gp_cells_quantize(&cells, x + at, count, codes);
		loops->pack(codes, count, width, out);
	}
}

static enum gp_status read_partitions(struct gp_quant_table *t, const uint8_t *in, struct gp_err *err)
{
	for (int p = 0; p < 1 << t->split; p++, in += 8) {
		t->min[p] = gp_get_f32(in);
		t->step[p] = gp_get_f32(in + 4);
		if (!isfinite(t->min[p]) || !(t->step[p] >= 0) || !isfinite(top_value(t, p)))
			GP_FAIL(err, GP_PROTO,
				"partition %d of a payload has min %g and step %g, which is out of range", p,
				(double)t->min[p], (double)t->step[p]);
	}
	return GP_OK;
}

enum gp_status gp_quant_read_table(struct gp_quant_table *t, struct gp_span in, uint64_t n, struct gp_err *err)
{
	const int width = t->bits + t->split, used = (int)(n * (uint64_t)width % 8);
	if (in.len != gp_quant_bytes(t->bits, t->split, n))
		GP_FAIL(err, GP_PROTO, "quantized payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)gp_quant_bytes(t->bits, t->split, n));
	if (used && in.data[in.len - 1] >> used)
		GP_FAIL(err, GP_PROTO, "quantized payload has bits set behind its last code");
	return read_partitions(t, in.data, err);
}

enum gp_status gp_quant_read(const struct gp_codec_loops *loops, struct gp_quant_table *t, struct gp_span in,
			     uint64_t n, float *x, struct gp_err *err)
{
	uint16_t codes[GP_QUANT_BLOCK];
	const int width = t->bits + t->split;
	GP_TRY(gp_quant_read_table(t, in, n, err));
	const uint8_t *packed = in.data + (8 << t->split);
	for (uint64_t at = 0; at < n; at += GP_QUANT_BLOCK, packed += GP_QUANT_BLOCK / 8 * width) {
		size_t count = n - at < GP_QUANT_BLOCK ? n - at : GP_QUANT_BLOCK;
		loops->unpack(packed, count, width, codes);
		loops->dequantize(t, codes, count, x + at);
	}
	return GP_OK;
}
