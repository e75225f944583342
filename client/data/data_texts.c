/* SPDX-License-Identifier: Apache-2.0
 *
 * Labelled texts in tables: "tsv:FILE,text=COLUMN[,pair=COLUMN],label=COLUMN",
 * and the tasks of GLUE whose columns are known. With "regression" labels are
 * values to predict, f32, and there is one class. A tokenizer makes tokens of them
 * when the dataset is opened; a sample is the tensor "tokens" (`max` of them,
 * filled up with the tokenizer's padding), and for models to choose from the
 * tensors "mask", 1 where there is a token of the text, "length", how many there
 * are, and "types", 1 for the second text of a pair where the tokenizer tells the
 * two apart.
 *
 * Classes are the labels of the training file, sorted (whole numbers by value,
 * before words), so that both files give them the same numbers; a label that the
 * training file lacks is an error. Where `val` names no file, every tenth row
 * is kept aside for validation.
 * Test: tests/unit/test_data_texts.c
 */
#include "client/data/data_internal.h"

#include <string.h>

#include "client/data/data_bucket.h"
#include "client/data/data_check.h"
#include "client/data/text_cache.h"
#include "client/data/text_labels.h"
#include "client/data/text_rows.h"
#include "client/data/text_table.h"
#include "client/data/text_values.h"
#include "client/text/text_file.h"
#include "client/text/utf8.h"
#include "common/base/log.h"

enum { TOKENS, MASK, LENGTH, SEGMENTS, TENSORS };
enum { MAX_DEFAULT = 128, MAX_LEAST = 8, MAX_MOST = 65536, KEPT_ASIDE = 10 };

/* A task of GLUE: the files in its folder, their columns, and what its labels are called. */
struct task {
	const char *train, *val;
	struct gp_table_form form;
	const char *labels[2], *names[2];
	const struct gp_value_range *range; /* labels are values to predict; NULL: they are classes */
};

static const struct task cola = {"cola_train.tsv",
				 "cola_dev.tsv",
				 {.text = "4", .label = "2"},
				 {"0", "1"},
				 {"unacceptable", "acceptable"},
				 NULL};
static const struct task rte = {"rte_train.tsv",
				"rte_dev.tsv",
				{.text = "sentence1", .pair = "sentence2", .label = "label", .header = true},
				{"entailment", "not_entailment"},
				{"entailment", "not_entailment"},
				NULL};
static const struct task sst2 = {
	"sst2_train.tsv", "sst2_dev.tsv",           {.text = "sentence", .label = "label", .header = true},
	{"0", "1"},       {"negative", "positive"}, NULL};

static const struct gp_value_range similarity = {0, 5};
static const struct task stsb = {"stsb_train.tsv",
				 "stsb_dev.tsv",
				 {.text = "sentence1", .pair = "sentence2", .label = "score", .header = true},
				 .range = &similarity};

#define COLUMN_ROOM 64

struct texts {
	const struct task *task;                                       /* NULL: tsv */
	char text[COLUMN_ROOM], pair[COLUMN_ROOM], label[COLUMN_ROOM]; /* columns; "" where there is none */
	char val[GP_TEXT_PATH];
	int64_t max; /* 0 until the data set is opened: not given */
	bool header, header_given;
	struct gp_tokenizer *tokenizer;
	struct gp_text_making making;
	struct gp_text_rows rows;
	bool values;       /* labels are values to predict: value_of in place of label_of */
	int32_t *label_of; /* (samples) */
	float *value_of;   /* (samples) */
};

/* --- options ---------------------------------------------------------------------------------------------------- */

static enum gp_status begin(struct gp_dataset *d, const struct task *task, struct gp_spec *spec, struct gp_err *err)
{
	GP_TRY(gp_alloc_array(&d->self, 1, sizeof(struct texts), err));
	struct texts *t = d->self;
	t->task = task;
	t->values = task && task->range;
	int64_t bucket = 0;
	GP_TRY(gp_spec_int(spec, "bucket", 0, GP_BUCKET_MOST, &bucket, err));
	d->bucket = (int)bucket;
	return gp_spec_int(spec, "max", MAX_LEAST, MAX_MOST, &t->max, err);
}

static enum gp_status configure_cola(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	return begin(d, &cola, spec, err);
}

static enum gp_status configure_rte(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	return begin(d, &rte, spec, err);
}

