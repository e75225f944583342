/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain text for masked language modelling (client/data/data_plain_text.c), and
 * batches with a list of labels for each sample (client/data/data_loader.c).
 */
#include "tests/unit/data_files.h"

enum { PLACES = 3, MAX = 20 }; /* places of max=20 */

static const struct gp_dataset_options one_thread = {.tokenizer = "tests/golden/tokens/wordpiece", .threads = 1},
				       four_threads = {.tokenizer = "tests/golden/tokens/wordpiece", .threads = 4};

struct sample {
	int32_t tokens[MAX], length, types[MAX], positions[PLACES], labels[PLACES];
};

static struct sample load(const struct gp_dataset *d, uint64_t seed, uint32_t epoch, uint32_t number)
{
	struct sample s;
	void *const tensor[] = {s.tokens, &s.length, s.types, s.positions};
	const struct gp_draw draw = {seed, epoch, number};
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	assert_int_equal(gp_dataset_load(d, &draw, &scratch, tensor, s.labels, &err), GP_OK);
	gp_data_scratch_deinit(&scratch);
	return s;
}

static bool equal(const struct sample *a, const struct sample *b)
{
	return memcmp(a, b, sizeof *a) == 0;
}

/* So many lines, of 1 to 16 words each, with an empty line and one of blanks among them. */
static void write_lines(const char *name, int lines)
{
	char *text = calloc((size_t)lines + 3, 40), *at = text;
	assert_non_null(text);
	for (int i = 0; i < lines; i++) {
		for (int k = 0; k <= i % 16; k++)
			at += sprintf(at, "%c ", k % 2 ? '?' : '!');
		at += sprintf(at, i == 2 ? "\n\n \t\n" : i % 5 ? "\n" : "\r\n");
	}
	write_data_file(name, text, strlen(text));
	free(text);
}

static void lines_are_samples_and_every_tenth_is_kept_aside(void **state)
{
	(void)state;
	write_lines("lines.txt", 50);
	struct gp_dataset *d = open_data(data_spec("text", "/lines.txt,max=20"), GP_SPLIT_TRAIN, &one_thread);
	assert_int_equal(gp_dataset_samples(d), 45);
	assert_int_equal(gp_dataset_labels(d), PLACES);
	assert_int_equal(gp_dataset_tensors(d), 4);
	assert_true(gp_dataset_tokenizer(d) != 0);
	struct sample s = load(d, 1, 0, 3);
	assert_int_equal(s.length, 4 + 2); /* empty lines are none */
	for (int i = s.length; i < MAX; i++)
		assert_int_equal(s.tokens[i], 0); /* [PAD] */
	assert_true(s.positions[0] >= 1 && s.positions[0] <= 4 && s.labels[0] > 0);
	assert_int_equal(s.labels[1], GP_LABEL_NONE);
	assert_int_equal(load(d, 1, 0, 9).length, 11 + 2); /* the tenth is not there */
	gp_dataset_free(d);
	d = open_data(data_spec("text", "/lines.txt,max=20"), GP_SPLIT_VAL, &one_thread);
	assert_int_equal(gp_dataset_samples(d), 5);
	assert_int_equal(load(d, 1, 0, 0).length, 10 + 2);
	gp_dataset_free(d);
	d = open_data(data_spec("text", "/lines.txt,max=20,limit=7"), GP_SPLIT_TRAIN, &one_thread);
	assert_int_equal(gp_dataset_samples(d), 7);
	gp_dataset_free(d);
}

static void masks_differ_between_epochs_but_not_in_a_validation(void **state)
{
	(void)state;
	char spec[300];
	write_lines("lines.txt", 40);
	write_lines("val.txt", 40);
	snprintf(spec, sizeof spec, "text:%s/lines.txt,val=%s/val.txt,max=20", data_dir, data_dir);
	struct gp_dataset *train = open_data(spec, GP_SPLIT_TRAIN, &one_thread),
			  *again = open_data(spec, GP_SPLIT_TRAIN, &four_threads),
			  *val = open_data(spec, GP_SPLIT_VAL, &one_thread);
	assert_int_equal(gp_dataset_samples(train), 40);
	assert_int_equal(gp_dataset_samples(val), 40);
	const struct sample a = load(train, 1, 0, 15), b = load(train, 1, 1, 15), c = load(again, 1, 0, 15);
	const struct sample x = load(val, 1, 0, 15), y = load(val, 2, 3, 15);
	assert_false(equal(&a, &b));
	assert_true(equal(&a, &c));
	assert_true(equal(&x, &y));
	gp_dataset_free(train);
	gp_dataset_free(again);
	gp_dataset_free(val);
}

