/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient capture: the tensors that cross a cut, of a network of the user's
 * own, into a file that `gpclient codec` reads. What is computed: capture.h.
 * Test: tests/e2e/capture.sh
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "client/train/capture.h"
#include "client/commands/commands.h"
#include "client/log/figures.h"
#include "client/job/job.h"
#include "client/job/job_insert.h"
#include "common/base/mem.h"
#include "common/base/threads.h"
#include "common/store/safetensors.h"

#define PROGRAM "gpclient capture"

struct settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	const char *out;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt own_rows[] = {
	{.name = "out",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(out),
	 .value = "FILE",
	 .group = "What",
	 .help = "write act_up, act_down, grad_up and grad_down there (safetensors, images as (N,C,H,W)); where "
		 "several tensors cross in one direction, each by its name: act_up.mask"},
	{.name = "cut", .like = &gp_job_alone_rows},
	{.name = "batch",
	 .like = &gp_job_batch_rows,
	 .initial = "16",
	 .help = "samples in the chunk: as many as train's --batch divided by its --chunks"},
	{.name = "device", .like = &gp_job_alone_rows},
	{.name = "threads", .like = &gp_job_alone_rows},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "--out FILE --model NAME --data NAME [--init FILE] [--cut H:T] [OPTION...]",
	.about = "Takes one chunk of training samples forward and back through a model and writes every tensor that\n"
		 "would cross the link: for 'gpclient codec compare'. Nothing is trained, no server is needed.",
	.examples =
		"  gpclient capture --model cnn --data fashion-mnist --init cnn.safetensors --out acts.safetensors\n"
		"  gpclient codec compare --in acts.safetensors --codecs fp16,uniform:bits=8 --link 100mbit,20ms\n",
};

struct capturing {
	struct settings set;
	struct gp_job job;
	struct gp_dataset *data;
	struct gp_loader *loader;
	struct gp_capture tensors;
};

static enum gp_status parse(int argc, char **argv, struct settings *set, struct gp_options_result *r,
			    struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(own_rows), gp_job_model_rows, gp_job_freeze_rows,
					    gp_job_insert_rows, gp_job_output_rows};
	*set = (struct settings){0};
	GP_TRY(gp_options_parse_parts(&table, parts, sizeof parts / sizeof parts[0], argc, argv, set, r, err));
	set->job.local = true;
	set->job.codec = "raw";
	set->job.chunks = 1;
	return GP_OK;
}

static enum gp_status prepare(struct capturing *c, struct gp_err *err)
{
	struct gp_job_settings *s = &c->set.job;
	GP_TRY(gp_job_begin(&c->job, s, err));
	if (!c->set.out)
		GP_FAIL(err, GP_USAGE, "--out FILE is missing: where the tensors go");
	if (gp_st_check_target(c->set.out, err) != GP_OK)
		return gp_err_prefix(err, "--out");
	GP_TRY(gp_job_open_data(&c->job, GP_SPLIT_TRAIN, false, &c->data, err));
	GP_TRY(gp_job_check_batch(s, c->data, err));
	GP_TRY(gp_job_open_loader(&c->job, c->data, GP_SPLIT_TRAIN, &c->loader, err));
	GP_TRY(gp_job_build(&c->job, c->data, err));
	return gp_job_check_started(&c->job, "capture", err);
}

static enum gp_status compute(struct capturing *c, struct gp_err *err)
{
	const struct gp_job_settings *s = &c->set.job;
	const struct gp_capture_spec spec = {.graph = c->job.graph,
					     .cut = c->job.cut,
					     .weights = c->job.init,
					     .device = s->device,
					     .threads = gp_threads_count(s->threads),
					     .seed = (uint64_t)s->seed};
	struct gp_batch *batch;
	GP_TRY(gp_loader_next(c->loader, &batch, err));
	enum gp_status status = gp_capture_run(&spec, batch, &c->tensors, err);
	gp_loader_give_back(c->loader, batch);
	return status;
}

/* --- the file --------------------------------------------------------------------------------------------------- */

/* (N,H,W,C) to PyTorch's (N,C,H,W), in place through `scratch`. Elements have 4 bytes, of whatever type. */
static void turn_channels_first(struct gp_shape *shape, uint32_t *x, uint32_t *scratch)
{
	const int64_t *d = shape->dim, places = d[1] * d[2], channels = d[3];
	const size_t sample = (size_t)(places * channels);
	for (int64_t n = 0; n < d[0]; n++, x += sample) {
		for (int64_t p = 0; p < places; p++)
			for (int64_t c = 0; c < channels; c++)
				scratch[c * places + p] = x[p * channels + c];
		memcpy(x, scratch, sample * sizeof *x);
	}
	*shape = (struct gp_shape){.ndim = 4, .dim = {d[0], d[3], d[1], d[2]}};
}