static enum gp_status configure_sst2(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	return begin(d, &sst2, spec, err);
}

static enum gp_status configure_stsb(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	return begin(d, &stsb, spec, err);
}

static enum gp_status read_text(struct gp_spec *spec, const char *key, bool needed, char *out, size_t size,
				struct gp_err *err)
{
	struct gp_text value;
	if (!gp_spec_given(spec, key, &value)) {
		if (needed)
			GP_FAIL(err, GP_USAGE, "dataset tsv: %s=COLUMN is missing: the column's name or number", key);
		return GP_OK;
	}
	if (value.len == 0 || !gp_text_copy(value, out, size))
		GP_FAIL(err, GP_USAGE, "dataset tsv: %s= has 1 to %zu characters", key, size - 1);
	return GP_OK;
}

static bool is_name(const char *column)
{
	return column[strspn(column, "0123456789")] != '\0';
}

static enum gp_status configure_tsv(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	GP_TRY(begin(d, NULL, spec, err));
	struct texts *t = d->self;
	GP_TRY(read_text(spec, "text", true, t->text, sizeof t->text, err));
	GP_TRY(read_text(spec, "pair", false, t->pair, sizeof t->pair, err));
	GP_TRY(read_text(spec, "label", true, t->label, sizeof t->label, err));
	GP_TRY(read_text(spec, "val", false, t->val, sizeof t->val, err));
	GP_TRY(gp_spec_bool(spec, "regression", &t->values, err));
	struct gp_text given;
	t->header_given = gp_spec_given(spec, "header", &given);
	t->header = is_name(t->text) || is_name(t->pair) || is_name(t->label);
	return gp_spec_bool(spec, "header", &t->header, err);
}

/* --- files ------------------------------------------------------------------------------------------------------ */

static struct gp_table_form form_of(const struct texts *t)
{
	if (t->task)
		return t->task->form;
	return (struct gp_table_form){t->text, t->pair[0] ? t->pair : NULL, t->label, t->header};
}

/* The file of a split. With `tsv` and without `val` both are one. */
static enum gp_status path_of(const struct texts *t, const char *dir, enum gp_split split, char path[GP_TEXT_PATH],
			      struct gp_err *err)
{
	if (t->task)
		return gp_text_path(dir, split == GP_SPLIT_TRAIN ? t->task->train : t->task->val, path, err);
	snprintf(path, GP_TEXT_PATH, "%s", split == GP_SPLIT_VAL && t->val[0] ? t->val : dir);
	return GP_OK;
}

static bool shares_one_file(const struct texts *t)
{
	return !t->task && !t->val[0];
}

/* For validation, where both splits lie in one file. */
static bool is_kept_aside(uint32_t row)
{
	return row % KEPT_ASIDE == KEPT_ASIDE - 1;
}

/* Leaves the rows of that split; `limit` 0: all of them. */
static void choose_rows(struct gp_table *table, bool one_file, enum gp_split split, int64_t limit)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < table->rows; i++) {
		if (one_file && is_kept_aside(i) != (split == GP_SPLIT_VAL))
			continue;
		table->row[kept++] = table->row[i];
	}
	table->rows = limit && limit < kept ? (uint32_t)limit : kept;
}

/* --- labels ----------------------------------------------------------------------------------------------------- */

/* Names of columns above numbered ones are a row like any other. */
static void warn_of_header(const struct texts *t, const struct gp_table *table, const char *path)
{
	char shown[GP_SHOWN];
	if (t->header || t->header_given || table->rows < 3 || table->row[0].line != 1)
		return;
	for (uint32_t i = 1; i < table->rows; i++)
		if (gp_text_labels_compare(table->row[i].label, table->row[0].label) == 0)
			return;
	gp_log(data, GP_LOG_WARN,
	       "%s: only the first line has the label '%s': if it holds the columns' names, give header=1", path,
	       gp_text_shown(table->row[0].label, shown));
}

static enum gp_status number_labels(struct texts *t, const struct gp_table *table, const char *path,
				    const struct gp_text_labels *l, struct gp_err *err)
{
	void *memory;
	char shown[GP_SHOWN];
	GP_TRY(gp_alloc_array(&memory, table->rows, sizeof *t->label_of, err));
	t->label_of = memory;
	for (uint32_t i = 0; i < table->rows; i++) {
		bool there;
		t->label_of[i] = gp_text_labels_find(l, table->row[i].label, &there);
		if (!there)
			GP_FAIL(err, GP_INVALID, "%s:%u: the label '%s' is not among those to be learnt (%d classes)",
				path, table->row[i].line, gp_text_shown(table->row[i].label, shown), l->count);
	}
	return GP_OK;
}

