/* SPDX-License-Identifier: Apache-2.0
 *
 * Instances of a codec for smaller tensors than they were opened for: payloads
 * and tensors are those of an instance for that shape, at every size and back
 * again, and longer payloads are refused. See gp_codec_resize.
 */
#include <string.h>

#include "common/base/rng.h"
#include "common/codec/codec.h"
#include "tests/codec_specs.h"
#include "tests/unit/ok.h"

enum { MOST = 9000, SAMPLES = 3, POSITIONS = 64, WIDTH = 20 };

static const uint64_t sizes[] = {MOST, 1000, 2, 8999, 0, 64, 5000, 4097, 7, MOST};
static const int64_t positions[] = {POSITIONS, 8, 16, POSITIONS, 24, 40, 8, POSITIONS};

static float x[MOST], got[MOST], want[MOST];
static uint8_t payload[8 * MOST], expected[8 * MOST];

static struct gp_shape flat(uint64_t n)
{
	return (struct gp_shape){.ndim = 1, .dim = {(int64_t)n}};
}

static struct gp_shape sequence(int64_t rows)
{
	return (struct gp_shape){.ndim = 3, .dim = {SAMPLES, rows, WIDTH}};
}

static struct gp_codec *open_for(const struct gp_codec_spec *spec, const struct gp_shape *shape,
				 enum gp_codec_role role)
{
	struct gp_codec *c;
	const struct gp_codec_options options = {.seed = 5, .role = role, .chunks = 2, .undo = true};
	OK(gp_codec_open(spec, shape, &options, &c, &err));
	return c;
}

/* Levels are fitted to the first tensor. */
static bool depends_on_the_past(const struct gp_codec_spec *spec)
{
	return strstr(spec->text, "alq") || strstr(spec->text, "amq");
}

static void at_size(const struct gp_codec_spec *spec, struct gp_codec *encoder, struct gp_codec *decoder,
		    const struct gp_shape *shape)
{
	size_t len, expected_len;
	const uint64_t n = gp_shape_elements(shape);
	struct gp_codec *fresh = open_for(spec, shape, GP_CODEC_BOTH);
	gp_codec_resize(encoder, shape);
	gp_codec_resize(decoder, shape);
	assert_int_equal(gp_codec_bound(encoder), gp_codec_bound(fresh));
	assert_int_equal(gp_codec_bound(decoder), gp_codec_bound(fresh));
	OK(gp_codec_encode(encoder, x, n, payload, sizeof payload, &len, &err));
	OK(gp_codec_encode(fresh, x, n, expected, sizeof expected, &expected_len, &err));
	if (!depends_on_the_past(spec)) {
		assert_int_equal(len, expected_len);
		assert_memory_equal(payload, expected, len);
	}
	OK(gp_codec_decode(fresh, (struct gp_span){payload, len}, want, &err));
	OK(gp_codec_decode(decoder, (struct gp_span){payload, len}, got, &err));
	assert_memory_equal(got, want, n * sizeof *got);
	assert_int_equal(gp_codec_decode(decoder, (struct gp_span){payload, gp_codec_bound(fresh) + 1}, got, &err),
			 GP_PROTO);
	if (len > 0)
		assert_int_equal(gp_codec_decode(decoder, (struct gp_span){payload, len - 1}, got, &err), GP_PROTO);
	gp_codec_free(fresh);
}

static int fill(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < MOST; i += 4) {
		float normal[4];
		uint32_t word[4];
		gp_rng_block(1, 2, i / 4, word);
		for (int k = 0; k < 4; k++)
			normal[k] = (float)(int32_t)word[k] * 1e-9f;
		memcpy(x + i, normal, sizeof normal);
	}
	return 0;
}

/* Those examples that can be given smaller tensors in that way, at all sizes. Returns how many. */
static int try_all(enum gp_codec_lengths lengths, const struct gp_shape *shape, int sizes_count,
		   struct gp_shape (*shape_at)(int i))
{
	struct codec_specs list = {.count = 0};
	int tried = 0;
	codec_specs_add_examples(&list, shape);
	codec_specs_add(&list, "sortquant:bits=6,split=2,sample=3000");
	codec_specs_add(&list, "uniform:bits=4+bitshuffle+zstd");
	codec_specs_add(&list, "fp16+zstd");
	codec_specs_add(&list, "sortquant:bits=6,prune=0.3+rans");
	codec_specs_add(&list, "topk:ratio=0.2+uniform:bits=4+zstd");
	codec_specs_add(&list, "poweriter:rank=16");
	codec_specs_add(&list, "downsample:factor=3+poweriter:rank=2+fp16");
	/* of fewer positions the rank is less, and so the last dimension of the factors */
	codec_specs_add(&list, "poweriter:rank=16+block:dim=channel,clip=mse");
	for (int i = 0; i < list.count; i++) {
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(list.text[i], &spec, &err));
		if (gp_codec_spec_lengths(&spec) != lengths)
			continue;
		struct gp_codec *encoder = open_for(&spec, shape, GP_CODEC_ENCODES);
		struct gp_codec *decoder = open_for(&spec, shape, GP_CODEC_DECODES);
		for (int s = 0; s < sizes_count; s++) {
			const struct gp_shape smaller = shape_at(s);
			at_size(&spec, encoder, decoder, &smaller);
		}
		gp_codec_free(encoder);
		gp_codec_free(decoder);
		tried++;
	}
	return tried;
}

