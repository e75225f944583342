/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of texts (client/data/text_table.h) and the datasets made of them
 * (client/data/data_texts.c); lines of text (client/data/text_lines.h).
 */
#include "tests/unit/data_files.h"

#include "client/data/text_lines.h"
#include "client/data/text_table.h"

static const struct gp_dataset_options with_tokenizer = {.tokenizer = "tests/golden/tokens/wordpiece"};

static void write_text(const char *name, const char *text)
{
	write_data_file(name, text, strlen(text));
}

/* --- tables ----------------------------------------------------------------------------------------------------- */

static void expect_refused(const char *text, const struct gp_table_form *form, const char *message)
{
	struct gp_table t = {0};
	struct gp_err err = {0};
	write_text("table.tsv", text);
	assert_int_not_equal(gp_table_read(data_path("table.tsv"), form, &t, &err), GP_OK);
	assert_null(t.memory);
	assert_message(&err, message);
}

static void columns_have_names_or_numbers(void **state)
{
	(void)state;
	static const struct gp_table_form named = {.text = "b", .pair = "c", .label = "a", .header = true};
	static const struct gp_table_form numbered = {.text = "3", .label = "1"};
	struct gp_table t = {0};
	struct gp_err err = {0};
	write_text("table.tsv", "\xEF\xBB\xBF"
				"a\tb\tc\r\n0\tone \"two\t three\r\n\n1\tx\ty");
	assert_int_equal(gp_table_read(data_path("table.tsv"), &named, &t, &err), GP_OK);
	assert_int_equal(t.rows, 2);
	assert_true(gp_text_is(t.row[0].text, "one \"two") && gp_text_is(t.row[0].pair, " three") &&
		    gp_text_is(t.row[0].label, "0") && t.row[0].line == 2);
	assert_true(gp_text_is(t.row[1].text, "x") && t.row[1].line == 4);
	gp_table_deinit(&t);
	assert_int_equal(gp_table_read(data_path("table.tsv"), &numbered, &t, &err), GP_OK);
	assert_int_equal(t.rows, 3);
	assert_true(gp_text_is(t.row[0].text, "c") && !t.row[0].pair.at);
	gp_table_deinit(&t);
}

static void rows_that_are_wrong_are_named(void **state)
{
	(void)state;
	static const struct gp_table_form named = {.text = "b", .label = "a", .header = true};
	static const struct gp_table_form numbered = {.text = "65", .label = "1"};
	static const struct gp_table_form unnamed = {.text = "b", .label = "1"};
	static const struct gp_table_form twice = {.text = "b", .label = "2", .header = true};
	expect_refused("a\tb\n", &unnamed,
		       "DIR/table.tsv: column 'b': header=0 says that no line has the columns' names; give the "
		       "column's number");
	expect_refused("a\tc\n", &named, "DIR/table.tsv: no column is named 'b'; the first line has 'a', 'c'");
	expect_refused("a\tb\n1\tx\n2\n", &named, "DIR/table.tsv:3: the row has no column 2 ('b')");
	expect_refused("a\tb\n1\t\n", &named, "DIR/table.tsv:2: column 2 ('b') is empty");
	expect_refused("a\tb\n\n", &named, "DIR/table.tsv: there is no row in it");
	expect_refused("", &named, "DIR/table.tsv: the file is empty");
	expect_refused("a\tb\n1\tx\ty\n", &named,
		       "DIR/table.tsv:2: the row has 3 columns, the first line 2: is there a tab within a text?");
	expect_refused("a\tb\n1\t  \n", &named, "DIR/table.tsv:2: column 2 ('b') is nothing but spaces");
	expect_refused("a\tb\tb\n1\tx\ty\n", &named,
		       "DIR/table.tsv: columns 2 and 3 are both named 'b'; give the column's number");
	expect_refused("a\tb\n1\tx\n", &twice, "DIR/table.tsv: text= and label= name the same column, 2");
	expect_refused("a\n", &numbered,
		       "DIR/table.tsv: there is no column '65'; the first line has 1, counted from 1");
}

/* --- datasets --------------------------------------------------------------------------------------------------- */

static struct gp_dataset *open_texts(const char *spec, enum gp_split split)
{
	return open_data(spec, split, &with_tokenizer);
}

#define LONGEST 16

