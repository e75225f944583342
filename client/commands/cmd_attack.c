/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient attack: what a cut gives away, tried out. A decoder learns from what
 * crosses the cut back to the pictures (attack.h); figures, pictures in a folder, an
 * event of --log-json.
 * Test: tests/e2e/attack.sh
 */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "client/attack/attack.h"
#include "client/codecs/codec_auto.h"
#include "client/commands/commands.h"
#include "client/commands/stop_signal.h"
#include "client/commands/train_options.h"
#include "client/data/picture_png.h"
#include "client/log/figures.h"
#include "client/job/job.h"
#include "client/job/job_insert.h"
#include "client/log/json_log.h"
#include "client/models/models.h"
#include "client/log/progress.h"
#include "common/base/mem.h"
#include "common/base/threads.h"

#define PROGRAM          "gpclient attack"
#define PLAIN_PROGRESS_S 5
#define PICTURES_MOST    12 /* as many as a report shows */
#define SHEET            "pictures.png"
#define SHEET_SIDE       112  /* pictures below it are magnified on the sheet, by a whole factor */
#define GAP              4    /* white between them */
#define FIRST_LINE       4096 /* bytes that are looked at of a file that is to be a log */

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	const char *codec, *out, *log_json;
	int64_t epochs, steps, checks, pictures;
	double lr;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt own_rows[] = {
	{.name = "out",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(out),
	 .value = "FOLDER",
	 .group = "What",
	 .help = "write " SHEET " there: pictures that were held back, and below each what the decoder made of it; the "
		 "folder is made if it is not there"},
	{.name = "cut",
	 .like = &gp_job_where_rows,
	 .help = "where the model is divided, as for train; default: the cut at which the weights of --init have an "
		 "insertion, else " GP_JOB_CUT},
	{.name = "codec",
	 .like = &gp_job_codec_rows,
	 .offset = FIELD(codec),
	 .help = "codec of the activations that go up (see 'gpclient codec list'): the decoder learns from what comes "
		 "out of it"},
	{.name = "epochs",
	 .like = &gp_train_rows,
	 .offset = FIELD(epochs),
	 .help = "passes of the decoder's training over the training samples"},
	{.name = "steps", .like = &gp_train_rows, .offset = FIELD(steps)},
	{.name = "lr",
	 .like = &gp_train_rows,
	 .offset = FIELD(lr),
	 .initial = "0.002",
	 .help = "the decoder's learning rate (Adam) in the first step; it falls to nothing along a cosine"},
	{.name = "batch",
	 .like = &gp_job_batch_rows,
	 .min = GP_DISTANCE_LEAST,
	 .max = 1 << 20,
	 .help = "samples that cross the cut together: as many as train's --batch divided by its --chunks"},
	{.name = "checks",
	 .type = GP_OPT_INT,
	 .offset = FIELD(checks),
	 .value = "N",
	 .initial = "1024",
	 .min = 1,
	 .max = 1 << 30,
	 .help = "validation samples by which the decoder is measured, in full batches; it does not learn from them"},
	{.name = "pictures",
	 .type = GP_OPT_INT,
	 .offset = FIELD(pictures),
	 .value = "N",
	 .initial = "10",
	 .min = 0,
	 .max = PICTURES_MOST,
	 .help = "of them that are shown, in " SHEET " and in --log-json"},
	{.name = "device", .like = &gp_job_alone_rows},
	{.name = "threads", .like = &gp_job_alone_rows},
};