static enum gp_status name_classes(struct gp_dataset *d, const struct gp_text_labels *l, struct gp_err *err)
{
	const struct texts *t = d->self;
	GP_TRY(gp_data_name_classes(d, l->count, t->task ? t->task->names : NULL, err));
	for (int i = 0; i < l->count && !t->task; i++)
		gp_text_shown(l->name[i], d->class_names[i]);
	return GP_OK;
}

/* One class stands for what a row of the model's outputs is: one number. */
static enum gp_status read_values(struct gp_dataset *d, const struct gp_table *table, const char *path,
				  struct gp_err *err)
{
	static const char *const name[] = {"value"};
	struct texts *t = d->self;
	d->values = true;
	GP_TRY(gp_data_name_classes(d, 1, name, err));
	return gp_text_values_read(table, path, t->task ? t->task->range : NULL, &t->value_of, err);
}

static enum gp_status read_classes(struct gp_dataset *d, const struct gp_table *table, const char *path,
				   const struct gp_text_labels *l, struct gp_err *err)
{
	if (l->count < 2)
		GP_FAIL(err, GP_INVALID, "%s: all labels are the same: is this the column of labels?", path);
	GP_TRY(number_labels(d->self, table, path, l, err));
	return name_classes(d, l, err);
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

/* The classes: those of a task are known, those of other tables are in the training file. */
static enum gp_status find_labels(const struct texts *t, const char *dir, enum gp_split split,
				  const struct gp_table *own, struct gp_table *training, struct gp_text_labels *l,
				  struct gp_err *err)
{
	char path[GP_TEXT_PATH];
	const struct gp_table_form form = form_of(t);
	if (t->task) {
		for (l->count = 0; l->count < 2; l->count++)
			l->name[l->count] = gp_text_of(t->task->labels[l->count]);
		return GP_OK;
	}
	GP_TRY(path_of(t, dir, GP_SPLIT_TRAIN, path, err));
	if (split == GP_SPLIT_TRAIN && !shares_one_file(t)) {
		warn_of_header(t, own, path);
		return gp_text_labels_collect(l, own, path, err);
	}
	GP_TRY(gp_table_read(path, &form, training, err)); /* `own` has lost the rows of the other split */
	choose_rows(training, shares_one_file(t), GP_SPLIT_TRAIN, 0);
	if (split == GP_SPLIT_TRAIN)
		warn_of_header(t, training, path);
	return gp_text_labels_collect(l, training, path, err);
}

static enum gp_status fill(struct gp_dataset *d, const char *path, const struct gp_table *table,
			   const struct gp_text_labels *l, struct gp_err *err)
{
	struct texts *t = d->self;
	if (table->rows == 0)
		GP_FAIL(err, GP_INVALID,
			"%s has too few rows: every %dth is for validation where val=FILE is not given", path,
			KEPT_ASIDE);
	GP_TRY(t->values ? read_values(d, table, path, err) : read_classes(d, table, path, l, err));
	GP_TRY(gp_text_rows_get(t->tokenizer, path, table, (int)t->max, &t->making, &t->rows, err));
	d->samples = table->rows;
	if (t->rows.cut)
		gp_log(data, GP_LOG_WARN, "%s: %u of %u texts have more than %lld tokens and lose their end (max=)",
		       path, t->rows.cut, table->rows, (long long)t->max);
	return GP_OK;
}

static enum gp_status open_rows(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				struct gp_text_labels *l, struct gp_err *err)
{
	struct texts *t = d->self;
	struct gp_table table = {0}, training = {0};
	const struct gp_table_form form = form_of(t);
	char path[GP_TEXT_PATH];
	GP_TRY(path_of(t, spec->dir, split, path, err));
	enum gp_status status = gp_table_read(path, &form, &table, err);
	if (status == GP_OK) {
		choose_rows(&table, shares_one_file(t), split, 0);
		status = t->values ? GP_OK : find_labels(t, spec->dir, split, &table, &training, l, err);
	}
	if (status == GP_OK) {
		choose_rows(&table, false, split, spec->limit);
		status = fill(d, path, &table, l, err);
	}
	gp_table_deinit(&table);
	gp_table_deinit(&training);
	return status;
}

static void settle_max(struct texts *t, int64_t wanted)
{
	if (t->max == 0)
		t->max = wanted == 0 ? MAX_DEFAULT : wanted < MAX_LEAST ? MAX_LEAST : wanted;
	t->max = t->max < MAX_MOST ? t->max : MAX_MOST;
}

static void describe(struct gp_dataset *d)
{
	const struct texts *t = d->self;
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {t->max}}};
	d->tokenizer = gp_tokenizer_hash(t->tokenizer);
	d->tensors = TENSORS;
	d->tensor[TOKENS] = (struct gp_tensor_info){"tokens", row, gp_tokenizer_vocabulary(t->tokenizer)};
	d->tensor[MASK] = (struct gp_tensor_info){"mask", row, 2};
	d->tensor[LENGTH] = (struct gp_tensor_info){"length", {GP_I32, {.ndim = 1, .dim = {1}}}, t->max + 1};
	d->tensor[SEGMENTS] = (struct gp_tensor_info){"types", row, 2};
}