/* What the tensors `length` and `types` say is the mask's affair, too: 0 and 1 where there are tokens, 0 behind them. */
static void load_typed(const struct gp_dataset *d, uint32_t sample, int32_t *tokens, int32_t *mask, int32_t *types,
		       int32_t *label)
{
	int32_t length;
	void *const tensor[] = {tokens, mask, &length, types};
	const struct gp_draw draw = {.sample = sample};
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	assert_int_equal(gp_dataset_load(d, &draw, &scratch, tensor, label, &err), GP_OK);
	gp_data_scratch_deinit(&scratch);
	for (int i = 0; i < gp_dataset_shape(d)->dim[0]; i++) {
		assert_int_equal(mask[i], i < length);
		assert_true(types[i] == 0 || (types[i] == 1 && i < length));
	}
}

static void load(const struct gp_dataset *d, uint32_t sample, int32_t *tokens, int32_t *mask, int32_t *label)
{
	int32_t types[LONGEST];
	assert_true(gp_dataset_shape(d)->dim[0] <= LONGEST);
	load_typed(d, sample, tokens, mask, types, label);
}

static void texts_are_tokens_filled_up_to_the_same_length(void **state)
{
	(void)state;
	int32_t tokens[8], mask[8], label;
	write_text("table.tsv", "label\ttext\n10\t! ?\n9\t! ! ! ! ! ! ! ! !\n");
	write_text("val.tsv", "label\ttext\n10\t?\n");
	char spec[256];
	snprintf(spec, sizeof spec, "tsv:%s/table.tsv,val=%s/val.tsv,text=text,label=label,max=8", data_dir, data_dir);
	struct gp_dataset *d = open_texts(spec, GP_SPLIT_TRAIN);
	assert_int_equal(gp_dataset_samples(d), 2);
	assert_int_equal(gp_dataset_classes(d), 2);
	assert_string_equal(gp_dataset_class_name(d, 0), "9"); /* as numbers */
	load(d, 0, tokens, mask, &label);
	assert_int_equal(label, 1);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(mask[i], i < 4);
		assert_int_equal(tokens[i] == 0, i >= 4); /* [PAD] */
	}
	load(d, 1, tokens, mask, &label);
	assert_int_equal(tokens[7], 3); /* [SEP] stands at the end of a text that was cut */
	assert_int_equal(mask[7], 1);
	gp_dataset_free(d);
	d = open_texts(spec, GP_SPLIT_VAL);
	assert_int_equal(gp_dataset_samples(d), 1);
	load(d, 0, tokens, mask, &label);
	assert_int_equal(label, 1); /* as in training, though it is the only one here */
	gp_dataset_free(d);
}

static void expect_length(const char *more, int64_t wanted, int64_t length)
{
	const struct gp_dataset_options o = {.tokenizer = with_tokenizer.tokenizer, .tokens = wanted};
	char rest[80];
	snprintf(rest, sizeof rest, "/table.tsv,text=2,label=1%s", more);
	struct gp_dataset *d = open_data(data_spec("tsv", rest), GP_SPLIT_TRAIN, &o);
	assert_int_equal(gp_dataset_shape(d)->dim[0], length);
	gp_dataset_free(d);
}

static void texts_are_as_long_as_the_model_takes_unless_max_says_otherwise(void **state)
{
	(void)state;
	write_text("table.tsv", "0\t!\n1\t?\n");
	expect_length("", 0, 128);
	expect_length("", 62, 62);
	expect_length("", 512, 512);
	expect_length("", 3, 8); /* less no tokenizer can do */
	expect_length(",max=20", 62, 20);
	expect_length(",max=128", 62, 128);
}

static void every_tenth_row_is_kept_aside(void **state)
{
	(void)state;
	char text[2048] = "";
	for (int i = 0; i < 25; i++)
		gp_text_append(text, sizeof text, "%s\t!\n", i % 2 ? "yes" : "no");
	write_text("table.tsv", text);
	struct gp_dataset *d = open_texts(data_spec("tsv", "/table.tsv,text=2,label=1"), GP_SPLIT_TRAIN);
	assert_int_equal(gp_dataset_samples(d), 23);
	assert_string_equal(gp_dataset_class_name(d, 1), "yes");
	gp_dataset_free(d);
	d = open_texts(data_spec("tsv", "/table.tsv,text=2,label=1"), GP_SPLIT_VAL);
	assert_int_equal(gp_dataset_samples(d), 2);
	gp_dataset_free(d);
}

