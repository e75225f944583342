/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader (client/data/data_loader.c): order, determinism, seek, padding, errors, shutdown.
 */
#include "tests/unit/data_files.h"

#include "common/base/fault.h"
#include "common/base/rng.h"

static const char spec_text[] = "synthetic:shape=3x8x8,classes=4,samples=50";

static struct gp_dataset *open_synthetic(void)
{
	return open_data(spec_text, GP_SPLIT_TRAIN, &(struct gp_dataset_options){.augment = true});
}

static struct gp_loader *start(struct gp_dataset *d, struct gp_loader_spec spec)
{
	struct gp_loader *l = NULL;
	struct gp_err err;
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_OK);
	return l;
}

static const float *pixels(const struct gp_batch *b)
{
	return b->data[0];
}

static struct gp_batch *next(struct gp_loader *l)
{
	struct gp_batch *b = NULL;
	struct gp_err err = {0};
	if (gp_loader_next(l, &b, &err) != GP_OK)
		fail_msg("%s", err.text);
	return b;
}

static void seek(struct gp_loader *l, uint32_t epoch, uint32_t index)
{
	struct gp_err err;
	assert_int_equal(gp_loader_seek(l, epoch, index, &err), GP_OK);
}

static const struct gp_loader_spec usual = {.batch = 8, .shuffle = true, .seed = 5, .prefetch = 2};