/* Also where lines were left out before. */
static void parts_are_all_lines_for_training_and_overlap_nowhere(void **state)
{
	(void)state;
	int lengths[17] = {0};
	write_lines("lines.txt", 40);
	for (int part = 1; part <= 3; part++) {
		char rest[64];
		snprintf(rest, sizeof rest, "/lines.txt,max=20,part=%d/3", part);
		struct gp_dataset *d = open_data(data_spec("text", rest), GP_SPLIT_TRAIN, &one_thread);
		assert_int_equal(gp_dataset_samples(d), 12);
		for (uint32_t i = 0; i < 12; i++)
			lengths[load(d, 1, 0, i).length - 2]++;
		gp_dataset_free(d);
		d = open_data(data_spec("text", rest), GP_SPLIT_VAL, &one_thread);
		assert_int_equal(gp_dataset_samples(d), 4);
		gp_dataset_free(d);
	}
	/* A limit is of the whole: 10 lines, of which the first part has four. */
	struct gp_dataset *d =
		open_data(data_spec("text", "/lines.txt,max=20,limit=10,part=1/3"), GP_SPLIT_TRAIN, &one_thread);
	assert_int_equal(gp_dataset_samples(d), 4);
	gp_dataset_free(d);
	d = open_data(data_spec("text", "/lines.txt,max=20"), GP_SPLIT_TRAIN, &one_thread);
	for (uint32_t i = 0; i < 36; i++)
		lengths[load(d, 1, 0, i).length - 2]--;
	for (int i = 0; i < 17; i++)
		assert_int_equal(lengths[i], 0);
	gp_dataset_free(d);
}

static void batches_have_a_list_of_labels_for_each_sample(void **state)
{
	(void)state;
	struct gp_loader *l;
	struct gp_batch *b;
	struct gp_err err;
	const struct gp_loader_spec spec = {.batch = 8, .seed = 5, .prefetch = 1};
	write_lines("lines.txt", 20);
	struct gp_dataset *d = open_data(data_spec("text", "/lines.txt,max=20,bucket=2"), GP_SPLIT_TRAIN, &one_thread);
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_OK);
	for (int batch = 0; batch < 3; batch++) {
		assert_int_equal(gp_loader_next(l, &b, &err), GP_OK);
		assert_int_equal(gp_batch_labels_each(b), PLACES);
		for (int i = 0; i < b->valid; i++) {
			const struct sample s = load(d, 5, 0, b->samples[i]);
			assert_memory_equal(gp_batch_labels(b, (size_t)i), s.labels, sizeof s.labels);
		}
		assert_int_equal(b->valid, batch < 2 ? 8 : 2);
		gp_loader_give_back(l, b);
	}
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void expect_refused(const char *rest, enum gp_status code, const char *message)
{
	struct gp_dataset *d = NULL;
	struct gp_err err = {0};
	assert_int_equal(gp_dataset_open(data_spec("text", rest), GP_SPLIT_TRAIN, &one_thread, &d, &err), code);
	assert_message(&err, message);
}

static void files_and_parts_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const struct gp_dataset_options none = {0};
	struct gp_dataset *d = NULL;
	struct gp_err err = {0};
	write_data_file("empty.txt", "\n \n", 3);
	write_data_file("one.txt", "!\n", 2);
	write_data_file("bytes.txt", "! \xff ?\n", 6); /* no UTF-8 */
	write_data_file("wide.txt", "\xff\xfe!\0\n", 6);
	expect_refused("/wide.txt", GP_INVALID, "DIR/wide.txt: its text is UTF-16; convert it to UTF-8");
	expect_refused("/empty.txt", GP_INVALID, "DIR/empty.txt: there is no text in it");
	expect_refused("/one.txt,part=2/2", GP_INVALID,
		       "DIR/one.txt has too few lines: without val=FILE every 10th is for validation, and "
		       "part=I/N takes one of N lines");
	expect_refused("/one.txt,part=3/2", GP_USAGE,
		       "dataset text: part: '3/2' is not I/N, part I of N, as 1/3, 2/3 and 3/3 are");
	expect_refused("/one.txt,part=2", GP_USAGE,
		       "dataset text: part: '2' is not I/N, part I of N, as 1/3, 2/3 and 3/3 are");
	expect_refused("/one.txt,part=1/2,part-seed=1", GP_USAGE,
		       "dataset text: part-seed: a part is every Nth line, and nothing is drawn; leave it out");
	expect_refused("/one.txt,part=1/2,dirichlet=1", GP_USAGE,
		       "dataset text: its samples have no classes, which dirichlet= divides; leave it out");
	assert_int_equal(gp_dataset_open(data_spec("text", "/one.txt"), GP_SPLIT_TRAIN, &none, &d, &err), GP_USAGE);
	assert_message(&err, "dataset text needs --tokenizer DIR: texts become tokens by it");
	d = open_data(data_spec("text", "/bytes.txt,max=20"), GP_SPLIT_TRAIN, &one_thread);
	assert_int_equal(load(d, 1, 0, 0).length, 4); /* WordPiece leaves U+FFFD out */
	gp_dataset_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_samples_and_every_tenth_is_kept_aside),
		cmocka_unit_test(masks_differ_between_epochs_but_not_in_a_validation),
		cmocka_unit_test(parts_are_all_lines_for_training_and_overlap_nowhere),
		cmocka_unit_test(batches_have_a_list_of_labels_for_each_sample),
		cmocka_unit_test(files_and_parts_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}