static enum gp_status open_texts(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				 const struct gp_dataset_options *options, struct gp_err *err)
{
	struct texts *t = d->self;
	void *labels;
	if (options->shape.ndim)
		GP_FAIL(err, GP_INVALID, "dataset %s has texts, no pictures to bring to a size; leave --input out",
			d->class->info.name);
	if (!options->tokenizer)
		GP_FAIL(err, GP_USAGE, "dataset %s needs --tokenizer DIR: texts become tokens by it",
			d->class->info.name);
	settle_max(t, options->tokens);
	GP_TRY(gp_tokenizer_open(options->tokenizer, &t->tokenizer, err));
	t->making = (struct gp_text_making){options->threads, options->token_cache, options->progress,
					    options->progress_arg};
	describe(d);
	d->pairs = form_of(t).pair != NULL;
	GP_TRY(gp_alloc_array(&labels, 1, sizeof(struct gp_text_labels), err));
	const enum gp_status status = open_rows(d, spec, split, labels, err);
	gp_free(labels);
	return status;
}

static void close_texts(struct gp_dataset *d)
{
	struct texts *t = d->self;
	if (!t)
		return;
	gp_tokenizer_free(t->tokenizer);
	gp_text_rows_deinit(&t->rows);
	gp_free(t->label_of);
	gp_free(t->value_of);
	gp_free(t);
}

/* --- all that is wrong with a table -------------------------------------------------------------------------------- */

struct table_check {
	const struct texts *t;
	const char *path;
	const struct gp_text_labels *labels; /* that there may be; NULL: any */
	enum gp_split split;
	uint32_t row; /* that comes next */
	struct gp_bad_samples *out;
	enum gp_status status;
	struct gp_err err;
};

static void tell_row(void *arg, uint32_t line, const char *why)
{
	enum { LISTED_MOST = 100 };
	struct table_check *c = arg;
	char text[GP_ERR_TEXT];
	if (c->out->count >= LISTED_MOST) {
		c->out->unlisted++;
		return;
	}
	snprintf(text, sizeof text, "%s:%u: %s", c->path, line, why);
	gp_hide_control_characters(text);
	if (c->status == GP_OK)
		c->status = gp_bad_samples_add(c->out, line, c->path, text, &c->err);
}

static bool judge_value(const struct table_check *c, struct gp_text label, char why[GP_TABLE_WHY])
{
	char parsed[GP_VALUE_WHY];
	float value;
	if (gp_text_value_parse(label, c->t->task ? c->t->task->range : NULL, &value, parsed))
		return true;
	snprintf(why, GP_TABLE_WHY, "the value to predict: %s", parsed);
	return false;
}

static bool judge_row(void *arg, const struct gp_table_row *row, char why[GP_TABLE_WHY])
{
	struct table_check *c = arg;
	const bool aside = is_kept_aside(c->row++);
	char shown[GP_SHOWN];
	bool there = true;
	if (c->t->values)
		return judge_value(c, row->label, why);
	if (!gp_utf8_is(row->label)) {
		snprintf(why, GP_TABLE_WHY, "the label is not UTF-8");
		return false;
	}
	if (c->labels && (aside || !shares_one_file(c->t)))
		gp_text_labels_find(c->labels, row->label, &there);
	if (!there)
		snprintf(why, GP_TABLE_WHY, "the label '%s' is not among those to be learnt (%d classes)",
			 gp_text_shown(row->label, shown), c->labels->count);
	return there;
}