static void an_epoch_holds_every_sample_once(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader *l = start(d, usual);
	assert_int_equal(gp_loader_batches_per_epoch(l), 7);
	for (uint32_t epoch = 0; epoch < 2; epoch++) {
		int per_class[4] = {0}, seen[50] = {0};
		for (uint32_t i = 0; i < 7; i++) {
			struct gp_batch *b = next(l);
			assert_int_equal(b->epoch, epoch);
			assert_int_equal(b->index, i);
			assert_int_equal(b->valid, i < 6 ? 8 : 2);
			for (int k = 0; k < b->valid; k++) {
				per_class[gp_batch_classes(b)[k]]++;
				assert_in_range(b->samples[k], 0, 49);
				assert_int_equal(seen[b->samples[k]]++, 0);
			}
			gp_loader_give_back(l, b);
		}
		assert_int_equal(per_class[0], 13);
		assert_int_equal(per_class[1], 13);
		assert_int_equal(per_class[2], 12);
		assert_int_equal(per_class[3], 12);
	}
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void short_last_batch_is_padded_with_zeros(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader *l = start(d, usual);
	for (int i = 0; i < 6; i++)
		gp_loader_give_back(l, next(l));
	struct gp_batch *b = next(l);
	bool real_is_zero = true;
	for (int i = 0; i < 2 * 192; i++)
		real_is_zero &= pixels(b)[i] == 0;
	assert_false(real_is_zero);
	for (int i = 2 * 192; i < 8 * 192; i++)
		assert_true(pixels(b)[i] == 0);
	for (int k = 2; k < 8; k++)
		assert_int_equal(gp_batch_classes(b)[k], 0);
	gp_loader_give_back(l, b);
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void drop_last_leaves_the_short_batch_out(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader_spec spec = usual;
	spec.drop_last = true;
	struct gp_loader *l = start(d, spec);
	assert_int_equal(gp_loader_batches_per_epoch(l), 6);
	for (int i = 0; i < 7; i++) {
		struct gp_batch *b = next(l);
		assert_int_equal(b->valid, 8);
		assert_int_equal(b->epoch, i / 6);
		gp_loader_give_back(l, b);
	}
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void order_is_the_documented_permutation(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader *l = start(d, usual);
	uint32_t order[50];
	float image[192];
	gp_rng_permutation(5, gp_rng_stream(GP_RNG_SHUFFLE, 3), order, 50);
	seek(l, 3, 2);
	struct gp_batch *b = next(l);
	for (uint32_t k = 0; k < 8; k++) {
		struct gp_data_scratch scratch = {0};
		struct gp_draw draw = {5, 3, order[16 + k]};
		struct gp_err err;
		int32_t label;
		assert_int_equal(gp_dataset_load(d, &draw, &scratch, (void *[]){image}, &label, &err), GP_OK);
		assert_int_equal(gp_batch_classes(b)[k], label);
		assert_memory_equal(pixels(b) + 192 * k, image, sizeof image);
		gp_data_scratch_deinit(&scratch);
	}
	gp_loader_give_back(l, b);
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void loaders_and_seeks_agree_to_the_bit(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic(), *e = open_synthetic();
	struct gp_loader_spec deep = usual;
	deep.prefetch = 9;
	struct gp_loader *a = start(d, usual), *b = start(e, deep);
	seek(b, 7, 1); /* somewhere else first, while the thread is at work */
	gp_loader_give_back(b, next(b));
	seek(b, 1, 3);
	for (int i = 0; i < 7 + 3; i++)
		gp_loader_give_back(a, next(a));
	for (int i = 0; i < 9; i++) {
		struct gp_batch *x = next(a), *y = next(b);
		assert_int_equal(x->epoch, y->epoch);
		assert_int_equal(x->index, y->index);
		assert_int_equal(x->valid, y->valid);
		assert_memory_equal(pixels(x), pixels(y), 8 * 192 * sizeof(float));
		assert_memory_equal(gp_batch_classes(x), gp_batch_classes(y), 8 * sizeof(int32_t));
		gp_loader_give_back(a, x);
		gp_loader_give_back(b, y);
	}
	gp_loader_free(a);
	gp_loader_free(b);
	gp_dataset_free(d);
	gp_dataset_free(e);
}

static void seeds_and_epochs_differ_in_order_and_augmentation(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader_spec other = usual, plain = usual;
	other.seed = 6;
	plain.shuffle = false;
	struct gp_loader *a = start(d, usual), *b = start(d, other), *c = start(d, plain);
	struct gp_batch *x = next(a), *y = next(b);
	assert_memory_not_equal(pixels(x), pixels(y), 8 * 192 * sizeof(float));
	gp_loader_give_back(a, x);
	gp_loader_give_back(b, y);
	x = next(c); /* unshuffled: the same samples in both epochs, other crops */
	seek(c, 1, 0);
	y = next(c);
	assert_memory_equal(gp_batch_classes(x), gp_batch_classes(y), 8 * sizeof(int32_t));
	assert_memory_not_equal(pixels(x), pixels(y), 8 * 192 * sizeof(float));
	gp_loader_give_back(c, x);
	gp_loader_give_back(c, y);
	gp_loader_free(a);
	gp_loader_free(b);
	gp_loader_free(c);
	gp_dataset_free(d);
}

static void a_steady_loader_allocates_nothing(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader *l = start(d, usual);
	gp_loader_give_back(l, next(l));
	uint64_t before = gp_mem_calls();
	for (int i = 0; i < 20; i++)
		gp_loader_give_back(l, next(l));
	seek(l, 0, 0);
	gp_loader_give_back(l, next(l));
	assert_int_equal(gp_mem_calls(), before);
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void batches_may_be_given_back_in_any_order(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader *l = start(d, usual);
	struct gp_batch *a = next(l), *b = next(l), *c = next(l);
	gp_loader_give_back(l, b);
	gp_loader_give_back(l, c);
	gp_loader_give_back(l, a);
	for (uint32_t i = 3; i < 6; i++) {
		a = next(l);
		assert_int_equal(a->index, i);
		gp_loader_give_back(l, a);
	}
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void free_works_at_any_moment(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	gp_loader_free(NULL);
	for (int i = 0; i < 50; i++) {
		struct gp_loader *l = start(d, usual);
		if (i % 3 == 1)
			next(l);
		if (i % 3 == 2)
			seek(l, (uint32_t)i, 0);
		gp_loader_free(l);
	}
	gp_dataset_free(d);
}

static void impossible_requests_are_refused(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader *l = NULL;
	struct gp_err err;
	struct gp_loader_spec spec = usual;
	spec.batch = 64;
	spec.drop_last = true;
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_INVALID);
	assert_string_equal(err.text,
			    "dataset synthetic has 50 samples, fewer than one batch of 64; choose a smaller batch");
	spec = usual;
	spec.batch = 1 << 30;
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_INVALID);
	assert_null(l);
	l = start(d, usual);
	assert_int_equal(gp_loader_seek(l, 0, 7, &err), GP_INVALID);
	assert_string_equal(err.text, "batch 7 of epoch 0 is wanted, but an epoch has 7 batches");
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void write_broken_folder(void)
{
	assert_int_equal(mkdir(data_path("train"), 0700), 0);
	assert_int_equal(mkdir(data_path("train/a"), 0700), 0);
	write_data_file("train/a/1.png", "not a picture", 13);
}

static void a_read_error_names_the_file_and_stays_until_seek(void **state)
{
	(void)state;
	write_broken_folder();
	struct gp_dataset *d =
		open_data(data_spec("folder", ",size=8"), GP_SPLIT_TRAIN, &(struct gp_dataset_options){0});
	struct gp_loader *l = start(d, usual);
	for (int i = 0; i < 4; i++) {
		struct gp_batch *b = NULL;
		struct gp_err err;
		assert_int_equal(gp_loader_next(l, &b, &err), GP_INVALID);
		assert_null(b);
		assert_message(&err, "DIR/train/a/1.png: neither JPEG nor PNG by its content; convert or remove it");
		if (i == 1)
			seek(l, 2, 0);
	}
	gp_loader_free(l);
	gp_dataset_free(d);
}

#ifdef GP_FAULTS
static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	for (uint64_t nth = 1; nth <= 6; nth++) {
		struct gp_loader *l = NULL;
		struct gp_err err;
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		assert_int_equal(gp_loader_new(d, &usual, &l, &err), GP_NOMEM);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		assert_null(l);
	}
	gp_dataset_free(d);
}

static void running_out_of_memory_in_the_thread_reaches_the_caller(void **state)
{
	(void)state;
	struct gp_dataset *d = open_synthetic();
	struct gp_loader *l = NULL;
	struct gp_batch *b = NULL;
	struct gp_err err;
	gp_fault_arm(GP_FAULT_ALLOC, 7); /* six are the loader's own; the thread's scratch is next */
	assert_int_equal(gp_loader_new(d, &usual, &l, &err), GP_OK);
	assert_int_equal(gp_loader_next(l, &b, &err), GP_NOMEM);
	seek(l, 0, 0);
	gp_loader_give_back(l, next(l));
	gp_loader_free(l);
	gp_dataset_free(d);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_epoch_holds_every_sample_once),
		cmocka_unit_test(short_last_batch_is_padded_with_zeros),
		cmocka_unit_test(drop_last_leaves_the_short_batch_out),
		cmocka_unit_test(order_is_the_documented_permutation),
		cmocka_unit_test(loaders_and_seeks_agree_to_the_bit),
		cmocka_unit_test(seeds_and_epochs_differ_in_order_and_augmentation),
		cmocka_unit_test(a_steady_loader_allocates_nothing),
		cmocka_unit_test(batches_may_be_given_back_in_any_order),
		cmocka_unit_test(free_works_at_any_moment),
		cmocka_unit_test(impossible_requests_are_refused),
		cmocka_unit_test_setup_teardown(a_read_error_names_the_file_and_stays_until_seek, make_data_dir,
						remove_data_dir),
#ifdef GP_FAULTS
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
		cmocka_unit_test(running_out_of_memory_in_the_thread_reaches_the_caller),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
