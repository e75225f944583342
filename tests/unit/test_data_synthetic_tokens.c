/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic texts (client/data/data_synthetic_tokens.c), and the loader with
 * samples of several tensors.
 */
#include "tests/unit/data_files.h"

enum { LENGTH = 13, VOCAB = 30, CLASSES = 3 };
static const char spec[] = "synthetic:tokens=13,vocab=30,classes=3,samples=60";
static const struct gp_dataset_options as_is;

struct text {
	int32_t tokens[LENGTH], mask[LENGTH], length, types[LENGTH], label;
};

static struct text load(const struct gp_dataset *d, uint32_t epoch, uint32_t index)
{
	const struct gp_draw draw = {1, epoch, index};
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	struct text t;
	memset(&t, 0xa5, sizeof t);
	if (gp_dataset_load(d, &draw, &scratch, (void *[]){t.tokens, t.mask, &t.length, t.types}, &t.label, &err) !=
	    GP_OK)
		fail_msg("%s", err.text);
	gp_data_scratch_deinit(&scratch);
	return t;
}

static int length_of(const struct text *t)
{
	int length = 0;
	while (length < LENGTH && t->mask[length])
		length++;
	return length;
}

static void a_sample_is_tokens_with_mask_length_and_types(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data(spec, GP_SPLIT_TRAIN, &as_is);
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {LENGTH}}};
	const struct gp_tensor_info *info = gp_dataset_tensor_info(d);
	assert_int_equal(gp_dataset_tensors(d), 4);
	assert_string_equal(info[0].name, "tokens");
	assert_int_equal(info[0].values, 30);
	assert_int_equal(info[1].values, 2);
	assert_string_equal(info[1].name, "mask");
	assert_string_equal(info[2].name, "length");
	assert_int_equal(info[2].values, LENGTH + 1);
	assert_int_equal(gp_tensor_bytes(&info[2]), 4);
	assert_string_equal(info[3].name, "types");
	assert_int_equal(info[3].values, 2);
	for (int i = 0; i < 4; i += i == 1 ? 2 : 1) { /* all but the length */
		assert_true(gp_type_equal(&info[i].type, &row));
		assert_int_equal(gp_tensor_bytes(&info[i]), LENGTH * 4);
	}
	assert_int_equal(gp_dataset_classes(d), CLASSES);
	assert_int_equal(gp_dataset_samples(d), 60);
	gp_dataset_free(d);
}

static void the_mask_tells_tokens_from_what_fills_up(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data(spec, GP_SPLIT_TRAIN, &as_is);
	int seen[LENGTH + 1] = {0};
	for (uint32_t i = 0; i < gp_dataset_samples(d); i++) {
		const struct text t = load(d, 0, i);
		const int length = length_of(&t);
		seen[length]++;
		assert_int_equal(t.length, length);
		assert_int_equal(t.label, i % CLASSES);
		for (int k = 0; k < LENGTH; k++) {
			assert_int_equal(t.mask[k], k < length);
			assert_int_equal(t.types[k], k >= length / 2 && k < length);
			if (k < length)
				assert_in_range(t.tokens[k], 1, VOCAB - 1);
			else
				assert_int_equal(t.tokens[k], 0);
		}
	}
	int lengths = 0;
	for (int k = 0; k <= LENGTH; k++)
		lengths += seen[k] > 0;
	assert_true(lengths >= 8); /* 3..13 are possible */
	assert_int_equal(seen[0] + seen[1] + seen[2], 0);
	gp_dataset_free(d);
}

static void samples_are_the_same_each_time_and_differ(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data(spec, GP_SPLIT_TRAIN, &as_is), *e = open_data(spec, GP_SPLIT_TRAIN, &as_is);
	struct gp_dataset *val = open_data(spec, GP_SPLIT_VAL, &as_is);
	struct gp_dataset *other =
		open_data("synthetic:tokens=13,vocab=30,classes=3,samples=60,seed=1", GP_SPLIT_TRAIN, &as_is);
	int same_val = 0, same_other = 0, same_next = 0;
	assert_int_equal(gp_dataset_samples(val), 12);
	for (uint32_t i = 0; i < 12; i++) {
		const struct text a = load(d, 0, i), b = load(e, 5, i), v = load(val, 0, i), o = load(other, 0, i);
		const struct text n = load(d, 0, i + CLASSES);
		assert_memory_equal(&a, &b, sizeof a);
		same_val += memcmp(&a, &v, sizeof a) == 0;
		same_other += memcmp(&a, &o, sizeof a) == 0;
		same_next += memcmp(&a, &n, sizeof a) == 0;
	}
	assert_int_equal(same_val + same_other + same_next, 0);
	gp_dataset_free(d);
	gp_dataset_free(e);
	gp_dataset_free(val);
	gp_dataset_free(other);
}

