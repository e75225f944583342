/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training run keeps on disk. See run_state.h.
 * Test: tests/unit/test_run_state.c, tests/e2e/checkpoint.sh
 */
#include "client/train/run_state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/log.h"

#define STEPS_SHOWN 3 /* in a message */
#define STEPS_TEXT  80

/* In the progress of a manifest. */
#define SAMPLES_KEY "train_samples"
#define EVAL_KEY    "evaluates"

struct gp_run_state {
	struct gp_run_state_options o;
	int lock;
	uint8_t id[GP_RUN_ID_BYTES];
	uint64_t step[GP_CHECKPOINTS_MAX]; /* newest first */
	int count;
	struct gp_run_progress progress;
	uint64_t asked; /* the newest step that a checkpoint was written of, or failed */
	bool warned;
	bool confirmed; /* both sides have had a checkpoint of this run */
	struct gp_run_checkpoints checkpoints;
};

/* --- opening ---------------------------------------------------------------------------------------------------- */

static enum gp_status draw_id(uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	ssize_t n;
	do {
		n = getrandom(id, GP_RUN_ID_BYTES, 0);
	} while (n < 0 && errno == EINTR);
	if (n != GP_RUN_ID_BYTES)
		GP_FAIL(err, GP_IO, "no random bytes to be had: %s", strerror(errno));
	return GP_OK;
}

static const char *eval_text(enum gp_run_eval eval)
{
	return eval == GP_RUN_EVAL_YES ? "yes" : "no";
}

/* Another number of samples gives all the steps to come other samples. */
static enum gp_status check_samples(const struct gp_run_state *r, const struct gp_pairs *progress, struct gp_err *err)
{
	const char *before = gp_pairs_find(progress, SAMPLES_KEY);
	char now[16];
	snprintf(now, sizeof now, "%" PRIu32, r->o.samples);
	if (r->o.samples > 0 && before && strcmp(before, now) != 0)
		GP_FAIL(err, GP_INVALID,
			"--resume: --data has %s training samples now, but had %.20s when the run was at its "
			"checkpoint; bring the samples back that it had, or begin a new run",
			now, before);
	return GP_OK;
}

static enum gp_status check_eval(const struct gp_run_state *r, const struct gp_pairs *progress, struct gp_err *err)
{
	const char *before = gp_pairs_find(progress, EVAL_KEY);
	const bool evaluates = r->o.eval == GP_RUN_EVAL_YES;
	if (r->o.eval != GP_RUN_EVAL_ANY && before && strcmp(before, eval_text(r->o.eval)) != 0)
		GP_FAIL(err, GP_INVALID,
			"--resume: the run was begun with%s evaluations, before which --recalibrate takes the "
			"statistics that it goes on with: %s",
			evaluates ? "out" : "", evaluates ? "give --no-eval again" : "leave --no-eval out");
	return GP_OK;
}

static enum gp_status check_manifest(const struct gp_run_state *r, const struct gp_manifest *m, struct gp_err *err)
{
	if (m->role != GP_MANIFEST_CLIENT)
		GP_FAIL(err, GP_INVALID, "%s holds checkpoints of a server", r->o.dir);
	if (gp_pairs_compare(&m->spec, r->o.spec, "--", err) != GP_OK)
		return gp_err_prefix(err, "--resume");
	GP_TRY(check_samples(r, &m->progress, err));
	return check_eval(r, &m->progress, err);
}

static enum gp_status add_checkpoint(struct gp_run_state *r, const struct gp_checkpoint *c, struct gp_err *err)
{
	GP_TRY(check_manifest(r, &c->manifest, err));
	if (r->count > 0 && memcmp(r->id, c->manifest.run_id, sizeof r->id) != 0)
		GP_FAIL(err, GP_INVALID,
			"--checkpoint %.100s holds checkpoints of two runs (of steps %" PRIu64 " and %" PRIu64
			"); move those of one of them to a folder of their own",
			r->o.dir, r->step[0], c->manifest.step);
	memcpy(r->id, c->manifest.run_id, sizeof r->id);
	r->step[r->count++] = c->manifest.step;
	return GP_OK;
}