static void tell_nobody(void *arg, uint32_t line, const char *why)
{
	(void)arg;
	(void)line;
	(void)why;
}

static bool has_good_label(void *arg, const struct gp_table_row *row, char why[GP_TABLE_WHY])
{
	(void)arg;
	why[0] = '\0';
	return gp_utf8_is(row->label);
}

/* The labels that the good rows of the training file have, or those of the task. False: any are right, because that file
 * cannot be read, which is told of where it is checked, or has more of them than there may be. */
static bool find_allowed(const struct texts *t, const struct gp_data_spec *spec, struct gp_table *training,
			 struct gp_text_labels *l)
{
	const struct gp_table_watch watch = {.judge = has_good_label, .tell = tell_nobody};
	const struct gp_table_form form = form_of(t);
	struct gp_err ignored;
	if (t->task)
		return find_labels(t, spec->dir, GP_SPLIT_TRAIN, NULL, training, l, &ignored) == GP_OK;
	if (gp_table_read_watched(spec->dir, &form, &watch, training, &ignored) != GP_OK)
		return false;
	choose_rows(training, shares_one_file(t), GP_SPLIT_TRAIN, 0);
	for (uint32_t i = 0; i < training->rows; i++)
		if (!gp_text_labels_add(l, training->row[i].label))
			return false;
	return true;
}

static enum gp_status check_table(struct table_check *c, const struct gp_data_spec *spec, struct gp_text_labels *l,
				  struct gp_err *err)
{
	const struct gp_table_watch watch = {judge_row, tell_row, c};
	const struct gp_table_form form = form_of(c->t);
	const bool own = !c->t->task && !shares_one_file(c->t) && c->split == GP_SPLIT_TRAIN;
	struct gp_table table = {0}, training = {0};
	if (!c->t->values && !own && find_allowed(c->t, spec, &training, l))
		c->labels = l;
	const enum gp_status status = gp_table_read_watched(c->path, &form, &watch, &table, err);
	gp_table_deinit(&table);
	gp_table_deinit(&training);
	return status;
}

/* One file with both splits is checked as the training file. */
static enum gp_status check_lines(const struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				  struct gp_bad_samples *out, struct gp_err *err)
{
	struct table_check c = {.t = d->self, .split = split, .out = out};
	char path[GP_TEXT_PATH];
	void *labels;
	if (split == GP_SPLIT_VAL && shares_one_file(c.t))
		return GP_OK;
	GP_TRY(path_of(c.t, spec->dir, split, path, err));
	c.path = path;
	GP_TRY(gp_alloc_array(&labels, 1, sizeof(struct gp_text_labels), err));
	const enum gp_status status = check_table(&c, spec, labels, err);
	gp_free(labels);
	GP_TRY(status);
	out->checked++;
	if (c.status != GP_OK)
		*err = c.err;
	return c.status;
}

/* --- samples ---------------------------------------------------------------------------------------------------- */

static int32_t label_of(const struct gp_dataset *d, uint32_t index)
{
	const struct texts *t = d->self;
	return t->label_of[index];
}

static float value_of(const struct gp_dataset *d, uint32_t index)
{
	const struct texts *t = d->self;
	return t->value_of[index];
}

static uint32_t length_of(const struct gp_dataset *d, uint32_t index)
{
	const struct texts *t = d->self;
	int count;
	gp_text_rows_at(&t->rows, index, &count);
	return (uint32_t)count;
}

static enum gp_status write_text(const struct gp_dataset *d, uint32_t index, struct gp_data_scratch *scratch,
				 void *const *tensor, struct gp_err *err)
{
	const struct texts *t = d->self;
	int32_t *tokens = tensor[TOKENS], *mask = tensor[MASK], *types = tensor[SEGMENTS];
	int count;
	(void)scratch;
	(void)err;
	const int32_t *row = gp_text_rows_at(&t->rows, index, &count);
	const int32_t pad = gp_tokenizer_special(t->tokenizer, GP_TOKEN_PAD);
	const int first = gp_text_rows_first_segment(&t->rows, index);
	memcpy(tokens, row, (size_t)count * sizeof *row);
	*(int32_t *)tensor[LENGTH] = count;
	for (int i = 0; i < (int)t->max; i++) {
		mask[i] = i < count;
		types[i] = i >= first && i < count;
	}
	for (int i = count; i < (int)t->max; i++)
		tokens[i] = pad;
	return GP_OK;
}

