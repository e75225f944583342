/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient model list`, `gpclient model show NAME` and `gpclient model export
 * CHECKPOINT`: options and dispatch. What show prints is in model_view.h, what
 * export writes in model_export.c.
 * Tests: tests/unit/test_model_view.c, tests/e2e/saved_model.sh
 */
#include "client/commands/commands.h"

#include <stddef.h>
#include <string.h>

#include "client/job/compress.h"
#include "client/job/freeze.h"
#include "client/weights/model_export.h"
#include "client/costs/memory_view.h"
#include "client/costs/model_view.h"
#include "client/models/models.h"
#include "client/session/client_session.h"
#include "common/options/options.h"
#include "common/graph/graph_part.h"

#define PROGRAM "gpclient model"

struct settings {
	const char *cut, *input, *freeze;
	const char *insert, *insert_end[GP_INSERT_ENDS]; /* up, down */
	int64_t batch, chunks;
	int count; /* enum gp_count */
	bool layers, json, memory;
	int64_t window;
	int optimizer; /* enum gp_optim_kind */
	double momentum;
	bool recompute;
	const char *compress;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt show_options[] = {
	{.name = "cut",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(cut),
	 .value = "H:T",
	 .initial = "1:-1",
	 .help = "blocks [0,H) and [T,end) stay on the client; negative counts from the end; of an encoder also type1, "
		 "f2l2, f3l2 or f3l1, which show lists"},
	{.name = "freeze",
	 .like = &gp_job_freeze_rows,
	 .offset = FIELD(freeze),
	 .help = "as for train: what crosses the cuts where these parameters (or head, body, tail) are not trained"},
	{.name = "insert",
	 .like = &gp_job_insert_rows,
	 .offset = FIELD(insert),
	 .help = "as for train: trainable layers that compress what crosses both cuts: " GP_INSERT_CHOICES},
	{.name = "insert-up", .like = &gp_job_insert_rows, .offset = FIELD(insert_end[GP_INSERT_UP])},
	{.name = "insert-down", .like = &gp_job_insert_rows, .offset = FIELD(insert_end[GP_INSERT_DOWN])},
	{.name = "batch",
	 .like = &gp_job_batch_rows,
	 .offset = FIELD(batch),
	 .help = "samples per step, for the tensor sizes"},
	{.name = "chunks",
	 .like = &gp_job_batch_rows,
	 .offset = FIELD(chunks),
	 .initial = "1",
	 .help = "micro-batches per step"},
	{.name = "input",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(input),
	 .value = "CxHxW",
	 .help = "shape of one sample; default: the model's own"},
	{.name = "count",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(count),
	 .choices = "true|origin",
	 .initial = "true",
	 .help = "how the first two tables count MACs: true = the products that are computed; origin = as the tool did "
		 "that made the published tables of conv insertion (two MACs for each element of a batch norm, and "
		 "too many for transposed convolutions); the table of costs shows both"},
	{.name = "layers", .type = GP_OPT_FLAG, .offset = FIELD(layers), .help = "show every layer, not only blocks"},
	{.name = "memory",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(memory),
	 .help = "what a training takes of a processor's memory: parameters, gradients, the optimizer's state, what a "
		 "chunk keeps of each block, scratch; and what the flags that save memory would save"},
	{.name = "window",
	 .type = GP_OPT_INT,
	 .offset = FIELD(window),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 4096,
	 .help = "for --memory: chunks in flight, as for train; 0 = 4, or --chunks where that is less"},
	{.name = "optimizer",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(optimizer),
	 .initial = "sgd",
	 .choices = "sgd|adam|adamw",
	 .help = "for --memory: what the state is of"},
	{.name = "momentum",
	 .type = GP_OPT_REAL,
	 .offset = FIELD(momentum),
	 .value = "X",
	 .initial = "0.9",
	 .min = 0,
	 .max = 1,
	 .help = "for --memory: of sgd, which has no state where it is 0"},
	{.name = "recompute",
	 .like = &gp_job_memory_rows,
	 .offset = FIELD(recompute),
	 .help = "for --memory: as for train; the tables are then of a training with it"},
	{.name = "compress",
	 .like = &gp_job_memory_rows,
	 .offset = FIELD(compress),
	 .help = "for --memory: as for train: " GP_COMPRESS_CODECS "; the tables are then of a training with it"},
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print JSON"},
};

static const struct gp_opt_table show_table = {
	.command = PROGRAM " show",
	.synopsis = "NAME[:key=value,...] [--cut H:T] [--insert SPEC] [--freeze PATTERN] [--batch N] [--chunks N] "
		    "[--input CxHxW] [--count true|origin] [--layers] [--memory] [--json]",
	.about =
		"Shows a model's blocks, parameters and multiply-accumulates (MACs), how a cut divides them\n"
		"between client and server, and every tensor that crosses the link: its type, its size, and whether\n"
		"a gradient comes back. Data (token ids, a mask) crosses as it is, activations through a codec. Of an\n"
		"encoder it lists the cuts that have names, too. The table of costs has the MACs of each part and the\n"
		"bytes of its layers' outputs, forward and backward, for a sample, a chunk and a batch.",
	.examples = "  gpclient model show mobilenetv2 --cut 1:-1 --batch 64 --chunks 8\n"
		    "  gpclient model show mobilenetv2:width=0.5,stem=cifar --input 1x32x32 --layers\n"
		    "  gpclient model show fasttext:tokens=64 --cut 1:-1 --freeze head\n"
		    "  gpclient model show roberta:cuts=fine --cut type1 --batch 32 --chunks 4\n"
		    "  gpclient model show mobilenetv2:cuts=fine --cut 1:-2 --insert flop-2 --count origin\n"
		    "  gpclient model show mobilenetv2 --batch 64 --chunks 8 --memory\n"
		    "  gpclient model show mobilenetv2 --batch 64 --chunks 8 --memory --compress maps=uniform:bits=8\n",
	.positional = "NAME",
	.positional_max = 1,
};

static const struct gp_opt list_options[] = {
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print JSON"},
};

static const struct gp_opt_table list_table = {
	.command = PROGRAM " list",
	.synopsis = "[--json]",
	.about = "Lists the models and their options.",
	.opt = list_options,
	.count = sizeof list_options / sizeof list_options[0],
};

struct export_settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets. The server alone is the user's */
	const char *out, *state_dir;
};

static const struct gp_opt export_options[] = {
	{.name = "out",
	 .type = GP_OPT_TEXT,
	 .offset = offsetof(struct export_settings, out),
	 .value = "FILE",
	 .help = "the file of weights to write (safetensors)"},
	{.name = "server",
	 .type = GP_OPT_TEXT,
	 .offset = offsetof(struct export_settings, job.server),
	 .value = "HOST:PORT",
	 .help = "of a split run: the gpserverd that has its body; it wants the credential that the run had"},
	{.name = "state-dir",
	 .type = GP_OPT_TEXT,
	 .offset = offsetof(struct export_settings, state_dir),
	 .value = "DIR",
	 .help = "of a split run, in place of --server: that server's --state-dir, where it is on this machine"},
};

static const struct gp_opt_table export_table = {
	.command = PROGRAM " export",
	.synopsis = "CHECKPOINT --out FILE [--server HOST:PORT [OPTION...] | --state-dir DIR]",
	.about =
		"Writes a file of weights from a checkpoint, as `gpclient train --save` does: for --init, eval and\n"
		"infer, and for PyTorch. CHECKPOINT is the folder of --checkpoint, of which the newest is taken, or\n"
		"one of the folders in it. The checkpoint of a local run has the whole model. That of a split run has\n"
		"head and tail; the server has the body. --server fetches it: of the newest step that both sides have\n"
		"a checkpoint of, as the client that the run belongs to, while no training uses CHECKPOINT.",
	.examples = "  gpclient model export run1 --out run1.safetensors\n"
		    "  gpclient model export run1/step-000000000300 --out early.safetensors\n"
		    "  gpclient model export run2 --server 127.0.0.1:4400 --out run2.safetensors\n"
		    "  gpclient model export run2 --state-dir /var/lib/gpsplit --out run2.safetensors\n",
	.positional = "CHECKPOINT",
	.positional_max = 1,
};

/* --- list ------------------------------------------------------------------------------------------------------- */

static enum gp_status list_models(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct settings s = {0};
	const struct gp_model_info *m;
	GP_TRY(gp_options_parse(&list_table, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	if (s.json)
		return gp_model_list_json(stdout, err);
	for (int i = 0; (m = gp_model_info(i)); i++)
		printf("%-14s %s\n%-14s   options: %s\n", m->name, m->summary, "", m->options);
	printf("\nUse as NAME:key=value,...; `" PROGRAM " show NAME` tells more.\n");
	return GP_OK;
}

/* --- show ------------------------------------------------------------------------------------------------------- */

/* It is the view's own from here on. */
static enum gp_status add_memory(const struct settings *s, struct gp_model_view *view, struct gp_memory_view *memory,
				 struct gp_err *err)
{
	const int64_t most = s->window > 0 ? s->window : GP_WINDOW_FIRST;
	struct gp_memory_options o = {.optim = {.kind = (enum gp_optim_kind)s->optimizer,
						.momentum = s->optimizer == GP_OPTIM_SGD ? (float)s->momentum : 0.0f,
						.beta1 = 0.9,
						.beta2 = 0.999,
						.eps = 1e-8f},
				      .window = (int)(most < s->chunks ? most : s->chunks),
				      .session = {.recompute = s->recompute}};
	GP_TRY(gp_compress_parse(s->compress, &o.session, err));
	if (o.session.recompute && o.session.maps.stages > 0)
		GP_FAIL(err, GP_USAGE, "--compress maps=... and --recompute exclude each other");
	GP_TRY(gp_memory_view_find(view, &o, memory, err));
	view->memory = memory;
	return GP_OK;
}

static enum gp_status show_view(const struct settings *s, const struct gp_model_view *view, struct gp_err *err)
{
	if (s->json)
		return gp_model_view_json(view, stdout, err);
	gp_model_view_print(view, s->layers, stdout);
	return GP_OK;
}

/* The cut, insertions and what is frozen, in the order in which train settles them. */
static enum gp_status settle_graph(const struct settings *s, struct gp_graph **g, struct gp_cut *cut,
				   struct gp_insertion *ins, struct gp_view_plain *plain, struct gp_err *err)
{
	int frozen;
	GP_TRY(gp_partition_parse(*g, s->cut, cut, err));
	GP_TRY(gp_insertion_parse(s->insert, s->insert_end[GP_INSERT_UP], s->insert_end[GP_INSERT_DOWN], ins, err));
	if (gp_insertion_any(ins))
		GP_TRY(gp_view_plain_find(*g, cut, plain, err));
	GP_TRY(gp_insert(g, cut, ins, err));
	return s->freeze ? gp_freeze(*g, cut, s->freeze, &frozen, err) : GP_OK;
}

static enum gp_status show_graph(const struct settings *s, const char *spec, struct gp_graph **g, struct gp_err *err)
{
	struct gp_cut cut;
	struct gp_insertion ins;
	struct gp_view_plain plain;
	struct gp_model_view view;
	GP_TRY(settle_graph(s, g, &cut, &ins, &plain, err));
	GP_TRY(gp_model_view_init(&view, spec, *g, &cut, s->batch, s->chunks, err));
	if (gp_insertion_any(&ins))
		gp_model_view_compare(&view, &ins, &plain);
	view.count = (enum gp_count)s->count;
	struct gp_memory_view memory = {0};
	enum gp_status status = s->memory ? add_memory(s, &view, &memory, err) : GP_OK;
	if (status == GP_OK)
		status = show_view(s, &view, err);
	gp_memory_view_deinit(&memory);
	gp_model_view_deinit(&view);
	return status;
}

static enum gp_status show_model(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct settings s = {0};
	struct gp_model_options model = {0};
	struct gp_graph *g;
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(show_options)};
	GP_TRY(gp_options_parse_parts(&show_table, parts, 1, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	if (r->positionals != 1)
		GP_FAIL(err, GP_USAGE, "show needs the name of a model; `" PROGRAM " list` tells which there are");
	if (!s.memory && (s.compress || s.recompute))
		GP_FAIL(err, GP_USAGE, "--compress and --recompute are for --memory");
	if (s.input && !gp_shape_parse_chw(s.input, &model.input))
		GP_FAIL(err, GP_USAGE, "--input '%.40s' is not CxHxW, such as 3x224x224", s.input);
	GP_TRY(gp_model_build(r->positional[0], &model, &g, err));
	enum gp_status status = show_graph(&s, r->positional[0], &g, err);
	gp_graph_free(g);
	return status;
}

/* --- export ----------------------------------------------------------------------------------------------------- */

static enum gp_status parse_export(int argc, char **argv, struct export_settings *s, struct gp_options_result *r,
				   struct gp_err *err)
{
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(export_options), gp_job_security_rows};
	return gp_options_parse_parts(&export_table, parts, sizeof parts / sizeof parts[0], argc, argv, s, r, err);
}

static enum gp_status check_export(const struct export_settings *s, const struct gp_options_result *r,
				   struct gp_err *err)
{
	const struct gp_client_security_files *tls = &s->job.security;
	if (r->positionals != 1)
		GP_FAIL(err, GP_USAGE, "export needs a checkpoint: the folder of --checkpoint, or one of those in it");
	if (!s->out || !*s->out)
		GP_FAIL(err, GP_USAGE, "--out FILE is missing: where the weights go");
	if (s->job.server && s->state_dir)
		GP_FAIL(err, GP_USAGE, "--server and --state-dir exclude each other: either has the body");
	if (!s->job.server && (tls->tls || tls->ca || tls->cert || tls->key || tls->name || tls->token))
		GP_FAIL(err, GP_USAGE, "--tls, --tls-ca and --token-file are for a --server");
	return GP_OK;
}

static enum gp_status export_model(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct export_settings s = {0};
	GP_TRY(parse_export(argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	GP_TRY(check_export(&s, r, err));
	struct gp_model_export x = {.checkpoint = r->positional[0],
				    .state_dir = s.state_dir,
				    .server = s.job.server ? &s.job : NULL,
				    .read_run = gp_cmd_train_read_run,
				    .out = s.out};
	GP_TRY(gp_model_export(&x, err));
	fprintf(stderr, "%s: %d tensors as of step %llu\n", s.out, x.tensors, (unsigned long long)x.step);
	if (!x.knows_model)
		fprintf(stderr, "note: the checkpoint is of an older version and does not say of which model: give "
				"--model with it\n");
	if (x.recalibrated > 0)
		fprintf(stderr,
			"note: the run has --recalibrate %ld, and checkpoints have the running statistics of before: "
			"'gpclient eval --init %s --recalibrate %ld --save FILE' takes them anew\n",
			x.recalibrated, s.out, x.recalibrated);
	return GP_OK;
}

/* --- dispatch --------------------------------------------------------------------------------------------------- */

int gp_cmd_model(int argc, char **argv)
{
	static const char usage[] =
		"usage: " PROGRAM " list [--json]\n"
		"       " PROGRAM " show NAME[:key=value,...] [options]   (" PROGRAM " show --help)\n"
		"       " PROGRAM " export CHECKPOINT --out FILE          (" PROGRAM " export --help)\n";
	static const struct gp_subcommand list[] = {
		{"list", list_models}, {"show", show_model}, {"export", export_model}};
	return gp_cmd_dispatch(PROGRAM, usage, list, sizeof list / sizeof list[0], argc, argv);
}