/* A damaged one is no reason to lose a run that has older ones; one of another version is. */
static enum gp_status take_checkpoint(struct gp_run_state *r, uint64_t step, struct gp_err *err)
{
	struct gp_checkpoint *c;
	struct gp_err damage;
	const enum gp_status opened = gp_checkpoint_open(r->o.dir, step, &c, &damage);
	if (opened == GP_UNSUPPORTED)
		GP_FAIL(err, GP_INVALID,
			"--checkpoint: %s; resume with the version that wrote it, or name another folder", damage.text);
	if (opened == GP_NOMEM || opened == GP_IO) /* which may pass: it is not to be lost for that */
		GP_FAIL(err, opened,
			"--resume: a checkpoint cannot be read: %s; try again, or move the folder of that step away to "
			"go on from an older one",
			damage.text);
	if (opened != GP_OK) {
		gp_log(main, GP_LOG_WARN, "left out: %s", damage.text);
		return GP_OK;
	}
	const enum gp_status status = add_checkpoint(r, c, err);
	gp_checkpoint_close(c);
	return status;
}

/* The id of the run is in its checkpoints: without one, no server can be asked for its half. */
static enum gp_status nothing_here(const struct gp_run_state *r, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID,
		"--resume: there is no checkpoint in %.100s, and without one a server cannot be asked for its half; is "
		"--checkpoint right? (--resume=if-any begins a run where there is none)",
		r->o.dir);
}

/* All of them are damaged, but they were a run. */
static enum gp_status nothing_readable(const struct gp_run_state *r, int count, struct gp_err *err)
{
	GP_FAIL(err, GP_INVALID,
		"--resume: none of the %d checkpoints in %.100s can be read (see the warnings); a new run needs "
		"another folder",
		count, r->o.dir);
}

static enum gp_status take_stock(struct gp_run_state *r, struct gp_err *err)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count;
	GP_TRY(gp_checkpoint_list(r->o.dir, step, &count, err));
	if (count > 0 && r->o.resume == GP_RESUME_NO)
		GP_FAIL(err, GP_INVALID,
			"--checkpoint %s holds checkpoints of a run (newest: step %" PRIu64
			"): --resume goes on with it; or name another folder",
			r->o.dir, step[0]);
	for (int i = 0; i < count; i++)
		GP_TRY(take_checkpoint(r, step[i], err));
	if (count > 0 && r->count == 0)
		return nothing_readable(r, count, err);
	/* The other side had all but the newest one, or this one would not have followed them. */
	r->confirmed = r->count > 1 || (r->count == 1 && gp_checkpoint_is_confirmed(r->o.dir, r->step[0]));
	return r->count > 0 ? GP_OK : draw_id(r->id, err);
}

/* Before the folder is made or anything in it is touched. */
static enum gp_status check_folder(const struct gp_run_state *r, struct gp_err *err)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count;
	if (gp_checkpoint_check_folder(r->o.dir, GP_MANIFEST_CLIENT, err) != GP_OK)
		return gp_err_prefix(err, "--checkpoint");
	GP_TRY(gp_checkpoint_list(r->o.dir, step, &count, err));
	return count == 0 && r->o.resume == GP_RESUME_MUST ? nothing_here(r, err) : GP_OK;
}

enum gp_status gp_run_state_open(const struct gp_run_state_options *o, struct gp_run_state **out, struct gp_err *err)
{
	struct gp_run_state *r = gp_calloc(1, sizeof *r);
	if (!r)
		GP_FAIL(err, GP_NOMEM, "out of memory for a run");
	r->o = *o;
	enum gp_status status = check_folder(r, err);
	if (status == GP_OK && gp_checkpoint_lock(o->dir, &r->lock, err) != GP_OK)
		status = gp_err_prefix(err, "--checkpoint");
	if (status != GP_OK) {
		gp_free(r);
		return status;
	}
	status = take_stock(r, err);
	if (status != GP_OK) {
		gp_run_state_close(r);
		return status;
	}
	*out = r;
	return GP_OK;
}

void gp_run_state_close(struct gp_run_state *r)
{
	if (!r)
		return;
	gp_checkpoint_unlock(r->lock);
	gp_free(r);
}

/* --- what there is ---------------------------------------------------------------------------------------------- */

bool gp_run_state_resumes(const struct gp_run_state *r)
{
	return r->o.resume != GP_RESUME_NO;
}

const uint8_t *gp_run_state_id(const struct gp_run_state *r)
{
	return r->id;
}

const char *gp_run_state_dir(const struct gp_run_state *r)
{
	return r->o.dir;
}

