/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient data list: the kinds of datasets. gpclient data check: reads all
 * files of a dataset, training and validation, and lists those that are bad,
 * each with its reason. Tests: tests/e2e/json_keys.sh, tests/e2e/bad_data.sh
 */
#include <stddef.h>
#include <string.h>

#include "client/train/bad_data.h"
#include "client/commands/commands.h"
#include "client/data/data_check.h"
#include "client/log/progress.h"
#include "common/base/threads.h"

#define PROGRAM "gpclient data"

#define PLAIN_PROGRESS_S 5

struct settings {
	const char *tokenizer;
	int64_t threads;
	bool json, progress;
};

#define FIELD(name) offsetof(struct settings, name)

/* --- list ------------------------------------------------------------------------------------------------------- */

static const struct gp_opt list_options[] = {
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print JSON"},
};

static const struct gp_opt_table list_table = {
	.command = PROGRAM " list",
	.synopsis = "[--json]",
	.about = "Lists the kinds of datasets with their keys and defaults.",
	.opt = list_options,
	.count = sizeof list_options / sizeof list_options[0],
};

static json_t *list_json(void)
{
	json_t *list = json_array();
	const struct gp_dataset_info *info;
	for (int i = 0; list && (info = gp_dataset_info(i)); i++)
		if (json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", info->name, "keys", info->options,
							  "summary", info->summary)) != 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static enum gp_status list_datasets(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct settings s = {0};
	const struct gp_dataset_info *info;
	GP_TRY(gp_options_parse(&list_table, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	if (s.json)
		return gp_job_print_json(list_json(), err);
	for (int i = 0; (info = gp_dataset_info(i)); i++)
		printf("%-14s %s\n%-14s   keys: %s\n", info->name, info->summary, "", info->options);
	printf("\nUse as NAME:DIR,key=value,... or NAME,key=value,...; '" PROGRAM
	       " check' reads all files of a dataset.\n");
	return GP_OK;
}

/* --- check ------------------------------------------------------------------------------------------------------ */

static const struct gp_opt check_options[] = {
	{.name = "tokenizer",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(tokenizer),
	 .value = "DIR",
	 .help = "what makes tokens of texts, as for train"},
	{.name = "threads",
	 .like = &gp_job_where_rows,
	 .offset = FIELD(threads),
	 .help = "threads that read and decode; 0 = one for each processor"},
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print one JSON object"},
	{.name = "progress", .like = &gp_job_progress_rows, .offset = FIELD(progress)},
};

static const struct gp_opt_table check_table = {
	.command = PROGRAM " check",
	.synopsis = "SPEC [--tokenizer DIR] [--threads N] [--json]",
	.about =
		"Reads every file of a dataset, training and validation: pictures are decoded, texts made tokens,\n"
		"labels and checksums of others compared. SPEC is what --data takes. Prints a line for each bad file,\n"
		"and for each bad row of a table (a hundred at most), then a summary; the exit status is 3 where one\n"
		"is bad.",
	.examples = "  gpclient data check folder:flowers\n"
		    "  gpclient data check cifar10:cifar-10-batches-bin --json\n"
		    "  gpclient data check glue-sst2:glue --tokenizer roberta\n",
	.positional = "SPEC",
	.positional_max = 1,
};

/* One split. */
struct part {
	const char *name;
	struct gp_bad_samples bad;
	uint32_t samples; /* 0: it could not be opened */
};

struct checking {
	struct settings set;
	const char *spec;
	struct part part[2]; /* by enum gp_split */
	enum gp_split now;
	struct gp_progress progress;
};

static void show_progress(void *arg, uint32_t done, uint32_t of)
{
	struct checking *c = arg;
	const uint64_t now = gp_now_ns();
	char text[80];
	if (!gp_progress_due(&c->progress, now))
		return;
	snprintf(text, sizeof text, "%s: %u/%u files", c->part[c->now].name, done, of);
	gp_progress_update(&c->progress, now, text);
}

static enum gp_status check_samples(struct checking *c, const struct gp_dataset *d, struct gp_err *err)
{
	const struct gp_check_options o = {.depth = GP_CHECK_ALL,
					   .threads = gp_threads_count(c->set.threads),
					   .progress = show_progress,
					   .arg = c};
	c->part[c->now].samples = gp_dataset_samples(d);
	const enum gp_status status = gp_data_check(d, &o, &c->part[c->now].bad, err);
	gp_progress_clear(&c->progress);
	if (status == GP_OK)
		gp_warn_of_data(c->spec, d, c->part[c->now].name);
	return status;
}

/* Where both splits lie in one file, its faults are listed once. */
static bool is_listed(const struct checking *c, const char *text)
{
	const struct gp_bad_samples *b = &c->part[GP_SPLIT_TRAIN].bad;
	for (uint32_t i = 0; i < b->count; i++)
		if (strcmp(b->list[i].text, text) == 0)
			return true;
	return false;
}

/* A split that cannot be opened though none of its files is bad by itself: that is its one fault. */
static enum gp_status check_split(struct checking *c, struct gp_err *err)
{
	const struct gp_dataset_options options = {.tokenizer = c->set.tokenizer};
	struct part *p = &c->part[c->now];
	struct gp_dataset *d;
	GP_TRY(gp_data_check_files(c->spec, c->now, &p->bad, err));
	if (p->bad.count > 0)
		return GP_OK;
	struct gp_err why = {0};
	enum gp_status status = gp_dataset_open(c->spec, c->now, &options, &d, &why);
	if ((status == GP_INVALID || status == GP_IO) && is_listed(c, why.text))
		return GP_OK;
	if (status == GP_INVALID || status == GP_IO)
		return gp_bad_samples_add(&p->bad, 0, "", why.text, err);
	if (status != GP_OK) {
		*err = why;
		return status;
	}
	status = check_samples(c, d, err);
	gp_dataset_free(d);
	return status;
}

static uint32_t faults_of(const struct part *p)
{
	return p->bad.count + p->bad.unlisted;
}

static void print_part(const struct part *p)
{
	char files[48] = "";
	for (uint32_t i = 0; i < p->bad.count; i++)
		printf("%s: %s\n", p->name, p->bad.list[i].text);
	if (p->bad.checked > 0)
		snprintf(files, sizeof files, ", %u %s read", p->bad.checked, p->bad.checked == 1 ? "file" : "files");
	if (p->bad.unlisted > 0)
		printf("%s: ... and %u more\n", p->name, p->bad.unlisted);
	if (p->samples > 0 || p->bad.checked > 0)
		printf("%s: %u sample%s%s, %u bad\n", p->name, p->samples, p->samples == 1 ? "" : "s", files,
		       faults_of(p));
}

static json_t *part_json(const struct part *p)
{
	json_t *list = json_array();
	for (uint32_t i = 0; i < p->bad.count; i++)
		json_array_append_new(list, json_pack("{s:o, s:o}", "file", gp_job_text_json(p->bad.list[i].file),
						      "reason", gp_job_text_json(p->bad.list[i].text)));
	return json_pack("{s:I, s:I, s:I, s:o}", "samples", (json_int_t)p->samples, "files", (json_int_t)p->bad.checked,
			 "faults", (json_int_t)faults_of(p), "bad", list);
}

static enum gp_status report(const struct checking *c, struct gp_err *err)
{
	const uint32_t bad = faults_of(&c->part[0]) + faults_of(&c->part[1]);
	if (c->set.json)
		GP_TRY(gp_job_print_json(json_pack("{s:o, s:o, s:o}", "data", gp_job_text_json(c->spec), "train",
						   part_json(&c->part[0]), "val", part_json(&c->part[1])),
					 err));
	else
		for (int i = 0; i < 2; i++)
			print_part(&c->part[i]);
	if (bad > 0)
		GP_FAIL(err, GP_INVALID, "%s: %u %s in all", c->spec, bad, bad == 1 ? "fault" : "faults");
	return GP_OK;
}

static enum gp_status check_all(struct checking *c, struct gp_err *err)
{
	gp_progress_init(&c->progress, c->set.progress ? stderr : NULL, PLAIN_PROGRESS_S);
	enum gp_status status = GP_OK;
	for (c->now = GP_SPLIT_TRAIN; c->now <= GP_SPLIT_VAL && status == GP_OK; c->now++)
		status = check_split(c, err);
	if (status == GP_OK)
		return report(c, err);
	struct gp_err ignored; /* what was found is told, whatever ended the check */
	if (c->part[0].bad.count + c->part[1].bad.count > 0)
		report(c, &ignored);
	return status;
}

static enum gp_status check(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct checking c = {.part = {{.name = "training"}, {.name = "validation"}}};
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(check_options)};
	GP_TRY(gp_options_parse_parts(&check_table, parts, 1, argc, argv, &c.set, r, err));
	if (r->help)
		return GP_OK;
	if (r->positionals == 0)
		GP_FAIL(err, GP_USAGE, "check needs the data, as in '" PROGRAM " check folder:DIR'");
	GP_TRY(gp_threads_check(c.set.threads, err));
	c.spec = r->positional[0];
	const enum gp_status status = check_all(&c, err);
	for (int i = 0; i < 2; i++)
		gp_bad_samples_deinit(&c.part[i].bad);
	return status;
}

/* --- dispatch --------------------------------------------------------------------------------------------------- */

int gp_cmd_data(int argc, char **argv)
{
	static const char usage[] = "usage: " PROGRAM " list [--json]\n"
				    "       " PROGRAM " check SPEC [--tokenizer DIR] [--threads N] [--json]\n";
	static const struct gp_subcommand list[] = {{"list", list_datasets}, {"check", check}};
	return gp_cmd_dispatch(PROGRAM, usage, list, sizeof list / sizeof list[0], argc, argv);
}