static const struct gp_opt log_rows[] = {
	{.name = "log-json",
	 .like = &gp_train_log_rows,
	 .offset = FIELD(log_json),
	 .help = "add one event, with the figures and the pictures, to this log, which may be that of the training "
		 "(client/JSON.md)"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "--out FOLDER (--model NAME | --init FILE) --data NAME [--cut H:T] [--codec SPEC] [OPTION...]",
	.about = "Shows what a cut gives away to a curious server that knows the first layers, the codec and\n"
		 "pictures of the same kind: on the training samples, a small decoder learns to rebuild the\n"
		 "pictures from what goes up the link, behind the codec. Then it rebuilds validation samples.\n"
		 "Prints their PSNR beside that of the mean picture, which is what somebody reaches who sees\n"
		 "nothing, and the distance correlation of pictures and what crossed. No server is needed.",
	.examples =
		"  gpclient attack --model cnn --init cnn.safetensors --data fashion-mnist --cut 1:-1 --out attack\n"
		"  gpclient attack --init cnn.safetensors --data fashion-mnist --cut 2:-1 --codec uniform:bits=4 \\\n"
		"      --log-json run.jsonl --out attack4\n",
};

struct attacking {
	struct settings set;
	struct gp_job job;
	struct gp_codec_spec codec;
	struct gp_dataset *data, *check_data;
	struct gp_loader *loader, *checks;
	uint64_t steps;
	uint32_t check_batches;
	struct gp_preparation pictures;
	struct gp_attack_result result;
	struct gp_progress progress;
	struct gp_json_log *log;
};

static enum gp_status parse(int argc, char **argv, struct settings *set, struct gp_options_result *r,
			    struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(own_rows), gp_job_model_rows,    gp_job_insert_rows,
					    gp_job_output_rows,    gp_job_progress_rows, GP_OPT_ROWS(log_rows)};
	GP_TRY(gp_options_parse_parts(&table, parts, sizeof parts / sizeof parts[0], argc, argv, set, r, err));
	set->job.local = true;
	set->job.codec = "raw"; /* of the link that there is none of */
	set->job.chunks = 1;
	return GP_OK;
}

/* --- what is attacked -------------------------------------------------------------------------------------------- */

/* A model of texts is known before there is any data. One that needs the data to be built is found out later. */
static enum gp_status check_model(const struct attacking *k, struct gp_err *err)
{
	const struct gp_job_settings *s = &k->set.job;
	struct gp_graph *g;
	struct gp_err ignored;
	if (!s->model || gp_model_build(s->model, NULL, &g, &ignored) != GP_OK)
		return GP_OK;
	const bool pictures = gp_graph_input_shape(g)->ndim == 3;
	gp_graph_free(g);
	if (!pictures)
		GP_FAIL(err, GP_USAGE,
			"--model %.80s reads texts: attack restores pictures, and has no decoder for anything else",
			s->model);
	return GP_OK;
}

static enum gp_status check_data(const struct attacking *k, struct gp_err *err)
{
	const struct gp_job_settings *s = &k->set.job;
	if (!gp_dataset_has_pictures(k->data))
		GP_FAIL(err, GP_USAGE,
			"--data %.80s has no pictures: attack restores pictures, and has no decoder for anything else",
			s->data);
	GP_TRY(gp_job_check_batch(s, k->data, err));
	if (gp_dataset_samples(k->check_data) < s->batch)
		GP_FAIL(err, GP_INVALID,
			"--data %s has %u validation samples, fewer than the %lld of --batch: the decoder is measured "
			"by full batches",
			s->data, gp_dataset_samples(k->check_data), (long long)s->batch);
	return GP_OK;
}

static enum gp_status make_folder(const char *path, struct gp_err *err)
{
	struct stat st;
	if (mkdir(path, 0777) == 0)
		return GP_OK;
	const int why = errno;
	if (why == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return GP_OK;
	GP_FAIL(err, GP_INVALID, "--out: cannot make the folder %s: %s", path, strerror(why));
}

/* Empty, or a log that begins with an event: nothing else gets a line. */
static enum gp_status check_log(const char *path, struct gp_err *err)
{
	char line[FIRST_LINE];
	struct stat st;
	FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "re") : NULL;
	if (!f)
		return GP_OK; /* it is made, or is a pipe */
	const bool any = fgets(line, sizeof line, f);
	fclose(f);
	if (any && (line[0] != '{' || !strstr(line, "\"event\":\"")))
		GP_FAIL(err, GP_INVALID, "--log-json: %s is no log of gpclient, and no line is added to it", path);
	return GP_OK;
}