int gp_run_state_list(const struct gp_run_state *r, uint64_t step[GP_CHECKPOINTS_MAX])
{
	memcpy(step, r->step, (size_t)r->count * sizeof *step);
	return r->count;
}

uint64_t gp_run_state_newest(const struct gp_run_state *r)
{
	return r->count > 0 ? r->step[0] : 0;
}

enum gp_status gp_run_state_load(struct gp_run_state *r, uint64_t step, struct gp_checkpoint **out, struct gp_err *err)
{
	struct gp_checkpoint *c;
	GP_TRY(gp_checkpoint_open(r->o.dir, step, &c, err));
	enum gp_status status = check_manifest(r, &c->manifest, err);
	if (status != GP_OK) {
		gp_checkpoint_close(c);
		return status;
	}
	*out = c;
	return GP_OK;
}

static double read_real(const struct gp_pairs *p, const char *key)
{
	const char *text = gp_pairs_find(p, key);
	return text ? strtod(text, NULL) : 0;
}

static uint64_t read_count(const struct gp_pairs *p, const char *key)
{
	const char *text = gp_pairs_find(p, key);
	return text ? strtoull(text, NULL, 10) : 0;
}

void gp_run_state_begin(struct gp_run_state *r, const struct gp_checkpoint *c)
{
	r->progress = (struct gp_run_progress){0};
	r->asked = r->checkpoints.newest = c ? c->manifest.step : 0;
	if (!c)
		return;
	const struct gp_pairs *p = &c->manifest.progress;
	r->progress = (struct gp_run_progress){read_real(p, "epoch_loss_sum"), read_count(p, "epoch_correct"),
					       read_count(p, "epoch_samples")};
}

/* "steps 300, 200, 100", the newest three. */
static void list_steps(const uint64_t *step, size_t count, char text[STEPS_TEXT])
{
	size_t n = (size_t)snprintf(text, STEPS_TEXT, count == 1 ? "step" : "steps");
	for (size_t i = 0; i < count && i < STEPS_SHOWN; i++)
		n += (size_t)snprintf(text + n, STEPS_TEXT - n, "%s %" PRIu64, i == 0 ? "" : ",", step[i]);
}

enum gp_status gp_run_state_check_start(const struct gp_run_state *r, const char *server, const uint64_t *theirs,
					size_t count, const char *why_none, struct gp_err *err)
{
	char here[STEPS_TEXT] = "none", there[STEPS_TEXT] = "no checkpoint of this run";
	const bool must = r->o.resume == GP_RESUME_MUST || r->confirmed || (r->count > 0 && count > 0);
	if (!must)
		return GP_OK;
	if (r->count > 0)
		list_steps(r->step, (size_t)r->count, here);
	if (why_none)
		snprintf(there, sizeof there, "%s", why_none);
	else if (count > 0)
		list_steps(theirs, count, there);
	GP_FAIL(err, GP_INVALID, "%sno checkpoint is on both sides: here (%.80s) %s; server %.60s: %s%s",
		gp_run_state_resumes(r) && !r->o.reads ? "--resume: " : "", r->o.dir, here, server, there,
		r->confirmed || r->o.reads || count > 0 ? ""
							: " (it never had one: --resume=if-any begins the run again)");
}

void gp_run_state_tell(const struct gp_run_state *r, uint64_t step)
{
	if (r->o.resume == GP_RESUME_NO || r->o.reads)
		return;
	if (step > 0)
		fprintf(stderr, "resuming at step %" PRIu64 " of %" PRIu64 " (%s)\n", step, r->o.total_steps, r->o.dir);
	else if (r->count == 0)
		fprintf(stderr, "no checkpoint in %s: starting from step 0\n", r->o.dir);
	else
		fprintf(stderr,
			"the server has no checkpoint of this run, and never had one (%s): starting from step 0\n",
			r->o.dir);
}

