/* SPDX-License-Identifier: Apache-2.0
 *
 * Masking of texts (client/data/text_mask.h).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/data/text_mask.h"

enum { MOST = 64, VOCABULARY = 1000, BEGIN = 0, PAD = 1, END = 2, UNKNOWN = 3, MASK = 999 };

static const struct gp_text_masking masking = {
	.special = {BEGIN, PAD, END, UNKNOWN, MASK}, .specials = 5, .mask = MASK, .vocabulary = VOCABULARY, .most = 10};

/* A row of `count` tokens, of which the first, the last and `unknown` of the others are special. */
static void make_row(int32_t *token, int count, int unknown)
{
	for (int i = 0; i < count; i++)
		token[i] = 4 + i * 7 % 990;
	for (int i = 1; i <= unknown; i++)
		token[i] = UNKNOWN;
	token[0] = BEGIN;
	token[count - 1] = END;
}

static bool is_special(int32_t token)
{
	return token <= UNKNOWN || token == MASK;
}

static void a_share_of_the_words_is_chosen_and_no_special_token(void **state)
{
	(void)state;
	for (int count = 3; count <= MOST; count++) {
		int32_t before[MOST], token[MOST], positions[10], labels[10];
		const struct gp_draw draw = {7, 1, (uint32_t)count};
		make_row(before, count, count > 8 ? 2 : 0);
		memcpy(token, before, sizeof token);
		const int words = count - 2 - (count > 8 ? 2 : 0);
		const int wanted = (int)fmax(1, floor(0.15 * words + 0.5));
		assert_int_equal(gp_text_mask(&masking, &draw, token, count, positions, labels), wanted);
		for (int i = 0; i < 10; i++) {
			if (i >= wanted) {
				assert_int_equal(positions[i], 0);
				assert_int_equal(labels[i], GP_LABEL_NONE);
				continue;
			}
			assert_true(i == 0 || positions[i] > positions[i - 1]);
			assert_int_equal(labels[i], before[positions[i]]);
			assert_false(is_special(labels[i]));
			assert_true(token[positions[i]] == MASK || !is_special(token[positions[i]]));
			before[positions[i]] = token[positions[i]];
		}
		assert_memory_equal(before, token, (size_t)count * sizeof *token); /* nothing else has changed */
	}
}

static void a_text_without_words_has_nothing_to_guess(void **state)
{
	(void)state;
	int32_t token[4] = {BEGIN, UNKNOWN, MASK, END}, positions[10], labels[10];
	const int32_t before[4] = {BEGIN, UNKNOWN, MASK, END};
	const struct gp_draw draw = {0};
	assert_int_equal(gp_text_mask(&masking, &draw, token, 4, positions, labels), 0);
	assert_memory_equal(token, before, sizeof token);
	for (int i = 0; i < 10; i++)
		assert_int_equal(labels[i], GP_LABEL_NONE);
}

/* 64 x 3000 tokens: bounds of six standard deviations, and the draws are the same on every machine. */
static void of_ten_chosen_words_eight_are_masked_and_one_is_replaced(void **state)
{
	(void)state;
	double masked = 0, kept = 0, all = 0, at[MOST] = {0};
	bool seen[VOCABULARY] = {false};
	for (uint32_t sample = 0; sample < 3000; sample++) {
		int32_t token[MOST], positions[10], labels[10];
		const struct gp_draw draw = {3, 0, sample};
		make_row(token, MOST, 0);
		const int n = gp_text_mask(&masking, &draw, token, MOST, positions, labels);
		for (int i = 0; i < n; i++) {
			masked += token[positions[i]] == MASK;
			kept += token[positions[i]] == labels[i];
			seen[token[positions[i]]] = true;
			at[positions[i]]++;
			all++;
		}
	}
	assert_true(all == 3000 * 9);
	assert_true(fabs(masked / all - 0.8) < 6 * sqrt(0.16 / all));
	assert_true(fabs(kept / all - 0.1) < 6 * sqrt(0.09 / all) + 1.0 / VOCABULARY);
	int different = 0;
	for (int i = 0; i < VOCABULARY; i++)
		different += seen[i];
	assert_true(different > 800 && !seen[BEGIN] && !seen[PAD] && !seen[END] && !seen[UNKNOWN]);
	for (int i = 1; i < MOST - 1; i++) /* every place has the same chance */
		assert_true(fabs(at[i] / 3000 - 9.0 / 62) < 6 * sqrt(9.0 / 62 / 3000));
}

static void mask_again(uint64_t seed, uint32_t epoch, uint32_t sample, int32_t *positions)
{
	int32_t token[MOST], labels[10];
	const struct gp_draw draw = {seed, epoch, sample};
	make_row(token, MOST, 0);
	gp_text_mask(&masking, &draw, token, MOST, positions, labels);
}

static void draws_are_of_seed_epoch_and_sample(void **state)
{
	(void)state;
	int32_t first[10], other[10];
	mask_again(1, 2, 3, first);
	mask_again(1, 2, 3, other);
	assert_memory_equal(first, other, sizeof first);
	mask_again(2, 2, 3, other);
	assert_memory_not_equal(first, other, sizeof first);
	mask_again(1, 3, 3, other);
	assert_memory_not_equal(first, other, sizeof first);
	mask_again(1, 2, 4, other);
	assert_memory_not_equal(first, other, sizeof first);
}

static void places_follow_from_the_number_of_tokens(void **state)
{
	(void)state;
	assert_int_equal(gp_text_mask_most(8), 1);
	assert_int_equal(gp_text_mask_most(64), 10);
	assert_int_equal(gp_text_mask_most(70), 11); /* 10.5 */
	assert_int_equal(gp_text_mask_most(128), 19);
	assert_int_equal(gp_text_mask_most(512), 77);
}

static void special_tokens_are_those_of_the_tokenizer(void **state)
{
	(void)state;
	struct gp_tokenizer *t;
	struct gp_err err;
	struct gp_text_masking m;
	assert_int_equal(gp_tokenizer_open("tests/golden/tokens/wordpiece", &t, &err), GP_OK);
	gp_text_masking_init(&m, t, 128);
	assert_int_equal(m.specials, 5);
	assert_int_equal(m.mask, gp_tokenizer_special(t, GP_TOKEN_MASK));
	for (int i = 1; i < m.specials; i++)
		assert_true(m.special[i] > m.special[i - 1]);
	assert_int_equal(m.most, 19);
	gp_tokenizer_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_share_of_the_words_is_chosen_and_no_special_token),
		cmocka_unit_test(a_text_without_words_has_nothing_to_guess),
		cmocka_unit_test(of_ten_chosen_words_eight_are_masked_and_one_is_replaced),
		cmocka_unit_test(draws_are_of_seed_epoch_and_sample),
		cmocka_unit_test(places_follow_from_the_number_of_tokens),
		cmocka_unit_test(special_tokens_are_those_of_the_tokenizer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