static enum gp_status check_files(const struct settings *s, struct gp_err *err)
{
	if (!s->out || !*s->out)
		GP_FAIL(err, GP_USAGE, "--out FOLDER is missing: where the pictures go");
	if (s->log_json && !*s->log_json)
		GP_FAIL(err, GP_USAGE, "--log-json needs the name of a file");
	return s->log_json ? check_log(s->log_json, err) : GP_OK;
}

static enum gp_status open_data(struct attacking *k, struct gp_err *err)
{
	const struct gp_job_settings *s = &k->set.job;
	const struct gp_loader_spec spec = {
		.batch = (int)s->batch, .drop_last = true, .seed = (uint64_t)s->seed, .prefetch = 1};
	GP_TRY(gp_job_open_data(&k->job, GP_SPLIT_TRAIN, false, &k->data, err));
	GP_TRY(gp_job_open_data(&k->job, GP_SPLIT_VAL, false, &k->check_data, err));
	GP_TRY(check_data(k, err));
	gp_dataset_preparation(k->data, &k->pictures);
	GP_TRY(gp_job_open_loader(&k->job, k->data, GP_SPLIT_TRAIN, &k->loader, err));
	GP_TRY(gp_loader_new(k->check_data, &spec, &k->checks, err));
	const uint32_t epoch = gp_loader_batches_per_epoch(k->loader), most = gp_loader_batches_per_epoch(k->checks);
	const int64_t wanted = k->set.checks < s->batch ? 1 : k->set.checks / s->batch;
	k->steps = k->set.steps > 0 ? (uint64_t)k->set.steps : (uint64_t)k->set.epochs * epoch;
	k->check_batches = wanted < most ? (uint32_t)wanted : most;
	return GP_OK;
}

static enum gp_status prepare(struct attacking *k, struct gp_err *err)
{
	struct gp_job_settings *s = &k->set.job;
	GP_TRY(gp_job_begin(&k->job, s, err));
	GP_TRY(check_model(k, err));
	GP_TRY(check_files(&k->set, err));
	if (gp_codec_auto_refuse(k->set.codec, err) != GP_OK ||
	    gp_codec_spec_parse(k->set.codec, &k->codec, err) != GP_OK)
		return gp_err_prefix(err, "--codec");
	GP_TRY(open_data(k, err));
	GP_TRY(gp_codec_spec_set_samples(&k->codec, gp_dataset_samples(k->data), err));
	GP_TRY(gp_job_build(&k->job, k->data, err));
	GP_TRY(gp_job_check_started(&k->job, "attack", err));
	GP_TRY(make_folder(k->set.out, err));
	return k->set.log_json ? gp_json_log_open(k->set.log_json, true, &k->log, err) : GP_OK;
}

static void show_step(void *arg, uint64_t step, double error)
{
	struct attacking *k = arg;
	char text[120];
	snprintf(text, sizeof text, "step %llu/%llu  PSNR %.2f dB", (unsigned long long)step,
		 (unsigned long long)k->steps, -10 * log10(error));
	gp_progress_update(&k->progress, gp_now_ns(), text);
}

static enum gp_status attack(struct attacking *k, struct gp_err *err)
{
	const struct settings *s = &k->set;
	const struct gp_attack a = {.victim = {.graph = k->job.graph,
					       .cut = k->job.cut,
					       .weights = k->job.init,
					       .codec = &k->codec,
					       .device = s->job.device,
					       .threads = gp_threads_count(s->job.threads),
					       .batch = (int)s->job.batch,
					       .seed = (uint64_t)s->job.seed},
				    .pictures = k->pictures,
				    .train = k->loader,
				    .check = k->checks,
				    .steps = k->steps,
				    .check_batches = k->check_batches,
				    .lr = (float)s->lr,
				    .shown = (int)s->pictures,
				    .stop = &gp_stop_signal,
				    .progress = show_step,
				    .arg = k};
	gp_stop_watch();
	gp_progress_init(&k->progress, s->job.progress ? stderr : NULL, PLAIN_PROGRESS_S);
	const enum gp_status status = gp_attack_run(&a, &k->result, err);
	gp_progress_clear(&k->progress);
	return status;
}

