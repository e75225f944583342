/* SPDX-License-Identifier: Apache-2.0
 *
 * What a codec's pass is estimated to take (gp_codec_work_for): every codec says
 * something, more for larger tensors, and those that can take seconds say so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/codec/codec_impl.h"
#include "common/wire/transfer.h"

static uint64_t work_of(const char *text, enum gp_codec_role role, int64_t n, int64_t h, int64_t w, int64_t c)
{
	struct gp_err err;
	struct gp_codec_spec spec;
	const struct gp_shape shape = {.ndim = 4, .dim = {n, h, w, c}};
	const struct gp_codec_options options = {.role = role, .chunks = 1};
	uint64_t ns = 0;
	if (gp_codec_spec_parse(text, &spec, &err) != GP_OK ||
	    gp_codec_work_for(&spec, &shape, &options, &ns, &err) != GP_OK)
		fail_msg("%s: %s", text, err.text);
	return ns;
}

static void every_codec_says_what_it_takes_and_more_for_more_elements(void **state)
{
	(void)state;
	for (int i = 0; gp_codec_ops_at(i); i++)
		for (const char *const *text = gp_codec_info(i)->examples; *text; text++)
			for (int role = GP_CODEC_ENCODES; role <= GP_CODEC_DECODES; role++) {
				const uint64_t small = work_of(*text, (enum gp_codec_role)role, 1, 64, 64, 8);
				const uint64_t large = work_of(*text, (enum gp_codec_role)role, 16, 64, 64, 8);
				if (small < 1 << 15 || large <= small)
					fail_msg("%s: %llu and %llu ns", *text, (unsigned long long)small,
						 (unsigned long long)large);
			}
}

/* 1 MiB took 4.1 s once: not less than half of it may be said, nor many times as much. */
static void the_highest_rank_and_the_most_iterations_take_seconds(void **state)
{
	(void)state;
	const uint64_t most = work_of("poweriter:rank=256,iters=64", GP_CODEC_ENCODES, 1, 16, 32, 512);
	const uint64_t usual = work_of("poweriter:rank=8,iters=3", GP_CODEC_ENCODES, 1, 16, 32, 64);
	assert_in_range(most, UINT64_C(2000000000), UINT64_C(40000000000));
	assert_true(usual < GP_FLOW_SLOW_NS);
	/* 150 MiB of it */
	assert_true(work_of("poweriter:rank=256,iters=64", GP_CODEC_ENCODES, 150, 16, 32, 512) >= 149 * most);
}

static void the_highest_level_of_zstd_takes_a_hundred_times_the_lowest(void **state)
{
	(void)state;
	const uint64_t fast = work_of("zstd:level=1", GP_CODEC_ENCODES, 1, 64, 64, 64);
	const uint64_t slow = work_of("zstd:level=19", GP_CODEC_ENCODES, 1, 64, 64, 64);
	assert_true(fast < GP_FLOW_SLOW_NS && slow > 50 * fast && slow > GP_FLOW_SLOW_NS);
	assert_true(work_of("zstd:level=19", GP_CODEC_DECODES, 1, 64, 64, 64) < GP_FLOW_SLOW_NS);
	uint64_t before = 0;
	for (int level = 1; level <= 19; level++) {
		char text[32];
		snprintf(text, sizeof text, "zstd:level=%d", level);
		const uint64_t now = work_of(text, GP_CODEC_ENCODES, 1, 64, 64, 64);
		assert_true(now >= before);
		before = now;
	}
}

/* Which may be asked for an element more than once, and has a pass over a block for each power of two in its size. */
static void hadamard_takes_longer_with_larger_blocks_and_to_encode(void **state)
{
	(void)state;
	uint64_t before = 0;
	for (int size = 8; size <= 1024; size *= 2) {
		char text[32];
		snprintf(text, sizeof text, "hadamard:size=%d", size);
		const uint64_t raw = work_of("raw", GP_CODEC_DECODES, 1, 64, 64, 64);
		const uint64_t decode = work_of(text, GP_CODEC_DECODES, 1, 64, 64, 64) - raw;
		const uint64_t encode = work_of(text, GP_CODEC_ENCODES, 1, 64, 64, 64) - raw;
		assert_true(decode > before && encode == 3 * decode);
		before = decode;
	}
	assert_true(before == UINT64_C(12) * 64 * 64 * 64);
}

/* Behind error feedback an encoder decodes what it has written. */
static void a_wrapper_counts_what_its_encoder_decodes(void **state)
{
	(void)state;
	assert_true(work_of("ef+uniform:bits=8", GP_CODEC_ENCODES, 1, 64, 64, 8) >
		    work_of("uniform:bits=8", GP_CODEC_BOTH, 1, 64, 64, 8));
}

static void sums_stop_instead_of_wrapping(void **state)
{
	(void)state;
	assert_true(gp_codec_work_add(UINT64_MAX, 1) == UINT64_MAX);
	assert_true(gp_codec_work_times(UINT64_MAX / 2, 3) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_codec_says_what_it_takes_and_more_for_more_elements),
		cmocka_unit_test(the_highest_rank_and_the_most_iterations_take_seconds),
		cmocka_unit_test(the_highest_level_of_zstd_takes_a_hundred_times_the_lowest),
		cmocka_unit_test(hadamard_takes_longer_with_larger_blocks_and_to_encode),
		cmocka_unit_test(a_wrapper_counts_what_its_encoder_decodes),
		cmocka_unit_test(sums_stop_instead_of_wrapping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