static struct gp_shape flat_at(int i)
{
	return flat(sizes[i]);
}

static void a_smaller_tensor_is_coded_as_by_an_instance_of_its_size(void **state)
{
	(void)state;
	const struct gp_shape shape = flat(MOST);
	assert_true(try_all(GP_CODEC_ELEMENTS, &shape, sizeof sizes / sizeof sizes[0], flat_at) > 50);
}

static struct gp_shape sequence_at(int i)
{
	return sequence(positions[i]);
}

static void a_shorter_sequence_is_coded_as_by_an_instance_of_its_length(void **state)
{
	(void)state;
	const struct gp_shape shape = sequence(POSITIONS);
	assert_true(try_all(GP_CODEC_SEQUENCES, &shape, sizeof positions / sizeof positions[0], sequence_at) > 7);
}

static size_t encode_step(struct gp_codec *c, uint64_t step, uint32_t chunk, int64_t rows, uint8_t *out)
{
	size_t len;
	const struct gp_shape shape = sequence(rows);
	const struct gp_codec_pass pass = {.draw = 2 * step + chunk, .step = step, .chunk = chunk};
	gp_codec_resize(c, &shape);
	OK(gp_codec_encode_pass(c, &pass, x, out, sizeof payload, &len, &err));
	return len;
}

static void a_start_is_of_the_same_length_or_is_not_used(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	const struct gp_shape most = sequence(POSITIONS), shorter = sequence(16);
	OK(gp_codec_spec_parse("poweriter:rank=3,iters=1", &spec, &err));
	struct gp_codec *c = open_for(&spec, &most, GP_CODEC_ENCODES),
			*own = open_for(&spec, &shorter, GP_CODEC_ENCODES);
	for (uint64_t step = 0; step < 2; step++) { /* the second begins where the first has ended */
		const size_t bytes = encode_step(c, step, 0, 16, payload);
		assert_int_equal(bytes, encode_step(own, step, 0, 16, expected));
		assert_memory_equal(payload, expected, bytes); /* behind them is what earlier payloads left */
	}
	encode_step(c, 2, 0, 24, payload);
	encode_step(c, 2, 1, 16, payload);
	const uint64_t before = gp_codec_state_hash(c);
	const size_t len = encode_step(c, 3, 0, 16, payload);
	encode_step(c, 3, 1, POSITIONS, expected);
	gp_codec_undo(c, 3);
	assert_int_equal(gp_codec_state_hash(c), before);
	assert_int_equal(encode_step(c, 3, 0, 16, expected), len);
	assert_memory_equal(payload, expected, len);
	gp_codec_free(c);
	c = open_for(&spec, &most, GP_CODEC_ENCODES);
	assert_int_equal(encode_step(c, 3, 0, 16, payload), len);
	assert_memory_equal(payload, expected, len); /* after a tensor of 24 positions nothing was left */
	gp_codec_free(c);
	gp_codec_free(own);
}

/* Gradients of a chunk that has other rows than its activation had: as many are chosen, but the mask is of no use. */
static void a_mask_of_a_tensor_of_another_size_is_not_used(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	struct gp_codec *activation, *gradient, *decoder;
	const struct gp_shape most = flat(MOST), few = flat(100);
	struct gp_codec_options options = {.role = GP_CODEC_DECODES, .has_gradient = true};
	size_t len;
	OK(gp_codec_spec_parse("topk:ratio=0.0001", &spec, &err));
	OK(gp_codec_open(&spec, &most, &(struct gp_codec_options){.has_gradient = true}, &activation, &err));
	options = (struct gp_codec_options){.role = GP_CODEC_ENCODES, .activation = activation};
	OK(gp_codec_open(&spec, &most, &options, &gradient, &err));
	options.role = GP_CODEC_DECODES;
	OK(gp_codec_open(&spec, &most, &options, &decoder, &err));
	gp_codec_resize(activation, &(struct gp_shape){.ndim = 1, .dim = {5000}});
	gp_codec_resize(gradient, &few);
	gp_codec_resize(decoder, &few);
	float far[5000] = {0};
	far[4999] = 1;
	OK(gp_codec_encode(activation, far, 0, payload, sizeof payload, &len, &err));
	OK(gp_codec_encode(gradient, x, 0, payload, sizeof payload, &len, &err));
	OK(gp_codec_decode(decoder, (struct gp_span){payload, len}, got, &err));
	int others = 0;
	for (int i = 0; i < 100; i++)
		others += got[i] != 0;
	assert_int_equal(others, 1);
	gp_codec_free(decoder);
	gp_codec_free(gradient);
	gp_codec_free(activation);
}

static void what_remembers_places_does_not_resize(void **state)
{
	(void)state;
	static const char *const specs[] = {"ef+uniform:bits=4", "ef+poweriter:rank=4",
					    "delta:samples=9+uniform:bits=4"};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(specs[i], &spec, &err));
		assert_int_equal(gp_codec_spec_lengths(&spec), GP_CODEC_ONE_SHAPE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_smaller_tensor_is_coded_as_by_an_instance_of_its_size),
		cmocka_unit_test(a_shorter_sequence_is_coded_as_by_an_instance_of_its_length),
		cmocka_unit_test(a_start_is_of_the_same_length_or_is_not_used),
		cmocka_unit_test(a_mask_of_a_tensor_of_another_size_is_not_used),
		cmocka_unit_test(what_remembers_places_does_not_resize),
	};
	return cmocka_run_group_tests(tests, fill, NULL);
}
