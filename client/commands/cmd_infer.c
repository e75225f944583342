/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient infer: pictures in, labels with probabilities out, split or local.
 * --data is not read for images: it says how pictures are prepared (as its
 * validation images are) and what the classes are called. A model of texts takes
 * lines of text from files or standard input, by the tokenizer of --tokenizer; or
 * else the validation samples of --data. One output is a value and no label.
 * Test: tests/e2e/eval_infer.sh
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/data/text_lines.h"
#include "client/job/job.h"
#include "client/job/job_insert.h"
#include "client/engine/labels.h"
#include "client/text/tokenizer.h"
#include "common/base/mem.h"

#define PROGRAM "gpclient infer"

enum { SAMPLE_NAME = 1200 };

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	int64_t top;
	bool top_given;
	const char *labels;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt label_rows[] = {
	{.name = "top",
	 .type = GP_OPT_INT,
	 .offset = FIELD(top),
	 .value = "K",
	 .initial = "5",
	 .min = 1,
	 .max = 1 << 20,
	 .group = "Labels",
	 .help = "the K most probable labels of each sample"},
	{.name = "labels",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(labels),
	 .value = "FILE",
	 .help = "names of the model's outputs, one per line; default: those in the file of --init, else the classes "
		 "of --data"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "(--server HOST:PORT | --local) --init FILE [OPTION...] [PICTURE...|TEXTFILE...]",
	.about = "Prints labels and probabilities of pictures: JPEG and PNG files, and folders of them. Weights\n"
		 "that gpclient has saved say which model they are of, how its pictures were prepared and what its\n"
		 "classes are called. With other files, --model says which model, and --data names the dataset\n"
		 "that it was trained on: pictures are prepared like its validation images and labelled with its\n"
		 "classes. Without the data, 'pictures:size=N,mean=...,std=...,classes=K' says how.\n"
		 "A model of texts takes lines of text, each a text, or a pair of texts with a tab between them:\n"
		 "from files, or from standard input where none is named or one is '-', with --tokenizer DIR. With\n"
		 "--data and no file its validation samples are labelled. A model with one output prints values.\n"
		 "Pictures and lines that cannot be read are reported, and the others labelled.",
	.examples = "  gpclient infer --local --init cnn.safetensors shirt.png\n"
		    "  gpclient infer --server 127.0.0.1:4400 --model mobilenetv2 --data pictures:classes=5 \\\n"
		    "      --labels flowers.txt --init torch.safetensors --json photos/\n"
		    "  echo 'a fine film' | gpclient infer --local --init sst2.safetensors --tokenizer roberta\n",
	.positional = "FILE",
};

struct candidate {
	int index;
	double probability;
};

struct inference {
	struct settings set;
	struct gp_job job;
	struct gp_dataset *samples; /* the pictures, or what the data has in their place */
	bool numbered;              /* samples have no files */
	struct gp_text_lines lines; /* samples are these, where there are any */
	uint32_t bad_lines;         /* of them that were printed */
	struct gp_loader *loader;
	struct gp_labels labels;
	int outputs, top;
	float *scores;               /* of one batch: a row of `outputs` per picture */
	struct candidate *candidate; /* `outputs` */
	struct bad {
		bool is;
		char *why;  /* NULL: memory was out */
	} * bad;            /* by sample; written by the loader's thread before it hands the batch out */
	uint32_t bad_count; /* that were printed, lines among them */
};

static enum gp_status parse(int argc, char **argv, struct settings *set, struct gp_options_result *r,
			    struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {gp_job_where_rows,       gp_job_security_rows, gp_job_model_rows,
					    GP_OPT_ROWS(label_rows), gp_job_batch_rows,    gp_job_codec_rows,
					    gp_job_insert_rows,      gp_job_output_rows};
	struct gp_opt rows[GP_OPT_MAX];
	struct gp_opt_table t = table;
	t.opt = rows;
	t.count = gp_opt_join(parts, sizeof parts / sizeof parts[0], rows);
	*set = (struct settings){0};
	GP_TRY(gp_options_parse(&t, argc, argv, set, r, err));
	set->top_given = gp_options_given(&t, r, "top");
	return GP_OK;
}

/* A model reads the separator between two texts: without one, or with one too many, its answers mean little. */
static void note_pairs(const struct inference *n)
{
	const struct gp_table *t = &n->lines.table;
	const enum gp_saved_texts texts = n->job.saved.texts;
	uint32_t pairs = 0;
	for (uint32_t i = 0; i < t->rows; i++)
		pairs += t->row[i].pair.at != NULL;
	if (texts == GP_SAVED_TEXTS_PAIRS && pairs < t->rows)
		fprintf(stderr,
			"note: %s was trained on pairs of texts; %u of %u lines have no tab between two texts\n",
			n->set.job.init, t->rows - pairs, t->rows);
	if (texts == GP_SAVED_TEXTS_SINGLE && pairs > 0)
		fprintf(stderr,
			"note: %s was trained on single texts; %u of %u lines have two, with a tab between them\n",
			n->set.job.init, pairs, t->rows);
}

/* Those of the files, or of standard input where none is named. `like` NULL: there is no --data. */
static enum gp_status open_lines(struct inference *n, const struct gp_options_result *given,
				 const struct gp_dataset *like, struct gp_err *err)
{
	enum { MAX_DEFAULT = 128, TOKENS_MOST = 65536 }; /* as datasets of texts have them */
	static const char *const standard_input[] = {GP_STANDARD_INPUT};
	const struct gp_saved_model *saved = &n->job.saved;
	const int64_t max = like ? gp_dataset_shape(like)->dim[0] : saved->tokens > 0 ? saved->tokens : MAX_DEFAULT;
	if (n->set.job.token_cache)
		GP_FAIL(err, GP_USAGE, "--token-cache keeps the tokens of --data; those of lines of text are not kept");
	if (n->set.job.input)
		GP_FAIL(err, GP_USAGE, "--input is a size of pictures, and there are lines of text; leave it out");
	if (max < GP_TOKENS_LEAST || max > TOKENS_MOST)
		GP_FAIL(err, GP_INVALID, "%s takes %lld tokens of a text; a text has %d to %d", n->set.job.init,
			(long long)max, GP_TOKENS_LEAST, TOKENS_MOST);
	GP_TRY(gp_text_lines_read(given->positionals ? given->positional : standard_input,
				  given->positionals ? given->positionals : 1, &n->lines, err));
	if (n->lines.table.rows == 0)
		return GP_OK;
	note_pairs(n);
	return gp_dataset_from_texts(&n->lines.table, n->set.job.tokenizer, max, like, gp_saved_model_labels(saved),
				     n->set.job.threads, &n->samples, err);
}

/* --data has pictures, and no file is named. */
static enum gp_status no_pictures(const struct inference *n, struct gp_err *err)
{
	const struct gp_job_settings *s = &n->set.job;
	if (n->job.saved.tokens > 0)
		GP_FAIL(err, GP_USAGE,
			"%s has a model of texts, and --data %s has pictures; give --tokenizer DIR alone for lines of "
			"text, or --data with texts",
			s->init, s->data);
	GP_FAIL(err, GP_USAGE, "no pictures: name files or folders at the end of the line%s",
		s->tokenizer ? " (--tokenizer is for a model of texts, which this is not)" : "");
}

static enum gp_status open_samples(struct inference *n, const struct gp_options_result *given, struct gp_err *err)
{
	struct gp_dataset *like;
	if (n->job.lines)
		return open_lines(n, given, NULL, err);
	GP_TRY(gp_job_open_data(&n->job, GP_SPLIT_VAL, false, &like, err));
	n->numbered = given->positionals == 0 && !gp_dataset_has_pictures(like);
	if (n->numbered) {
		n->samples = like;
		return GP_OK;
	}
	enum gp_status status = GP_OK;
	if (given->positionals == 0)
		status = no_pictures(n, err);
	else if (gp_dataset_tokenizer(like))
		status = open_lines(n, given, like, err);
	else
		status = gp_dataset_from_files(like, given->positional, given->positionals, &n->samples, err);
	gp_dataset_free(like);
	return status;
}

/* A few samples are not computed as a full batch: chunks shrink to what there is. */
static void fit_batch(struct inference *n)
{
	struct gp_job_settings *s = &n->set.job;
	int64_t count = gp_dataset_samples(n->samples);
	if (count < s->batch)
		s->batch = (count + s->chunks - 1) / s->chunks * s->chunks;
	n->job.session.chunk_samples = (int)(s->batch / s->chunks);
}

/* Before the batch is handed out; a link that breaks has the batch made once more. */
static void on_bad(void *arg, uint32_t sample, const struct gp_err *why)
{
	struct inference *n = arg;
	struct bad *b = &n->bad[sample];
	if (!b->is)
		*b = (struct bad){true, gp_strdup(why->text)};
}

static enum gp_status make_room(struct inference *n, struct gp_err *err)
{
	n->outputs = (int)gp_graph_output_shape(n->job.graph)->dim[0];
	n->top = n->set.top < n->outputs ? (int)n->set.top : n->outputs;
	if (n->set.top > n->outputs && n->set.top_given)
		fprintf(stderr, PROGRAM ": --top %lld: the model has %d outputs, and all of them are shown\n",
			(long long)n->set.top, n->outputs);
	size_t rows = (size_t)n->set.job.batch, row = (size_t)n->outputs * sizeof *n->scores;
	GP_TRY(gp_alloc_array((void **)&n->scores, rows, row, err));
	GP_TRY(gp_alloc_array((void **)&n->candidate, (size_t)n->outputs, sizeof *n->candidate, err));
	if (n->set.labels)
		return gp_labels_read(&n->labels, n->set.labels, n->outputs, err);
	if (gp_saved_model_labels(&n->job.saved) == n->outputs)
		return gp_labels_of_saved(&n->labels, &n->job.saved, err);
	return gp_labels_of_dataset(&n->labels, n->samples, n->outputs, err);
}

static enum gp_status prepare(struct inference *n, const struct gp_options_result *given, struct gp_err *err)
{
	n->set.job.purpose = GP_JOB_INFER;
	GP_TRY(gp_job_begin(&n->job, &n->set.job, err));
	if (!n->set.job.init)
		GP_FAIL(err, GP_USAGE, "--init FILE is missing: the weights of the model");
	GP_TRY(open_samples(n, given, err));
	if (!n->samples) /* there are bad lines alone */
		return GP_OK;
	fit_batch(n);
	GP_TRY(gp_alloc_array((void **)&n->bad, gp_dataset_samples(n->samples), sizeof *n->bad, err));
	n->job.on_bad = on_bad;
	n->job.on_bad_arg = n;
	GP_TRY(gp_job_open_loader(&n->job, n->samples, GP_SPLIT_VAL, &n->loader, err));
	GP_TRY(gp_job_build(&n->job, n->samples, err));
	GP_TRY(gp_job_check_started(&n->job, "infer", err));
	GP_TRY(make_room(n, err));
	return gp_job_open_engine(&n->job, NULL, NULL, err);
}

/* The more probable first; among equals the lower index. */
static int compare_candidates(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	if (x->probability != y->probability)
		return x->probability < y->probability ? 1 : -1;
	return (x->index > y->index) - (x->index < y->index);
}

/* Softmax of a row of scores, sorted. */
static void rank(struct inference *n, const float *score)
{
	double max = (double)score[0], sum = 0;
	for (int i = 1; i < n->outputs; i++)
		max = fmax(max, (double)score[i]);
	for (int i = 0; i < n->outputs; i++) {
		n->candidate[i] = (struct candidate){i, exp((double)score[i] - max)};
		sum += n->candidate[i].probability;
	}
	for (int i = 0; i < n->outputs; i++)
		n->candidate[i].probability /= sum;
	qsort(n->candidate, (size_t)n->outputs, sizeof *n->candidate, compare_candidates);
}

/* A picture's path, "sample 12", or "texts.txt:7"; returns it or text. */
static const char *name_of(const struct inference *n, uint32_t index, char text[SAMPLE_NAME])
{
	if (n->lines.table.rows > 0)
		snprintf(text, SAMPLE_NAME, "%s:%u", n->lines.path[index], n->lines.table.row[index].line);
	else if (n->numbered)
		snprintf(text, SAMPLE_NAME, "sample %u", index);
	else
		return gp_dataset_file(n->samples, index);
	return text;
}

static void print_line(const struct inference *n, uint32_t index, const float *score)
{
	char text[SAMPLE_NAME];
	printf("%s:", name_of(n, index, text));
	if (n->outputs == 1)
		printf(" %.6g", (double)score[0]);
	for (int i = 0; i < n->top && n->outputs > 1; i++)
		printf("%s %s %.2f %%", i ? "," : "", n->labels.name[n->candidate[i].index],
		       100 * n->candidate[i].probability);
	putchar('\n');
}

static json_t *candidate_json(const struct inference *n, const struct candidate *c)
{
	return json_pack("{s:o, s:i, s:f}", "label", gp_job_text_json(n->labels.name[c->index]), "index", c->index,
			 "probability", c->probability);
}

/* What the line is about. */
static json_t *sample_json(const struct inference *n, uint32_t index)
{
	if (n->lines.table.rows > 0)
		return json_pack("{s:o, s:I}", "file", gp_job_text_json(n->lines.path[index]), "line",
				 (json_int_t)n->lines.table.row[index].line);
	if (n->numbered)
		return json_pack("{s:I}", "sample", (json_int_t)index);
	return json_pack("{s:o}", "file", gp_job_text_json(gp_dataset_file(n->samples, index)));
}

static enum gp_status print_json(const struct inference *n, uint32_t index, const float *score, struct gp_err *err)
{
	json_t *object = sample_json(n, index);
	if (object && n->outputs == 1) {
		json_object_set_new(object, "value", json_real((double)score[0]));
	} else if (object) {
		json_t *list = json_array();
		for (int i = 0; i < n->top; i++)
			json_array_append_new(list, candidate_json(n, &n->candidate[i]));
		json_object_set_new(object, "labels", list);
	}
	return gp_job_print_json(object, err);
}

/* A picture that cannot be read has a line, too: among the others in JSON, else on standard error. */
static enum gp_status print_bad(struct inference *n, uint32_t index, struct gp_err *err)
{
	const char *const why = n->bad[index].why ? n->bad[index].why : "out of memory";
	n->bad_count++;
	if (!n->set.job.json) {
		fprintf(stderr, PROGRAM ": %s\n", why);
		return GP_OK;
	}
	return gp_job_print_json(json_pack("{s:o, s:o}", "file", gp_job_text_json(gp_dataset_file(n->samples, index)),
					   "error", gp_job_text_json(why)),
				 err);
}

/* A bad line has a line of output, too: among the others in JSON, else on standard error. */
static enum gp_status print_bad_line(struct inference *n, const struct gp_bad_line *bad, struct gp_err *err)
{
	n->bad_count++;
	if (!n->set.job.json) {
		fprintf(stderr, PROGRAM ": %s:%u: %s\n", bad->path, bad->line, bad->why);
		return GP_OK;
	}
	return gp_job_print_json(json_pack("{s:o, s:I, s:o}", "file", gp_job_text_json(bad->path), "line",
					   (json_int_t)bad->line, "error", gp_job_text_json(bad->why)),
				 err);
}

/* Those that stand before this row and were not printed yet. */
static enum gp_status print_bad_lines(struct inference *n, uint32_t row, struct gp_err *err)
{
	const struct gp_text_lines *l = &n->lines;
	while (n->bad_lines < l->bad_count && l->bad[n->bad_lines].row <= row)
		GP_TRY(print_bad_line(n, &l->bad[n->bad_lines++], err));
	return GP_OK;
}

static enum gp_status print_sample(struct inference *n, uint32_t index, const float *score, struct gp_err *err)
{
	char text[SAMPLE_NAME];
	GP_TRY(print_bad_lines(n, index, err));
	if (n->bad[index].is)
		return print_bad(n, index, err);
	for (int k = 0; k < n->outputs; k++)
		if (!isfinite(score[k]))
			GP_FAIL(err, GP_INVALID, "%s: the model's outputs are not finite", name_of(n, index, text));
	rank(n, score);
	if (n->set.job.json)
		return print_json(n, index, score, err);
	print_line(n, index, score);
	return GP_OK;
}

static enum gp_status print_batch(struct inference *n, const struct gp_batch *batch, struct gp_err *err)
{
	uint32_t first = batch->index * (uint32_t)n->set.job.batch;
	for (int i = 0; i < batch->valid; i++)
		GP_TRY(print_sample(n, first + (uint32_t)i, n->scores + (size_t)i * (size_t)n->outputs, err));
	if (fflush(stdout) != 0)
		GP_FAIL(err, GP_IO, "the labels cannot be written to standard output");
	return GP_OK;
}

static enum gp_status run(struct inference *n, struct gp_err *err)
{
	struct gp_engine *engine = n->job.engine;
	for (uint32_t i = 0; n->loader && i < gp_loader_batches_per_epoch(n->loader); i++) {
		struct gp_batch *batch;
		GP_TRY(engine->ops->predict(engine, n->loader, n->scores, &batch, err));
		enum gp_status status = print_batch(n, batch, err);
		gp_loader_give_back(n->loader, batch);
		GP_TRY(status);
	}
	GP_TRY(print_bad_lines(n, UINT32_MAX, err));
	if (n->lines.bad_count > 0)
		GP_FAIL(err, GP_INVALID, "%u of %u lines cannot be read", n->bad_count,
			n->lines.table.rows + n->lines.bad_count);
	if (n->bad_count > 0)
		GP_FAIL(err, GP_INVALID, "%u of %u pictures cannot be read", n->bad_count,
			gp_dataset_samples(n->samples));
	return GP_OK;
}

static void clean_up(struct inference *n)
{
	gp_job_deinit(&n->job);
	gp_loader_free(n->loader);
	for (uint32_t i = 0; n->samples && n->bad && i < gp_dataset_samples(n->samples); i++)
		gp_free(n->bad[i].why);
	gp_free(n->bad);
	gp_dataset_free(n->samples);
	gp_text_lines_deinit(&n->lines);
	gp_labels_deinit(&n->labels);
	gp_free(n->scores);
	gp_free(n->candidate);
}

int gp_cmd_infer(int argc, char **argv)
{
	struct inference n = {0};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = parse(argc, argv, &n.set, &given, &err);
	if (status == GP_OK && !given.help) {
		status = prepare(&n, &given, &err);
		if (status == GP_OK)
			status = run(&n, &err);
	}
	clean_up(&n);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
