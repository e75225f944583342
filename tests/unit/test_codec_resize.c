/* SPDX-License-Identifier: Apache-2.0
 *
 * Instances of a codec for tensors of fewer elements than they were opened for:
 * payloads and tensors are those of an instance for so many elements, at every
 * size and back again, and longer payloads are refused. See gp_codec_resize.
 */
#include <string.h>

#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "tests/codec_specs.h"
#include "tests/unit/ok.h"

enum { MOST = 9000 };

static const uint64_t sizes[] = {MOST, 1000, 2, 8999, 0, 64, 5000, 4097, 7, MOST};

static float x[MOST], got[MOST], want[MOST];
static uint8_t payload[8 * MOST], expected[8 * MOST];

static struct gp_codec *open_for(const struct gp_codec_spec *spec, uint64_t n, enum gp_codec_role role)
{
	struct gp_codec *c;
	const struct gp_codec_options options = {.seed = 5, .role = role};
	OK(gp_codec_open(spec, &(struct gp_shape){.ndim = 1, .dim = {(int64_t)n}}, &options, &c, &err));
	return c;
}

static void at_size(const struct gp_codec_spec *spec, struct gp_codec *encoder, struct gp_codec *decoder, uint64_t n)
{
	size_t len, expected_len;
	struct gp_codec *fresh = open_for(spec, n, GP_CODEC_BOTH);
	gp_codec_resize(encoder, n);
	gp_codec_resize(decoder, n);
	assert_int_equal(gp_codec_bound(encoder), gp_codec_bound(fresh));
	assert_int_equal(gp_codec_bound_of(decoder, n), gp_codec_bound(fresh));
	OK(gp_codec_encode(encoder, x, n, payload, sizeof payload, &len, &err));
	OK(gp_codec_encode(fresh, x, n, expected, sizeof expected, &expected_len, &err));
	if (spec->stages == 1) { /* byte stages may decide by what they have met before */
		assert_int_equal(len, expected_len);
		assert_memory_equal(payload, expected, len);
	}
	OK(gp_codec_decode(fresh, (struct gp_span){expected, expected_len}, want, &err));
	OK(gp_codec_decode(decoder, (struct gp_span){payload, len}, got, &err));
	assert_memory_equal(got, want, n * sizeof *got);
	assert_int_equal(gp_codec_decode(decoder, (struct gp_span){payload, gp_codec_bound(fresh) + 1}, got, &err),
			 GP_PROTO);
	if (len > 0)
		assert_int_equal(gp_codec_decode(decoder, (struct gp_span){payload, len - 1}, got, &err), GP_PROTO);
	gp_codec_free(fresh);
}

static void a_smaller_tensor_is_coded_as_by_an_instance_of_its_size(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 1, .dim = {MOST}};
	struct codec_specs list = {.count = 0};
	int tried = 0;
	codec_specs_add_examples(&list, &shape);
	codec_specs_add(&list, "sortquant:bits=6,split=2,sample=3000");
	codec_specs_add(&list, "uniform:bits=4+bitshuffle+zstd");
	for (uint64_t i = 0; i < MOST; i += 4) {
		float normal[4];
		uint32_t word[4];
		gp_rng_block(1, 2, i / 4, word);
		for (int k = 0; k < 4; k++)
			normal[k] = (float)(int32_t)word[k] * 1e-9f;
		memcpy(x + i, normal, sizeof normal);
	}
	for (int i = 0; i < list.count; i++) {
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(list.text[i], &spec, &err));
		if (!gp_codec_spec_resizes(&spec))
			continue;
		struct gp_codec *encoder = open_for(&spec, MOST, GP_CODEC_ENCODES);
		struct gp_codec *decoder = open_for(&spec, MOST, GP_CODEC_DECODES);
		for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
			at_size(&spec, encoder, decoder, sizes[s]);
		gp_codec_free(encoder);
		gp_codec_free(decoder);
		tried++;
	}
	assert_true(tried > 30);
}

static void what_looks_at_more_than_elements_does_not_resize(void **state)
{
	(void)state;
	static const char *const specs[] = {"topk:ratio=0.1", "downsample:factor=2+raw", "poweriter:rank=4",
					    "ef+uniform:bits=4", "alq"};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(specs[i], &spec, &err));
		assert_false(gp_codec_spec_resizes(&spec));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_smaller_tensor_is_coded_as_by_an_instance_of_its_size),
		cmocka_unit_test(what_looks_at_more_than_elements_does_not_resize),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