/* --- pictures ---------------------------------------------------------------------------------------------------- */

static struct gp_image image_at(const struct attacking *k, const uint8_t *pictures, int n)
{
	const struct gp_shape *s = &k->pictures.shape;
	const size_t row = (size_t)(s->dim[1] * s->dim[2]);
	return (struct gp_image){.pixels = pictures + (size_t)n * row * (size_t)s->dim[0],
				 .height = (int)s->dim[0],
				 .width = (int)s->dim[1],
				 .channels = (int)s->dim[2],
				 .stride = row};
}

/* `by` times as large, at (top, left) of a sheet. */
static void put_on_sheet(const struct gp_image *sheet, uint8_t *pixels, const struct gp_image *p, int top, int left,
			 int by)
{
	const size_t channels = (size_t)p->channels;
	for (int y = 0; y < p->height * by; y++)
		for (int x = 0; x < p->width * by; x++)
			memcpy(pixels + (size_t)(top + y) * sheet->stride + (size_t)(left + x) * channels,
			       p->pixels + (size_t)(y / by) * p->stride + (size_t)(x / by) * channels, channels);
}

/* Two rows: the originals, and what became of them. */
static enum gp_status write_sheet(const struct attacking *k, struct gp_err *err)
{
	const struct gp_attack_result *r = &k->result;
	const struct gp_shape *s = &k->pictures.shape;
	const int by = s->dim[0] < SHEET_SIDE ? SHEET_SIDE / (int)s->dim[0] : 1;
	const int height = (int)s->dim[0] * by + GAP, width = (int)s->dim[1] * by + GAP;
	struct gp_image sheet = {
		.height = 2 * height + GAP, .width = r->shown * width + GAP, .channels = (int)s->dim[2]};
	char path[1024];
	if (r->shown == 0)
		return GP_OK;
	sheet.stride = (size_t)sheet.width * (size_t)sheet.channels;
	uint8_t *pixels = gp_calloc((size_t)sheet.height, sheet.stride);
	if (!pixels)
		GP_FAIL(err, GP_NOMEM, "no memory for a sheet of %d pictures", r->shown);
	memset(pixels, 255, (size_t)sheet.height * sheet.stride);
	for (int n = 0; n < r->shown; n++) {
		const struct gp_image original = image_at(k, r->original, n), made = image_at(k, r->restored, n);
		put_on_sheet(&sheet, pixels, &original, GAP, GAP + n * width, by);
		put_on_sheet(&sheet, pixels, &made, GAP + height, GAP + n * width, by);
	}
	sheet.pixels = pixels;
	snprintf(path, sizeof path, "%s/" SHEET, k->set.out);
	const enum gp_status status = gp_picture_png_file(&sheet, path, err);
	gp_free(pixels);
	return status;
}

static json_t *picture_json(const struct attacking *k, const uint8_t *pictures, int n)
{
	const struct gp_image image = image_at(k, pictures, n);
	struct gp_err ignored;
	char *url;
	if (gp_picture_png_url(&image, &url, &ignored) != GP_OK)
		return NULL; /* as when jansson is out of memory */
	json_t *text = json_string(url);
	gp_free(url);
	return text;
}