static void many_rows_keep_their_order_on_several_threads(void **state)
{
	(void)state;
	enum { ROWS = 5000 };
	char *text = calloc(ROWS, 64), *at = text;
	assert_non_null(text);
	for (int i = 0; i < ROWS; i++) {
		at += sprintf(at, "%d\t", i % 2);
		for (int k = 0; k <= i % 7; k++)
			at += sprintf(at, "! ");
		at += sprintf(at, "\n");
	}
	write_text("table.tsv", text);
	free(text);
	write_text("val.tsv", "0\t!\n");
	char spec[256];
	snprintf(spec, sizeof spec, "tsv:%s/table.tsv,val=%s/val.tsv,text=2,label=1,max=16", data_dir, data_dir);
	struct gp_dataset *d = open_texts(spec, GP_SPLIT_TRAIN);
	assert_int_equal(gp_dataset_samples(d), ROWS);
	for (int i = 0; i < ROWS; i++) {
		int32_t tokens[16], mask[16], label, count = 0;
		load(d, (uint32_t)i, tokens, mask, &label);
		for (int k = 0; k < 16; k++)
			count += mask[k];
		assert_int_equal(count, 3 + i % 7);
		assert_int_equal(label, i % 2);
	}
	gp_dataset_free(d);
}

static void tasks_of_glue_are_known(void **state)
{
	(void)state;
	write_text("cola_train.tsv", "gj04\t1\t\tThe sailors rode.\ngj04\t0\t*\tSailors the.\n");
	write_text("rte_dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n");
	write_text("sst2_train.tsv", "sentence\tlabel\nbleak \t0\n");
	struct gp_dataset *d = open_texts(data_spec("glue-cola", ""), GP_SPLIT_TRAIN);
	assert_int_equal(gp_dataset_samples(d), 2);
	assert_string_equal(gp_dataset_class_name(d, 1), "acceptable");
	assert_false(gp_dataset_has_pictures(d));
	gp_dataset_free(d);
	d = open_texts(data_spec("glue-rte", ",max=12"), GP_SPLIT_VAL);
	int32_t tokens[12], mask[12], types[12], label;
	load_typed(d, 0, tokens, mask, types, &label);
	assert_int_equal(label, 1);
	for (int i = 0; i < 12; i++)
		assert_int_equal(types[i], i == 3 || i == 4); /* b [SEP] */
	assert_int_equal(mask[4] + mask[5], 1);               /* [CLS] a [SEP] b [SEP] */
	gp_dataset_free(d);
	gp_dataset_free(open_texts(data_spec("glue-sst2", ""), GP_SPLIT_TRAIN));
}

static float load_value(const struct gp_dataset *d, uint32_t sample)
{
	static int32_t row[4][128];
	void *const tensor[] = {row[0], row[1], row[2], row[3]};
	const struct gp_draw draw = {.sample = sample};
	struct gp_data_scratch scratch = {0};
	struct gp_err err = {0};
	float value;
	assert_true(gp_dataset_tensors(d) <= 4);
	assert_int_equal(gp_dataset_load(d, &draw, &scratch, tensor, &value, &err), GP_OK);
	gp_data_scratch_deinit(&scratch);
	return value;
}

static void labels_may_be_values_to_predict(void **state)
{
	(void)state;
	write_text("stsb_train.tsv", "score\tsentence1\tsentence2\n3.800\ta\tb\n0\ta\tc\n");
	struct gp_dataset *d = open_texts(data_spec("glue-stsb", ",max=16"), GP_SPLIT_TRAIN);
	assert_true(gp_dataset_has_values(d));
	assert_int_equal(gp_dataset_classes(d), 1);
	assert_true(load_value(d, 0) == 3.8f && load_value(d, 1) == 0);
	gp_dataset_free(d);
	write_text("table.tsv", "a\tb\n-1e3\tx\n-1e3\ty\n");
	write_text("val.tsv", "a\tb\n2.5\tx\n");
	char rest[180];
	snprintf(rest, sizeof rest, "/table.tsv,text=b,label=a,regression,val=%s/val.tsv", data_dir);
	d = open_texts(data_spec("tsv", rest), GP_SPLIT_VAL); /* no value of training, and that is fine */
	assert_true(load_value(d, 0) == 2.5f);
	struct gp_loader *l;
	struct gp_batch *b;
	struct gp_err err = {0};
	const struct gp_loader_spec spec = {.batch = 2, .prefetch = 1};
	assert_int_equal(gp_loader_new(d, &spec, &l, &err), GP_OK);
	assert_int_equal(gp_loader_next(l, &b, &err), GP_OK);
	assert_int_equal(b->label_info.type.dtype, GP_F32);
	assert_true(((const float *)gp_batch_labels(b, 0))[0] == 2.5f && *(const float *)gp_batch_labels(b, 1) == 0);
	gp_loader_give_back(l, b);
	gp_loader_free(l);
	gp_dataset_free(d);
}

static void expect_dataset_refused(const char *rest, enum gp_split split, const char *message)
{
	struct gp_dataset *d;
	struct gp_err err = {0};
	assert_int_not_equal(gp_dataset_open(data_spec("tsv", rest), split, &with_tokenizer, &d, &err), GP_OK);
	assert_message(&err, message);
}

