/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of about one length (client/data/data_bucket.h), alone and through a
 * loader of texts.
 */
#include "tests/unit/data_files.h"

#include "client/data/data_bucket.h"
#include "common/base/rng.h"

enum { SAMPLES = 1003, BATCH = 8, BATCHES = SAMPLES / BATCH };

static uint32_t length_of(const void *arg, uint32_t sample)
{
	(void)arg;
	return 1 + sample * 7919 % 50;
}

static void draw_order(uint64_t seed, uint32_t epoch, int batches, uint32_t order[SAMPLES])
{
	static uint64_t room[2 * SAMPLES];
	const struct gp_bucket b = {batches, BATCH, seed, length_of, NULL, room};
	gp_rng_permutation(seed, gp_rng_stream(GP_RNG_SHUFFLE, epoch), order, SAMPLES);
	gp_bucket_order(&b, epoch, order, SAMPLES);
}

static void expect_permutation(const uint32_t *order)
{
	bool seen[SAMPLES] = {false};
	for (int i = 0; i < SAMPLES; i++) {
		assert_true(order[i] < SAMPLES && !seen[order[i]]);
		seen[order[i]] = true;
	}
}

/* Tokens that batches have when each is as long as its longest sample. */
static uint64_t padded(const uint32_t *order)
{
	uint64_t sum = 0;
	for (int b = 0; b < BATCHES; b++) {
		uint32_t longest = 0;
		for (int i = 0; i < BATCH; i++) {
			const uint32_t n = length_of(NULL, order[b * BATCH + i]);
			longest = n > longest ? n : longest;
		}
		sum += longest * BATCH;
	}
	return sum;
}

static void most_of_the_padding_is_gone(void **state)
{
	(void)state;
	uint32_t plain[SAMPLES], some[SAMPLES], all[SAMPLES];
	uint64_t tokens = 0;
	draw_order(5, 0, 0, plain);
	draw_order(5, 0, 20, some);
	draw_order(5, 0, GP_BUCKET_MOST, all);
	for (int i = 0; i < SAMPLES; i++)
		tokens += length_of(NULL, (uint32_t)i);
	expect_permutation(some);
	expect_permutation(all);
	print_message("%d tokens; padded %d, %d with 20, %d with all\n", (int)tokens, (int)padded(plain),
		      (int)padded(some), (int)padded(all));
	assert_true(padded(some) - tokens < (padded(plain) - tokens) / 4);
	assert_true(padded(all) < padded(some));
}

static void without_it_the_order_is_that_of_the_seed(void **state)
{
	(void)state;
	uint32_t order[SAMPLES], plain[SAMPLES];
	gp_rng_permutation(5, gp_rng_stream(GP_RNG_SHUFFLE, 2), plain, SAMPLES);
	for (int batches = 0; batches < 2; batches++) {
		draw_order(5, 2, batches, order);
		assert_memory_equal(order, plain, sizeof order);
	}
}

/* What makes no whole batch is what it was without buckets, so that the same samples are left out of an epoch. */
static void seed_and_epoch_decide_the_order(void **state)
{
	(void)state;
	uint32_t a[SAMPLES], b[SAMPLES], plain[SAMPLES];
	draw_order(5, 1, 20, a);
	draw_order(5, 1, 20, b);
	assert_memory_equal(a, b, sizeof a);
	draw_order(5, 2, 20, b);
	assert_memory_not_equal(a, b, sizeof a);
	draw_order(6, 1, 20, b);
	assert_memory_not_equal(a, b, sizeof a);
	draw_order(5, 1, 0, plain);
	assert_memory_equal(a + BATCHES * BATCH, plain + BATCHES * BATCH, (SAMPLES - BATCHES * BATCH) * sizeof *a);
}

/* Short and long batches come in any order, not from the shortest on. */
static void lengths_of_batches_do_not_rise(void **state)
{
	(void)state;
	uint32_t order[SAMPLES];
	int falls = 0;
	draw_order(5, 0, GP_BUCKET_MOST, order);
	for (int b = 1; b < BATCHES; b++)
		falls += length_of(NULL, order[b * BATCH]) < length_of(NULL, order[(b - 1) * BATCH]);
	assert_in_range(falls, BATCHES / 4, 3 * BATCHES / 4);
}

static void write_table(int rows)
{
	char *text = calloc((size_t)rows, 64), *at = text;
	assert_non_null(text);
	for (int i = 0; i < rows; i++) {
		at += sprintf(at, "%d\t!", i % 2);
		for (int k = 0; k < i * 5 % 13; k++)
			at += sprintf(at, " !");
		at += sprintf(at, "\n");
	}
	write_data_file("table.tsv", text, strlen(text));
	free(text);
}

static int length_in(const struct gp_batch *b, int sample)
{
	const int32_t *mask = (const int32_t *)b->data[1] + sample * 24;
	int n = 0;
	for (int i = 0; i < 24; i++)
		n += mask[i];
	return n;
}

/* How many batches, with 6 of 180 texts of 13 lengths each, have texts that differ by more than one token. */
static int mixed_batches(const char *rest, bool shuffle)
{
	const struct gp_dataset_options o = {.tokenizer = "tests/golden/tokens/wordpiece"};
	const struct gp_loader_spec spec = {
		.batch = 6, .shuffle = shuffle, .drop_last = true, .seed = 3, .prefetch = 1};
	struct gp_dataset *d = open_data(data_spec("tsv", rest), GP_SPLIT_TRAIN, &o);
	struct gp_loader *l;
	struct gp_err err = {0};
	int mixed = 0;
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_OK);
	for (uint32_t i = 0; i < gp_loader_batches_per_epoch(l); i++) {
		struct gp_batch *b;
		int least = 100, most = 0;
		assert_int_equal(gp_loader_next(l, &b, &err), GP_OK);
		for (int k = 0; k < b->valid; k++) {
			const int n = length_in(b, k);
			least = n < least ? n : least;
			most = n > most ? n : most;
		}
		mixed += most > least + 1;
		gp_loader_give_back(l, b);
	}
	gp_loader_free(l);
	gp_dataset_free(d);
	return mixed;
}

static void a_loader_makes_such_batches(void **state)
{
	(void)state;
	write_table(200);
	assert_int_equal(mixed_batches("/table.tsv,text=2,label=1,max=24,bucket=1000", true), 0);
	assert_true(mixed_batches("/table.tsv,text=2,label=1,max=24", true) > 20);
	assert_true(mixed_batches("/table.tsv,text=2,label=1,max=24,bucket=1000", false) >
		    20); /* validation: in order */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(most_of_the_padding_is_gone),
		cmocka_unit_test(without_it_the_order_is_that_of_the_seed),
		cmocka_unit_test(seed_and_epoch_decide_the_order),
		cmocka_unit_test(lengths_of_batches_do_not_rise),
		cmocka_unit_test(a_loader_makes_such_batches),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}