/* Pinned, so that a run on another machine or of a later version sees the same texts. */
static void the_first_text_is_pinned(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data("synthetic:tokens=8,vocab=100,classes=4", GP_SPLIT_TRAIN, &as_is);
	int32_t tokens[8], mask[8], length, types[8], label;
	struct gp_data_scratch scratch = {0};
	struct gp_err err;
	const struct gp_draw draw = {0, 0, 2};
	static const int32_t wanted[8] = {14, 99, 82, 86, 14, 78, 50, 54};
	assert_int_equal(gp_dataset_load(d, &draw, &scratch, (void *[]){tokens, mask, &length, types}, &label, &err),
			 GP_OK);
	assert_memory_equal(tokens, wanted, sizeof wanted);
	assert_int_equal(label, 2);
	gp_dataset_free(d);
}

/* The class whose tokens occur most often. */
static int guess(const struct text *t)
{
	int count[CLASSES] = {0}, best = 0;
	for (int k = 0; k < LENGTH; k++)
		count[t->tokens[k] % CLASSES] += t->mask[k];
	for (int c = 1; c < CLASSES; c++)
		best = count[c] > count[best] ? c : best;
	return best;
}

static int recognised(const char *text)
{
	int right = 0;
	struct gp_dataset *d = open_data(text, GP_SPLIT_VAL, &as_is);
	for (uint32_t i = 0; i < 300; i++) {
		const struct text t = load(d, 0, i);
		right += guess(&t) == t.label;
	}
	gp_dataset_free(d);
	return right;
}

static void the_tokens_tell_the_class_as_far_as_noise_lets_them(void **state)
{
	(void)state;
	assert_int_equal(recognised("synthetic:tokens=13,vocab=30,classes=3,noise=0"), 300);
	const int some = recognised("synthetic:tokens=13,vocab=30,classes=3,noise=0.5");
	const int none = recognised("synthetic:tokens=13,vocab=30,classes=3,noise=1");
	assert_in_range(some, 220, 299);
	assert_in_range(none, 60, 150);
}

static void what_does_not_fit_is_refused(void **state)
{
	(void)state;
	struct gp_dataset *d = NULL;
	const struct gp_dataset_options pictures = {.shape = {.ndim = 3, .dim = {8, 8, 3}}};
	struct gp_err err;
	assert_open_fails("synthetic:tokens=0", GP_SPLIT_TRAIN, GP_USAGE,
			  "dataset synthetic: tokens: 0 is out of range (1..65536)");
	assert_open_fails("synthetic:tokens=8,vocab=4,classes=4", GP_SPLIT_TRAIN, GP_USAGE,
			  "dataset synthetic: vocab: 4 is too small for 4 classes with a token each");
	assert_open_fails("synthetic:tokens=8,shape=3x8x8", GP_SPLIT_TRAIN, GP_USAGE,
			  "dataset synthetic: no key 'shape' (keys: tokens=128,vocab=1000,classes=2,samples=10000,"
			  "noise=0.5,seed=0,limit=N,part=I/N,dirichlet=A,part-seed=0)");
	assert_open_fails("synthetic:tokens=8,flip=1", GP_SPLIT_TRAIN, GP_USAGE,
			  "dataset synthetic: no key 'flip' (keys: tokens=128,vocab=1000,classes=2,samples=10000,"
			  "noise=0.5,seed=0,limit=N,part=I/N,dirichlet=A,part-seed=0)");
	assert_int_equal(gp_dataset_open(spec, GP_SPLIT_TRAIN, &pictures, &d, &err), GP_INVALID);
	assert_string_equal(err.text, "dataset synthetic with tokens= has no pictures to bring to a size; leave "
				      "--input out");
	assert_null(d);
	assert_false(gp_dataset_takes_any_shape(spec));
	assert_true(gp_dataset_takes_any_shape("synthetic"));
	assert_false(gp_dataset_takes_any_shape("synthetic,shape=1x8x8"));
	assert_false(gp_dataset_takes_any_shape("nothing"));
}