/* NULL when memory is out. */
static json_t *pictures_json(const struct attacking *k)
{
	json_t *list = json_array();
	for (int n = 0; list && n < k->result.shown; n++) {
		json_t *pair = json_pack("{s:o, s:o}", "original", picture_json(k, k->result.original, n), "restored",
					 picture_json(k, k->result.restored, n));
		if (json_array_append_new(list, pair) != 0) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

/* --- the report -------------------------------------------------------------------------------------------------- */

static json_t *report_json(const struct attacking *k)
{
	const struct gp_attack_result *r = &k->result;
	return json_pack("{s:o, s:o, s:o, s:s, s:o, s:I, s:I, s:i, s:i, s:I, s:o, s:o, s:f, s:o, s:o, s:i}", "model",
			 gp_job_text_json(k->job.model), "data", gp_job_text_json(k->set.job.data), "cut",
			 gp_job_text_json(k->set.job.cut), "codec", k->codec.text, "init",
			 k->set.job.init ? gp_job_text_json(k->set.job.init) : json_null(), "steps",
			 (json_int_t)r->steps, "decoder_parameters", (json_int_t)r->decoder_parameters, "tensors",
			 r->tensors, "tensors_read", r->tensors_read, "checked", (json_int_t)r->checked, "psnr_db",
			 gp_json_number(r->psnr_db), "mean_picture_psnr_db", gp_json_number(r->mean_picture_psnr_db),
			 "payload_bytes_per_sample", r->payload_bytes, "distance_correlation",
			 gp_json_number(r->correlation.corrected), "distance_correlation_plain",
			 gp_json_number(r->correlation.plain), "samples", r->samples);
}

static enum gp_status write_log(struct attacking *k, struct gp_err *err)
{
	if (!k->log)
		return GP_OK;
	json_t *line = report_json(k);
	if (json_object_set_new(line, "pictures", pictures_json(k)) != 0) {
		json_decref(line);
		line = NULL;
	}
	return gp_json_log_write(k->log, "attack", line, err);
}

static enum gp_status report(const struct attacking *k, struct gp_err *err)
{
	const struct gp_attack_result *r = &k->result;
	if (k->set.job.json)
		return gp_job_print_json(report_json(k), err);
	printf("cut %s, codec %s: %.0f bytes a picture\n", k->set.job.cut, k->codec.text, r->payload_bytes);
	printf("PSNR %.2f dB of %llu pictures held back; the mean picture has %.2f dB (%llu steps, a decoder of %llu "
	       "parameters)\n",
	       r->psnr_db, (unsigned long long)r->checked, r->mean_picture_psnr_db, (unsigned long long)r->steps,
	       (unsigned long long)r->decoder_parameters);
	printf("distance correlation %.3f with the pictures (bias-corrected, %d samples; plain %.3f)\n",
	       r->correlation.corrected, r->samples, r->correlation.plain);
	if (r->tensors_read < r->tensors)
		printf("the decoder reads %d of the %d tensors that cross\n", r->tensors_read, r->tensors);
	if (r->shown > 0)
		printf("%s/" SHEET ": originals above, restored below\n", k->set.out);
	return GP_OK;
}

static enum gp_status run(struct attacking *k, struct gp_err *err)
{
	GP_TRY(prepare(k, err));
	GP_TRY(attack(k, err));
	GP_TRY(write_sheet(k, err));
	GP_TRY(write_log(k, err));
	GP_TRY(report(k, err));
	if (gp_stop_signal)
		GP_FAIL(err, GP_CANCELED, "stopped by a signal after %llu of %llu steps",
			(unsigned long long)k->result.steps, (unsigned long long)k->steps);
	return GP_OK;
}

static enum gp_status clean_up(struct attacking *k, enum gp_status status, struct gp_err *err)
{
	struct gp_err close_err;
	gp_attack_result_deinit(&k->result);
	gp_job_deinit(&k->job);
	gp_loader_free(k->loader);
	gp_loader_free(k->checks);
	gp_dataset_free(k->data);
	gp_dataset_free(k->check_data);
	if (gp_json_log_close(k->log, &close_err) != GP_OK && status == GP_OK) {
		*err = close_err;
		status = close_err.code;
	}
	return status;
}

int gp_cmd_attack(int argc, char **argv)
{
	struct attacking k = {.steps = 0};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = parse(argc, argv, &k.set, &given, &err);
	if (status == GP_OK && !given.help)
		status = clean_up(&k, run(&k, &err), &err);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_stop_exit(status);
}