static void mistakes_are_told(void **state)
{
	(void)state;
	const struct gp_dataset_options none = {0};
	struct gp_dataset *d;
	struct gp_err err = {0};
	write_text("table.tsv", "a\tb\n1\tx\n2\ty\n");
	assert_int_equal(
		gp_dataset_open(data_spec("tsv", "/table.tsv,text=b,label=a"), GP_SPLIT_TRAIN, &none, &d, &err),
		GP_USAGE);
	assert_string_equal(err.text, "dataset tsv needs --tokenizer DIR: texts become tokens by it");
	expect_dataset_refused("/table.tsv,text=b", GP_SPLIT_TRAIN,
			       "dataset tsv: label=COLUMN is missing: the column's name or number");
	expect_dataset_refused(
		"/table.tsv,text=b,label=a", GP_SPLIT_VAL,
		"DIR/table.tsv has too few rows: every 10th is for validation where val=FILE is not given");
	expect_dataset_refused("/none.tsv,text=b,label=a", GP_SPLIT_TRAIN,
			       "cannot open DIR/none.tsv: No such file or directory");
	write_text("val.tsv", "a\tb\n3\tx\n");
	char rest[200];
	snprintf(rest, sizeof rest, "/table.tsv,text=b,label=a,val=%s/val.tsv", data_dir);
	expect_dataset_refused(rest, GP_SPLIT_VAL,
			       "DIR/val.tsv:2: the label '3' is not among those to be learnt (2 classes)");
	write_text("table.tsv", "a\tb\n1\tx\n1\ty\n");
	expect_dataset_refused(rest, GP_SPLIT_TRAIN,
			       "DIR/table.tsv: all labels are the same: is this the column of labels?");
}

static void values_that_are_none_are_told(void **state)
{
	(void)state;
	struct gp_dataset *d;
	struct gp_err err = {0};
	write_text("table.tsv", "a\tb\n1\tx\nmany\ty\n");
	expect_dataset_refused("/table.tsv,text=b,label=a,regression", GP_SPLIT_TRAIN,
			       "DIR/table.tsv:3: the value to predict: 'many' is not a number");
	write_text("table.tsv", "a\tb\n1e39\tx\n");
	expect_dataset_refused("/table.tsv,text=b,label=a,regression=yes", GP_SPLIT_TRAIN,
			       "DIR/table.tsv:2: the value to predict: 1e+39 is too large for a float");
	write_text("stsb_train.tsv", "score\tsentence1\tsentence2\n3.8\ta\tb\n0\ta\tc\n");
	assert_int_equal(gp_dataset_open(data_spec("glue-stsb", ",part=1/2,dirichlet=1"), GP_SPLIT_TRAIN,
					 &with_tokenizer, &d, &err),
			 GP_USAGE);
	assert_message(&err, "dataset glue-stsb: its samples have no classes, which dirichlet= divides; leave it out");
	write_text("stsb_dev.tsv", "score\tsentence1\tsentence2\n5.5\ta\tb\n");
	assert_int_equal(gp_dataset_open(data_spec("glue-stsb", ""), GP_SPLIT_VAL, &with_tokenizer, &d, &err),
			 GP_INVALID);
	assert_message(&err, "DIR/stsb_dev.tsv:2: the value to predict: 5.5 is out of range (0..5)");
}

/* --- lines of text ---------------------------------------------------------------------------------------------- */

static void lines_of_files_are_texts_and_pairs(void **state)
{
	(void)state;
	char first[128], second[128];
	struct gp_text_lines l = {0};
	struct gp_err err = {0};
	struct gp_dataset *d;
	int32_t row[4][16], label = 7;
	void *const tensor[] = {row[0], row[1], row[2], row[3]};
	const struct gp_draw draw = {.sample = 1};
	struct gp_data_scratch scratch = {0};
	write_text("one.txt", "! ?\r\n\n!\t?");
	write_text("two.txt", "a\n");
	snprintf(first, sizeof first, "%s/one.txt", data_dir);
	snprintf(second, sizeof second, "%s/two.txt", data_dir);
	const char *const path[] = {first, second};
	assert_int_equal(gp_text_lines_read(path, 2, &l, &err), GP_OK);
	assert_int_equal(l.table.rows, 3);
	assert_true(gp_text_is(l.table.row[0].text, "! ?") && !l.table.row[0].pair.at && l.table.row[0].line == 1);
	assert_true(gp_text_is(l.table.row[1].text, "!") && gp_text_is(l.table.row[1].pair, "?"));
	assert_true(l.table.row[1].line == 3 && l.path[1] == first && l.path[2] == second && l.table.row[2].line == 1);
	assert_int_equal(gp_dataset_from_texts(&l.table, with_tokenizer.tokenizer, 16, NULL, 2, 1, &d, &err), GP_OK);
	gp_text_lines_deinit(&l);
	assert_int_equal(gp_dataset_samples(d), 3);
	assert_int_equal(gp_dataset_classes(d), 2);
	assert_int_equal(gp_dataset_load(d, &draw, &scratch, tensor, &label, &err), GP_OK);
	assert_int_equal(label, 0);
	assert_int_equal(row[1][4] + row[1][5], 1); /* [CLS] ! [SEP] ? [SEP] */
	gp_data_scratch_deinit(&scratch);
	gp_dataset_free(d);
}