static enum gp_status turn_all(struct gp_capture *c, struct gp_err *err)
{
	for (int i = 0; i < c->count; i++) {
		struct gp_type *type = &c->tensor[i].type;
		if (type->shape.ndim != 4)
			continue;
		gp_require(gp_dtype_bytes(type->dtype) == sizeof(uint32_t));
		uint32_t *scratch = gp_alloc_aligned(gp_shape_elements(&type->shape) * sizeof *scratch);
		if (!scratch)
			GP_FAIL(err, GP_NOMEM, "no memory to turn a tensor in");
		turn_channels_first(&type->shape, c->tensor[i].data, scratch);
		gp_free_aligned(scratch);
	}
	return GP_OK;
}

static enum gp_st_dtype file_dtype(enum gp_dtype dtype)
{
	return dtype == GP_I32 ? GP_ST_I32 : GP_ST_F32;
}

static enum gp_status write_file(struct capturing *c, struct gp_err *err)
{
	const struct gp_job_settings *s = &c->set.job;
	const struct gp_st_pair meta[] = {{"model", s->model}, {"cut", s->cut}, {"data", s->data}};
	struct gp_st_item *item;
	GP_TRY(turn_all(&c->tensors, err));
	GP_TRY(gp_alloc_array((void **)&item, (size_t)c->tensors.count, sizeof *item, err));
	for (int i = 0; i < c->tensors.count; i++) {
		const struct gp_captured *t = &c->tensors.tensor[i];
		item[i] = (struct gp_st_item){
			.name = t->name, .shape = t->type.shape, .data = t->data, .dtype = file_dtype(t->type.dtype)};
	}
	const enum gp_status status =
		gp_st_write(c->set.out, item, c->tensors.count, meta, sizeof meta / sizeof meta[0], err);
	gp_free(item);
	return status;
}

/* --- the report ------------------------------------------------------------------------------------------------- */

struct summary {
	double zeros, largest, rms; /* zeros: share of the elements */
};

static double value_at(const struct gp_captured *t, size_t k)
{
	return t->type.dtype == GP_I32 ? (double)((const int32_t *)t->data)[k] : (double)((const float *)t->data)[k];
}

static struct summary summarize(const struct gp_captured *t)
{
	const size_t n = gp_shape_elements(&t->type.shape);
	struct summary s = {0};
	for (size_t k = 0; k < n; k++) {
		const double x = value_at(t, k);
		s.zeros += x == 0;
		s.largest = fmax(s.largest, fabs(x));
		s.rms += x * x;
	}
	s.zeros /= (double)n;
	s.rms = sqrt(s.rms / (double)n);
	return s;
}

static json_t *report_json(const struct capturing *c)
{
	json_t *o =
		json_pack("{s:o, s:o}", "out", gp_job_text_json(c->set.out), "loss", gp_json_number(c->tensors.loss));
	for (int i = 0; o && i < c->tensors.count; i++) {
		const struct gp_captured *t = &c->tensors.tensor[i];
		const struct summary s = summarize(t);
		json_t *shape = json_array();
		for (int k = 0; k < t->type.shape.ndim; k++)
			json_array_append_new(shape, json_integer(t->type.shape.dim[k]));
		json_object_set_new(o, t->name,
				    json_pack("{s:s, s:o, s:f, s:o, s:o}", "dtype", gp_dtype_name(t->type.dtype),
					      "shape", shape, "zeros", s.zeros, "largest", gp_json_number(s.largest),
					      "rms", gp_json_number(s.rms)));
	}
	return o;
}

static int longest_name(const struct gp_capture *c)
{
	size_t longest = strlen("grad_down");
	for (int i = 0; i < c->count; i++)
		if (strlen(c->tensor[i].name) > longest)
			longest = strlen(c->tensor[i].name);
	return (int)longest;
}

static enum gp_status report(const struct capturing *c, struct gp_err *err)
{
	char text[80];
	if (c->set.job.json)
		return gp_job_print_json(report_json(c), err);
	const int width = longest_name(&c->tensors);
	for (int i = 0; i < c->tensors.count; i++) {
		const struct gp_captured *t = &c->tensors.tensor[i];
		const struct summary s = summarize(t);
		printf("%-*s %s %-16s %5.1f %% zeros, largest %.3g, root mean square %.3g\n", width, t->name,
		       gp_dtype_name(t->type.dtype), gp_shape_text(&t->type.shape, text, sizeof text), 100 * s.zeros,
		       s.largest, s.rms);
	}
	return GP_OK;
}

int gp_cmd_capture(int argc, char **argv)
{
	struct capturing c = {0};
	struct gp_options_result given;
	struct gp_err err = {0};
	enum gp_status status = parse(argc, argv, &c.set, &given, &err);
	if (status == GP_OK && !given.help) {
		status = prepare(&c, &err);
		status = status == GP_OK ? compute(&c, &err) : status;
		status = status == GP_OK ? write_file(&c, &err) : status;
		status = status == GP_OK ? report(&c, &err) : status;
	}
	gp_capture_deinit(&c.tensors);
	gp_job_deinit(&c.job);
	gp_loader_free(c.loader);
	gp_dataset_free(c.data);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
