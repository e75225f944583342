/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain text for masked language modelling: "text:FILE[,val=FILE]", a sentence on
 * each line. A tokenizer makes tokens of the lines when the dataset is opened; a
 * sample is the tensors "tokens" (`max` of them, some of which are masked, filled
 * up with the tokenizer's padding), "length", how many there are, "types", all 0,
 * and "positions", where the masked ones stand; its labels are what was there
 * (text_mask.h). A training sample is masked anew in every epoch, a validation
 * sample always in the same way, whatever the seed.
 *
 * Lines of nothing but blanks are left out. Where `val` names no file, every tenth
 * line is kept aside for validation. part=I/N takes every Nth of the lines for
 * training, from the Ith on, before any become tokens.
 * Test: tests/unit/test_data_plain_text.c
 */
#include "client/data/data_internal.h"

#include <string.h>

#include "client/data/data_bucket.h"
#include "client/data/text_cache.h"
#include "client/data/text_mask.h"
#include "client/data/text_rows.h"
#include "client/text/text_file.h"
#include "client/text/utf8.h"
#include "common/base/log.h"

enum { TOKENS, LENGTH, TYPES, POSITIONS, TENSORS };
enum { MAX_DEFAULT = 128, MAX_MOST = 65536, KEPT_ASIDE = 10, LINES_MOST = 1 << 26 };

struct plain {
	char val[GP_TEXT_PATH];
	int64_t max; /* 0 until the data set is opened: not given */
	struct gp_tokenizer *tokenizer;
	struct gp_text_making making;
	struct gp_text_rows rows;
	struct gp_text_masking masking;
	bool fixed; /* masked always in the same way */
};

/* --- options ---------------------------------------------------------------------------------------------------- */

static enum gp_status configure(struct gp_dataset *d, struct gp_spec *spec, struct gp_err *err)
{
	struct gp_text val;
	int64_t bucket = 0;
	GP_TRY(gp_alloc_array(&d->self, 1, sizeof(struct plain), err));
	struct plain *t = d->self;
	GP_TRY(gp_spec_int(spec, "bucket", 0, GP_BUCKET_MOST, &bucket, err));
	d->bucket = (int)bucket;
	if (gp_spec_given(spec, "val", &val) && (val.len == 0 || !gp_text_copy(val, t->val, sizeof t->val)))
		return gp_spec_refuse(spec, "val", val, "the name of a file", err);
	return gp_spec_int(spec, "max", GP_TOKENS_LEAST, MAX_MOST, &t->max, err);
}

/* --- lines ------------------------------------------------------------------------------------------------------ */

static enum gp_status take_line(struct gp_table *table, const char *path, uint32_t number, struct gp_text line,
				struct gp_err *err)
{
	if (number > LINES_MOST)
		GP_FAIL(err, GP_INVALID, "%s has more than %d lines", path, LINES_MOST);
	if (line.len > GP_TEXT_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "%s:%u: a text of more than %d bytes", path, number, GP_TEXT_BYTES_MAX);
	if (!gp_utf8_is_blank(line))
		table->row[table->rows++] = (struct gp_table_row){.text = line, .line = number};
	return GP_OK;
}

static uint32_t count_lines(struct gp_text text)
{
	uint32_t lines = 1; /* the file has no more than GP_TABLE_BYTES_MAX of them */
	for (size_t i = 0; i < text.len; i++)
		lines += text.at[i] == '\n';
	return lines;
}

/* The table is the caller's to free, also after a failure. */
static enum gp_status read_lines(const char *path, struct gp_table *table, struct gp_err *err)
{
	struct gp_text line;
	size_t bytes;
	void *rows;
	uint32_t number = 0;
	GP_TRY(gp_text_file_read(path, GP_TABLE_BYTES_MAX, &table->memory, &bytes, err));
	struct gp_text text = {table->memory, bytes};
	GP_TRY(gp_text_check(path, &text, err));
	const uint32_t lines = count_lines(text);
	if (lines - 1 > LINES_MOST)
		GP_FAIL(err, GP_INVALID, "%s has more than %d lines", path, LINES_MOST);
	GP_TRY(gp_alloc_array(&rows, lines, sizeof *table->row, err));
	table->row = rows;
	while (gp_text_line(&text, &line))
		GP_TRY(take_line(table, path, ++number, line, err));
	if (table->rows == 0)
		GP_FAIL(err, GP_INVALID, "%s: there is no text in it", path);
	return GP_OK;
}

/* Leaves the lines of that split, no more than the limit, and of these the part's. */
static void choose_lines(struct gp_table *table, const struct plain *t, const struct gp_data_spec *spec,
			 enum gp_split split)
{
	uint32_t kept = 0, found = 0;
	for (uint32_t i = 0; i < table->rows && (!spec->limit || found < spec->limit); i++) {
		const bool aside = !t->val[0] && i % KEPT_ASIDE == KEPT_ASIDE - 1;
		if (!t->val[0] && aside != (split == GP_SPLIT_VAL))
			continue;
		const uint32_t number = found++;
		if (split == GP_SPLIT_TRAIN && number % (uint32_t)spec->part.parts != (uint32_t)spec->part.part - 1)
			continue;
		table->row[kept++] = table->row[i];
	}
	table->rows = kept;
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum gp_status make_rows(struct gp_dataset *d, const char *path, const struct gp_table *table,
				struct gp_err *err)
{
	struct plain *t = d->self;
	if (table->rows == 0)
		GP_FAIL(err, GP_INVALID,
			"%s has too few lines: without val=FILE every %dth is for validation, and part=I/N takes one "
			"of N lines",
			path, KEPT_ASIDE);
	GP_TRY(gp_text_rows_get(t->tokenizer, path, table, (int)t->max, &t->making, &t->rows, err));
	d->samples = table->rows;
	if (t->rows.cut)
		gp_log(data, GP_LOG_WARN, "%s: %u of %u texts have more than %lld tokens and lose their end (max=)",
		       path, t->rows.cut, table->rows, (long long)t->max);
	return GP_OK;
}

static enum gp_status open_lines(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				 struct gp_err *err)
{
	const struct plain *t = d->self;
	const char *path = split == GP_SPLIT_VAL && t->val[0] ? t->val : spec->dir;
	struct gp_table table = {0};
	enum gp_status status = read_lines(path, &table, err);
	if (status == GP_OK) {
		choose_lines(&table, t, spec, split);
		status = make_rows(d, path, &table, err);
	}
	gp_table_deinit(&table);
	return status;
}

static void settle_max(struct plain *t, int64_t wanted)
{
	if (t->max == 0)
		t->max = wanted == 0 ? MAX_DEFAULT : wanted < GP_TOKENS_LEAST ? GP_TOKENS_LEAST : wanted;
	t->max = t->max < MAX_MOST ? t->max : MAX_MOST;
}

static void describe(struct gp_dataset *d)
{
	struct plain *t = d->self;
	const struct gp_type row = {GP_I32, {.ndim = 1, .dim = {t->max}}};
	gp_text_masking_init(&t->masking, t->tokenizer, t->max);
	const struct gp_type chosen = {GP_I32, {.ndim = 1, .dim = {t->masking.most}}};
	d->tokenizer = gp_tokenizer_hash(t->tokenizer);
	d->labels = t->masking.most;
	d->tensors = TENSORS;
	d->tensor[TOKENS] = (struct gp_tensor_info){"tokens", row, t->masking.vocabulary};
	d->tensor[LENGTH] = (struct gp_tensor_info){"length", {GP_I32, {.ndim = 1, .dim = {1}}}, t->max + 1};
	d->tensor[TYPES] = (struct gp_tensor_info){"types", row, 2};
	d->tensor[POSITIONS] = (struct gp_tensor_info){"positions", chosen, t->max};
}

static enum gp_status open_text(struct gp_dataset *d, const struct gp_data_spec *spec, enum gp_split split,
				const struct gp_dataset_options *options, struct gp_err *err)
{
	struct plain *t = d->self;
	if (options->shape.ndim)
		GP_FAIL(err, GP_INVALID, "dataset text has texts, no pictures to bring to a size; leave --input out");
	if (!options->tokenizer)
		GP_FAIL(err, GP_USAGE, "dataset text needs --tokenizer DIR: texts become tokens by it");
	GP_TRY(gp_data_part_check(d, &spec->part, err));
	if (spec->part.seed)
		GP_FAIL(err, GP_USAGE,
			"dataset text: part-seed: a part is every Nth line, and nothing is drawn; leave it out");
	settle_max(t, options->tokens);
	t->fixed = split == GP_SPLIT_VAL;
	GP_TRY(gp_tokenizer_open(options->tokenizer, &t->tokenizer, err));
	t->making = (struct gp_text_making){options->threads, options->token_cache, options->progress,
					    options->progress_arg};
	describe(d);
	return open_lines(d, spec, split, err);
}

static void close_text(struct gp_dataset *d)
{
	struct plain *t = d->self;
	if (!t)
		return;
	gp_tokenizer_free(t->tokenizer);
	gp_text_rows_deinit(&t->rows);
	gp_free(t);
}

/* --- samples ---------------------------------------------------------------------------------------------------- */

/* Draws are of the sample's number among all, which leaving some out does not change. */
static enum gp_status draw_text(const struct gp_dataset *d, uint32_t index, const struct gp_draw *draw,
				void *const *tensor, int32_t *labels, struct gp_err *err)
{
	const struct plain *t = d->self;
	const struct gp_draw own = {t->fixed ? 0 : draw->seed, t->fixed ? 0 : draw->epoch, index};
	int32_t *tokens = tensor[TOKENS];
	int count;
	(void)err;
	const int32_t *row = gp_text_rows_at(&t->rows, index, &count);
	const int32_t pad = gp_tokenizer_special(t->tokenizer, GP_TOKEN_PAD);
	memcpy(tokens, row, (size_t)count * sizeof *row);
	for (int i = count; i < (int)t->max; i++)
		tokens[i] = pad;
	*(int32_t *)tensor[LENGTH] = count;
	memset(tensor[TYPES], 0, (size_t)t->max * sizeof(int32_t));
	gp_text_mask(&t->masking, &own, tokens, count, tensor[POSITIONS], labels);
	return GP_OK;
}

static int32_t no_label(const struct gp_dataset *d, uint32_t index)
{
	(void)d;
	(void)index;
	return 0;
}

static uint32_t length_of(const struct gp_dataset *d, uint32_t index)
{
	const struct plain *t = d->self;
	int count;
	gp_text_rows_at(&t->rows, index, &count);
	return (uint32_t)count;
}

const struct gp_dataset_class gp_data_plain_text = {
	.info = {.name = "text",
		 .summary = "plain text, a sentence on each line, for gpclient pretrain",
		 .options = "FILE,val=FILE,part=I/N,max=128,bucket=0,limit=N"},
	.dir = GP_SPEC_ARG_NEEDED,
	.takes_part = true,
	.configure = configure,
	.open = open_text,
	.close = close_text,
	.draw = draw_text,
	.label = no_label,
	.length = length_of,
};