struct gp_run_progress *gp_run_state_progress(struct gp_run_state *r)
{
	return &r->progress;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

bool gp_run_state_due(const struct gp_run_state *r, uint64_t steps)
{
	return r && (steps % r->o.every == 0 || steps == r->o.total_steps || (r->o.stop && *r->o.stop));
}

bool gp_run_state_settled(const struct gp_run_state *r, uint64_t steps)
{
	return !r || r->asked == steps;
}

static void note_list(struct gp_run_state *r)
{
	struct gp_err err;
	if (gp_checkpoint_list(r->o.dir, r->step, &r->count, &err) != GP_OK)
		gp_log(main, GP_LOG_DEBUG, "%s", err.text);
}

enum gp_status gp_run_state_write(struct gp_run_state *r, uint64_t steps, const struct gp_snapshot *s,
				  const struct gp_run_progress *step, struct gp_err *err)
{
	char loss[40], correct[24], samples[24], data[16];
	struct gp_manifest m = {.role = GP_MANIFEST_CLIENT,
				.step = steps,
				.spec = *r->o.spec,
				.state_meta = r->o.meta,
				.state_meta_count = r->o.meta_count};
	memcpy(m.run_id, r->id, sizeof m.run_id);
	snprintf(loss, sizeof loss, "%a", r->progress.loss_sum + step->loss_sum);
	snprintf(correct, sizeof correct, "%" PRIu64, r->progress.correct + step->correct);
	snprintf(samples, sizeof samples, "%" PRIu64, r->progress.samples + step->samples);
	snprintf(data, sizeof data, "%" PRIu32, r->o.samples);
	gp_pairs_add(&m.progress, "epoch_loss_sum", loss);
	gp_pairs_add(&m.progress, "epoch_correct", correct);
	gp_pairs_add(&m.progress, "epoch_samples", samples);
	if (r->o.samples > 0)
		gp_pairs_add(&m.progress, SAMPLES_KEY, data);
	if (r->o.eval != GP_RUN_EVAL_ANY)
		gp_pairs_add(&m.progress, EVAL_KEY, eval_text(r->o.eval));
	r->asked = steps;
	GP_TRY(gp_checkpoint_write(r->o.dir, &m, s->item, s->count, NULL, err));
	note_list(r);
	return GP_OK;
}

/* Later ones are of a run that was begun again. */
void gp_run_state_confirm(struct gp_run_state *r, uint64_t steps)
{
	struct gp_err err;
	if (gp_checkpoint_drop_after(r->o.dir, steps, &err) != GP_OK ||
	    gp_checkpoint_prune(r->o.dir, GP_CHECKPOINTS_STAY, &err) != GP_OK)
		gp_log(main, GP_LOG_WARN, "old checkpoints stay: %s", err.text);
	if (gp_checkpoint_confirm(r->o.dir, steps, &err) != GP_OK)
		gp_log(main, GP_LOG_DEBUG, "%s", err.text);
	note_list(r);
	r->confirmed = true;
	r->warned = false;
	r->checkpoints.written++;
	r->checkpoints.newest = steps;
}

static bool has_step(const struct gp_run_state *r, uint64_t step)
{
	for (int i = 0; i < r->count; i++)
		if (r->step[i] == step)
			return true;
	return false;
}

void gp_run_state_found(struct gp_run_state *r, uint64_t steps)
{
	struct gp_err err;
	if (r->o.reads || !has_step(r, steps))
		return;
	if (gp_checkpoint_confirm(r->o.dir, steps, &err) != GP_OK)
		gp_log(main, GP_LOG_DEBUG, "%s", err.text);
	r->confirmed = true;
	r->checkpoints.written += steps > r->checkpoints.newest; /* its COMMITTED was lost */
	r->checkpoints.newest = steps;
}

struct gp_run_checkpoints gp_run_state_checkpoints(const struct gp_run_state *r)
{
	return r ? r->checkpoints : (struct gp_run_checkpoints){0};
}

void gp_run_state_take_back(struct gp_run_state *r, uint64_t steps)
{
	struct gp_err err;
	if (gp_checkpoint_remove(r->o.dir, steps, &err) != GP_OK)
		gp_log(main, GP_LOG_WARN, "%s", err.text);
	note_list(r);
}

enum gp_status gp_run_state_refused(struct gp_run_state *r, struct gp_err *err)
{
	if (r->o.required) {
		gp_err_prefix(err, "--checkpoint-required");
		err->code = GP_INVALID;
		return err->code;
	}
	gp_log(main, r->warned ? GP_LOG_DEBUG : GP_LOG_WARN, "no checkpoint: %s; training goes on", err->text);
	r->warned = true;
	return GP_OK;
}

enum gp_status gp_run_state_failed(struct gp_run_state *r, uint64_t steps, struct gp_err *err)
{
	r->asked = steps;
	r->checkpoints.failed++;
	return gp_run_state_refused(r, err);
}
