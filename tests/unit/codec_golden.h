/* SPDX-License-Identifier: Apache-2.0
 *
 * Golden files with payloads: each case "INPUT/SPEC" of a file has a `payload`
 * without its head (an int32 for each byte) and the `tensor` that it decodes to;
 * the input is a tensor of the same file. Every case, with every instruction set.
 *
 * Threads: one at a time. Test: it is part of tests/unit/test_codec_block.c and test_codec_hadamard.c
 */
#ifndef GP_TEST_CODEC_GOLDEN_H
#define GP_TEST_CODEC_GOLDEN_H

#include "common/base/isa.h"
#include "tests/unit/codec_rig.h"

#include <stdio.h>
#include <string.h>

#include "common/codec/codec_impl.h"
#include "kernels/loops/codec_loops.h"

static inline uint8_t *golden_bytes(const struct gp_st_tensor *t, size_t *len)
{
	const uint8_t *words = t->data;
	uint8_t *out = malloc(t->count);
	*len = t->count;
	for (size_t i = 0; i < *len; i++)
		out[i] = words[4 * i];
	return out;
}

static inline float *golden_floats(const struct gp_st_file *f, const char *name, const struct gp_st_tensor **tensor)
{
	struct gp_err err = {0};
	*tensor = gp_st_find(f, name);
	assert_non_null(*tensor);
	float *x = malloc((*tensor)->count * sizeof *x);
	assert_int_equal(gp_st_read_f32(*tensor, x, &err), GP_OK);
	return x;
}

/* `name` is INPUT/SPEC. */
static inline void golden_case(const struct gp_st_file *f, const char *name, const struct gp_st_tensor *payload)
{
	const struct gp_st_tensor *t, *expected;
	struct gp_err err = {0};
	char text[160];
	size_t len, wanted_len;
	snprintf(text, sizeof text, "%s.tensor", name);
	float *y = golden_floats(f, text, &expected);
	snprintf(text, sizeof text, "%.*s", (int)strcspn(name, "/"), name);
	float *x = golden_floats(f, text, &t), *decoded = malloc(t->count * sizeof *decoded);
	struct gp_codec *c = shaped_codec(strchr(name, '/') + 1, &t->shape, 0);
	uint8_t *wanted = golden_bytes(payload, &wanted_len), *out = malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode(c, x, 0, out, gp_codec_bound(c), &len, &err), GP_OK);
	assert_int_equal(gp_get_u32(out), 0);
	assert_int_equal(len - 4, wanted_len);
	assert_memory_equal(out + 4, wanted, wanted_len);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){out, len}, decoded, &err), GP_OK);
	assert_memory_equal(decoded, y, t->count * sizeof *y);
	free(out);
	free(wanted);
	gp_codec_free(c);
	free(decoded);
	free(x);
	free(y);
}

/* Returns how many cases the file has. */
static inline int golden_cases(const char *file)
{
	struct gp_st_file *f;
	struct gp_err err = {0};
	int cases = 0;
	assert_int_equal(gp_st_open(file, &f, &err), GP_OK);
	for (int k = 0; k < 3; k++) {
		if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
			continue;
		setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
		for (int i = 0; i < gp_st_count(f); i++) {
			const struct gp_st_tensor *t = gp_st_at(f, i);
			char name[128];
			const char *end = strstr(t->name, ".payload");
			if (!end)
				continue;
			snprintf(name, sizeof name, "%.*s", (int)(end - t->name), t->name);
			print_message("%s %s\n", gp_isa_name((enum gp_isa)k), name);
			golden_case(f, name, t);
			cases += k == 0;
		}
	}
	unsetenv("GP_SIMD");
	gp_st_close(f);
	return cases;
}

#endif