#define TEXTS(symbol, text_name, what, keys, how)                                                                      \
	const struct gp_dataset_class symbol = {                                                                       \
		.info = {.name = text_name, .summary = what, .options = keys},                                         \
		.dir = GP_SPEC_ARG_NEEDED,                                                                             \
		.configure = how,                                                                                      \
		.open = open_texts,                                                                                    \
		.close = close_texts,                                                                                  \
		.check_lines = check_lines,                                                                            \
		.write = write_text,                                                                                   \
		.label = label_of,                                                                                     \
		.value = value_of,                                                                                     \
		.length = length_of,                                                                                   \
	}

TEXTS(gp_data_glue_cola, "glue-cola", "English sentences, acceptable or not (CoLA)",
      "DIR,max=128,bucket=0,limit=N,part=I/N,dirichlet=A,part-seed=0", configure_cola);
TEXTS(gp_data_glue_rte, "glue-rte", "pairs of texts: does one follow from the other (RTE)",
      "DIR,max=128,bucket=0,limit=N,part=I/N,dirichlet=A,part-seed=0", configure_rte);
TEXTS(gp_data_glue_sst2, "glue-sst2", "sentences of film reviews, negative or positive (SST-2)",
      "DIR,max=128,bucket=0,limit=N,part=I/N,dirichlet=A,part-seed=0", configure_sst2);
TEXTS(gp_data_glue_stsb, "glue-stsb", "pairs of sentences: how much alike are they, from 0 to 5 (STS-B)",
      "DIR,max=128,bucket=0,limit=N,part=I/N,part-seed=0", configure_stsb);
TEXTS(gp_data_tsv, "tsv", "texts of a table with tabs between its columns",
      "FILE,text=COLUMN,pair=COLUMN,label=COLUMN,regression,val=FILE,header=0|1,max=128,bucket=0,limit=N,"
      "part=I/N,dirichlet=A,part-seed=0",
      configure_tsv);

/* --- texts without labels --------------------------------------------------------------------------------------- */

static int32_t no_label(const struct gp_dataset *d, uint32_t index)
{
	(void)d;
	(void)index;
	return 0;
}

/* In no list: it has no text by which it could be opened. */
static const struct gp_dataset_class lines = {
	.info = {.name = "lines of text"},
	.close = close_texts,
	.write = write_text,
	.length = length_of,
	.label = no_label,
};

static enum gp_status take_texts(struct gp_dataset *d, const struct gp_table *table, const char *tokenizer, int64_t max,
				 int64_t threads, struct gp_err *err)
{
	GP_TRY(gp_alloc_array(&d->self, 1, sizeof(struct texts), err));
	struct texts *t = d->self;
	t->max = max;
	t->making.threads = threads;
	GP_TRY(gp_tokenizer_open(tokenizer, &t->tokenizer, err));
	describe(d);
	d->samples = table->rows;
	GP_TRY(gp_text_rows_make(t->tokenizer, "line", table, (int)max, &t->making, &t->rows, err));
	if (t->rows.cut)
		gp_log(data, GP_LOG_WARN, "%u of %u texts have more than %lld tokens and lose their end", t->rows.cut,
		       table->rows, (long long)max);
	return GP_OK;
}

enum gp_status gp_dataset_from_texts(const struct gp_table *table, const char *tokenizer, int64_t max,
				     const struct gp_dataset *like, int classes, int64_t threads,
				     struct gp_dataset **out, struct gp_err *err)
{
	struct gp_dataset *d = gp_calloc(1, sizeof *d);
	if (!d)
		GP_FAIL(err, GP_NOMEM, "out of memory for a dataset");
	d->class = &lines;
	enum gp_status status = gp_data_name_classes(d, like ? like->classes : classes, NULL, err);
	if (status == GP_OK && like)
		memcpy(d->class_names, like->class_names, (size_t)like->classes * sizeof *d->class_names);
	if (status == GP_OK)
		status = take_texts(d, table, tokenizer, max, threads, err);
	if (status != GP_OK) {
		gp_dataset_free(d);
		return status;
	}
	*out = d;
	return GP_OK;
}
