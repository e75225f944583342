/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes seeds for a decoder's fuzz target (tests/fuzz/codec_fuzz.h): for each
 * spec the payloads of a few small tensors.
 * Usage: codec_seeds DIR SPEC... with the specs in the order the target lists them,
 *    or: codec_seeds DIR --examples CODEC, as fuzz_codec_CODEC has them
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/base/rng.h"

enum { HEAD = 8, MOST = 4096 };

static const struct {
	const char *name;
	uint8_t head[5]; /* four dimensions and their number, as the target reads them */
	int kind;
} tensors[] = {
	{"one", {0, 0, 0, 0, 0}, 0},  {"normal", {66, 0, 0, 0, 0}, 0},   {"image", {1, 3, 3, 4, 3}, 0},
	{"rows", {1, 2, 6, 0, 2}, 0}, {"zero", {32, 0, 0, 0, 0}, 1},     {"nan", {15, 0, 0, 0, 0}, 2},
	{"wide", {0, 2, 0, 0, 0}, 3}, {"long", {255, 15, 0, 0, 240}, 4},
};

static struct gp_shape shape_of(const uint8_t head[5])
{
	struct gp_shape shape = {.ndim = 1 + head[4] % 4};
	if (shape.ndim == 1)
		shape.dim[0] = 1 + (head[0] | head[1] << 8);
	for (int i = 0; i < shape.ndim && shape.ndim > 1; i++)
		shape.dim[i] = 1 + head[i] % 8;
	return shape;
}

static void fill(float *x, uint64_t n, int kind)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = kind == 1 ? 0 : gp_rng_normal(3, (uint64_t)kind, i) * (kind == 3 ? 1e-3f : 1);
	for (uint64_t i = 0; i < n && kind == 4; i++)
		x[i] *= x[i] * x[i]; /* codes of few values */
	if (kind == 2)
		x[n / 2] = NAN;
}

static enum gp_status write_seed(const char *dir, int index, const char *text, int tensor, struct gp_err *err)
{
	static float x[MOST];
	static uint8_t bytes[1 << 20];
	struct gp_codec_spec spec;
	struct gp_codec *c;
	size_t len;
	char path[512], name[64];
	const struct gp_shape shape = shape_of(tensors[tensor].head);
	GP_TRY(gp_codec_spec_parse(text, &spec, err));
	if (gp_codec_new(&spec, &shape, 1, &c, err) != GP_OK)
		return GP_OK; /* a shape that the chain cannot take */
	fill(x, gp_shape_elements(&shape), tensors[tensor].kind);
	bytes[0] = (uint8_t)index;
	bytes[1] = (uint8_t)(index + tensor);
	memcpy(bytes + 2, tensors[tensor].head, 5);
	bytes[7] = 0;
	enum gp_status status = gp_codec_encode(c, x, 0, bytes + HEAD, sizeof bytes - HEAD, &len, err);
	gp_codec_free(c);
	GP_TRY(status);
	snprintf(name, sizeof name, "%s_%d", tensors[tensor].name, index);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(bytes, 1, HEAD + len, f) != HEAD + len || fclose(f) != 0)
		GP_FAIL(err, GP_IO, "cannot write %s", path);
	return GP_OK;
}

/* NULL: there is no such codec. */
static const char *const *examples_of(const char *codec)
{
	for (int i = 0; gp_codec_info(i); i++)
		if (strcmp(gp_codec_info(i)->name, codec) == 0)
			return gp_codec_info(i)->examples;
	return NULL;
}

int main(int argc, char **argv)
{
	struct gp_err err = {0};
	const char *const *spec = (const char *const *)argv + 2; /* ends with a NULL, as the examples do */
	if (argc == 4 && strcmp(argv[2], "--examples") == 0)
		spec = examples_of(argv[3]);
	if (argc < 3 || !spec) {
		fprintf(stderr, "usage: codec_seeds DIR SPEC... | codec_seeds DIR --examples CODEC\n");
		return 2;
	}
	for (int i = 0; spec[i]; i++)
		for (int t = 0; t < (int)(sizeof tensors / sizeof tensors[0]); t++)
			if (write_seed(argv[1], i, spec[i], t, &err) != GP_OK) {
				gp_err_print(&err, "codec_seeds");
				return 1;
			}
	return 0;
}
