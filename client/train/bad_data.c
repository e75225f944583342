/* SPDX-License-Identifier: Apache-2.0
 *
 * Bad pictures and suspicious input. See bad_data.h. Test: tests/e2e/bad_data.sh
 */
#include "client/train/bad_data.h"

#include <inttypes.h>
#include <string.h>

#include "client/data/data_check.h"
#include "client/log/progress.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/threads.h"

#define PLAIN_PROGRESS_S 5

static void show_progress(void *arg, uint32_t done, uint32_t of)
{
	struct gp_progress *p = arg;
	const uint64_t now = gp_now_ns();
	char text[80];
	if (!gp_progress_due(p, now))
		return;
	snprintf(text, sizeof text, "looking at the pictures: %u/%u", done, of);
	gp_progress_update(p, now, text);
}

static enum gp_status check(const struct gp_job_settings *s, const struct gp_dataset *d, struct gp_bad_samples *bad,
			    struct gp_err *err)
{
	struct gp_progress progress;
	const bool all = s->skip_bad > 0;
	const struct gp_check_options o = {.depth = all ? GP_CHECK_ALL : GP_CHECK_HEADERS,
					   .threads = gp_threads_count(s->threads),
					   .progress = show_progress,
					   .arg = &progress};
	gp_progress_init(&progress, s->progress ? stderr : NULL, PLAIN_PROGRESS_S);
	const enum gp_status status = gp_data_check(d, &o, bad, err);
	gp_progress_clear(&progress);
	return status;
}

static enum gp_status refuse(const struct gp_job_settings *s, enum gp_split split, const struct gp_bad_samples *bad,
			     uint32_t before, struct gp_err *err)
{
	const char *const what = split == GP_SPLIT_TRAIN ? "training" : "validation";
	if (s->skip_bad > 0)
		GP_FAIL(err, GP_INVALID,
			"%s; with it %u pictures are bad, more than the %lld of --skip-bad ('gpclient data check' "
			"lists all)",
			bad->list[0].text, before + bad->count, (long long)s->skip_bad);
	GP_FAIL(err, GP_INVALID,
		"%s; by their headers %u of %u %s pictures are bad: 'gpclient data check' lists all, --skip-bad N "
		"leaves up to N out",
		bad->list[0].text, bad->count, bad->checked, what);
}

static void note(const struct gp_bad_samples *bad, enum gp_split split, struct gp_left_out *out)
{
	for (uint32_t i = 0; i < bad->count; i++) {
		gp_log(data, GP_LOG_WARN, "left out: %s", bad->list[i].text);
		if (split == GP_SPLIT_TRAIN)
			out->names = out->names * 31 + gp_rng_name_id(bad->list[i].file);
	}
	out->samples += bad->count;
	out->training += split == GP_SPLIT_TRAIN ? bad->count : 0;
}

/* What a user has asked for and cannot get is told. */
static enum gp_status check_use(const struct gp_job_settings *s, const struct gp_dataset *d, struct gp_left_out *out,
				struct gp_err *err)
{
	if (s->skip_bad == 0)
		return GP_OK;
	if (!gp_dataset_has_pictures(d))
		GP_FAIL(err, GP_USAGE, "--skip-bad leaves out pictures that cannot be read; --data %s has none",
			s->data);
	if (!gp_dataset_has_files(d) && !out->told)
		gp_log(data, GP_LOG_WARN,
		       "--skip-bad does nothing for --data %s: its pictures have no files of their own, of which one "
		       "could be bad",
		       s->data);
	out->told = true;
	return GP_OK;
}

enum gp_status gp_leave_out_bad(const struct gp_job_settings *s, enum gp_split split, struct gp_dataset *d,
				struct gp_left_out *out, struct gp_err *err)
{
	struct gp_bad_samples bad = {0};
	GP_TRY(check_use(s, d, out, err));
	enum gp_status status = check(s, d, &bad, err);
	if (status == GP_OK && (int64_t)out->samples + bad.count > s->skip_bad)
		status = refuse(s, split, &bad, out->samples, err);
	if (status == GP_OK)
		status = gp_dataset_leave_out(d, &bad, err);
	if (status == GP_OK)
		note(&bad, split, out);
	gp_bad_samples_deinit(&bad);
	return status;
}

void gp_left_out_text(const struct gp_left_out *o, const char *spec, char *text, size_t size)
{
	snprintf(text, size, "%s", spec);
	if (o->training > 0)
		snprintf(text, size, "%s without %u %s (%016" PRIx64 ")", spec, o->training,
			 o->training == 1 ? "picture" : "pictures", o->names);
}

void gp_warn_of_data(const char *spec, const struct gp_dataset *d, const char *what)
{
	const unsigned doubts = gp_dataset_doubts(d);
	if (doubts & GP_DOUBT_ONE_CLASS)
		gp_log(data, GP_LOG_WARN,
		       "--data %s: all %u %s samples have the same label; a model learns nothing from them", spec,
		       gp_dataset_samples(d), what);
	if (doubts & GP_DOUBT_STATISTICS)
		gp_log(data, GP_LOG_WARN,
		       "--data %s: mean= and std= are of pixels between 0 and 1; those on the scale of 0 to 255 are to "
		       "be divided by 255",
		       spec);
}