static void lines_that_are_no_texts_are_told(void **state)
{
	(void)state;
	static const struct {
		const char *text, *message;
	} cases[] = {{"", "there is no text in DIR/lines.txt"}, {"\n\r\n", "there is no text in DIR/lines.txt"}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_text_lines l = {0};
		struct gp_err err = {0};
		write_text("lines.txt", cases[i].text);
		const char *const path[] = {data_path("lines.txt")};
		assert_int_equal(gp_text_lines_read(path, 1, &l, &err), GP_INVALID);
		assert_null(l.path);
		assert_message(&err, cases[i].message);
	}
}

static void a_file_that_is_no_text_is_refused(void **state)
{
	(void)state;
	static const char picture[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
	struct gp_text_lines l = {0};
	struct gp_err err = {0};
	write_data_file("lines.txt", picture, sizeof picture - 1);
	const char *const path[] = {data_path("lines.txt")};
	assert_int_equal(gp_text_lines_read(path, 1, &l, &err), GP_INVALID);
	assert_message(&err, "DIR/lines.txt:3: a byte of value 0, which no text has: is this a file of another kind?");
}

static void bad_lines_are_told_and_the_others_read(void **state)
{
	(void)state;
	static const struct {
		uint32_t line, row;
		const char *why;
	} bad[] = {{1, 0, "nothing stands before the tab: a line has one text, or two with a tab between them"},
		   {3, 1, "nothing stands behind the tab: a line has one text, or two with a tab between them"},
		   {4, 1, "more than one tab: a line has one text, or two with a tab between them"},
		   {7, 2, "nothing stands before the tab: a line has one text, or two with a tab between them"},
		   {8, 2, "nothing but spaces"}};
	struct gp_text_lines l = {0};
	struct gp_err err = {0};
	write_text("lines.txt", "\tb\na\nb\t\na\tb\tc\n\nd\n \t\n  \n");
	const char *const path[] = {data_path("lines.txt")};
	assert_int_equal(gp_text_lines_read(path, 1, &l, &err), GP_OK);
	assert_int_equal(l.table.rows, 2);
	assert_int_equal(l.table.row[1].line, 6);
	assert_int_equal(l.bad_count, 5);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(l.bad[i].line, bad[i].line);
		assert_int_equal(l.bad[i].row, bad[i].row);
		assert_string_equal(l.bad[i].why, bad[i].why);
		assert_ptr_equal(l.bad[i].path, path[0]);
	}
	gp_text_lines_deinit(&l);
	write_text("lines.txt", "\tb\n");
	assert_int_equal(gp_text_lines_read(path, 1, &l, &err), GP_OK);
	assert_int_equal(l.table.rows, 0);
	assert_int_equal(l.bad_count, 1);
	gp_text_lines_deinit(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_have_names_or_numbers),
		cmocka_unit_test(rows_that_are_wrong_are_named),
		cmocka_unit_test(texts_are_tokens_filled_up_to_the_same_length),
		cmocka_unit_test(texts_are_as_long_as_the_model_takes_unless_max_says_otherwise),
		cmocka_unit_test(every_tenth_row_is_kept_aside),
		cmocka_unit_test(many_rows_keep_their_order_on_several_threads),
		cmocka_unit_test(tasks_of_glue_are_known),
		cmocka_unit_test(mistakes_are_told),
		cmocka_unit_test(labels_may_be_values_to_predict),
		cmocka_unit_test(values_that_are_none_are_told),
		cmocka_unit_test(lines_of_files_are_texts_and_pairs),
		cmocka_unit_test(lines_that_are_no_texts_are_told),
		cmocka_unit_test(a_file_that_is_no_text_is_refused),
		cmocka_unit_test(bad_lines_are_told_and_the_others_read),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}