static void the_smallest_vocabulary_has_a_token_for_each_class(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data("synthetic:tokens=13,vocab=4,classes=3,noise=0", GP_SPLIT_TRAIN, &as_is);
	for (uint32_t i = 0; i < 9; i++) {
		const struct text t = load(d, 0, i);
		for (int k = 0; k < length_of(&t); k++)
			assert_int_equal(t.tokens[k], t.label ? t.label : CLASSES);
	}
	gp_dataset_free(d);
}

static void pictures_are_not_prepared_like_texts(void **state)
{
	(void)state;
	struct gp_dataset *like = open_data(spec, GP_SPLIT_VAL, &as_is), *d = NULL;
	struct gp_err err;
	assert_int_equal(gp_dataset_from_files(like, (const char *const[]){"x.png"}, 1, &d, &err), GP_INVALID);
	assert_string_equal(err.text,
			    "dataset synthetic has no pictures but tokens: no picture can be prepared like them");
	gp_dataset_free(like);
}

static void batches_hold_every_tensor_and_zeros_behind_the_last_sample(void **state)
{
	(void)state;
	struct gp_dataset *d = open_data(spec, GP_SPLIT_TRAIN, &as_is);
	const struct gp_loader_spec ls = {.batch = 8, .shuffle = true, .seed = 5, .prefetch = 2};
	struct gp_loader *l;
	struct gp_err err;
	assert_int_equal(gp_loader_new(d, &ls, &l, &err), GP_OK);
	for (int i = 0; i < 8; i++) {
		struct gp_batch *b;
		assert_int_equal(gp_loader_next(l, &b, &err), GP_OK);
		assert_int_equal(b->tensors, 4);
		assert_string_equal(b->info[1].name, "mask");
		assert_string_equal(b->label_info.name, "label");
		assert_int_equal(b->valid, i < 7 ? 8 : 4);
		for (int k = 0; k < 8; k++) {
			struct text t = {0};
			if (k < b->valid)
				t = load(d, 0, b->samples[k]);
			assert_memory_equal((int32_t *)b->data[0] + k * LENGTH, t.tokens, sizeof t.tokens);
			assert_memory_equal((int32_t *)b->data[1] + k * LENGTH, t.mask, sizeof t.mask);
			assert_int_equal(((int32_t *)b->data[2])[k], t.length);
			assert_memory_equal((int32_t *)b->data[3] + k * LENGTH, t.types, sizeof t.types);
			assert_int_equal(gp_batch_classes(b)[k], t.label);
		}
		gp_loader_give_back(l, b);
	}
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void a_model_that_reads_rows_gets_them_unless_the_text_says_more(void **state)
{
	(void)state;
	const struct gp_dataset_options row = {.row = 16, .row_values = 50};
	static const char *const texts[] = {"synthetic", "synthetic:classes=4", "synthetic:tokens=8",
					    "synthetic:shape=1x8x8"};
	static const int64_t length[] = {16, 16, 8, 8}, values[] = {50, 50, 1000, 0};
	for (int i = 0; i < 4; i++) {
		struct gp_err err = {0};
		struct gp_dataset *d;
		assert_int_equal(gp_dataset_open(texts[i], GP_SPLIT_TRAIN, &row, &d, &err), GP_OK);
		assert_int_equal(gp_dataset_shape(d)->dim[0], length[i]);
		assert_int_equal(gp_dataset_tensor_info(d)[0].values, values[i]);
		assert_string_equal(gp_dataset_tensor_info(d)[0].name, i == 3 ? "image" : "tokens");
		gp_dataset_free(d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_model_that_reads_rows_gets_them_unless_the_text_says_more),
		cmocka_unit_test(a_sample_is_tokens_with_mask_length_and_types),
		cmocka_unit_test(the_mask_tells_tokens_from_what_fills_up),
		cmocka_unit_test(samples_are_the_same_each_time_and_differ),
		cmocka_unit_test(the_first_text_is_pinned),
		cmocka_unit_test(the_tokens_tell_the_class_as_far_as_noise_lets_them),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(the_smallest_vocabulary_has_a_token_for_each_class),
		cmocka_unit_test(pictures_are_not_prepared_like_texts),
		cmocka_unit_test(batches_hold_every_tensor_and_zeros_behind_the_last_sample),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}
