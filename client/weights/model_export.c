/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of weights from checkpoints. See model_export.h.
 * Test: tests/e2e/saved_model.sh
 */
#include "client/weights/model_export.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <openssl/sha.h>
#include <string.h>

#include "client/weights/run_weights.h"
#include "client/weights/saved_model.h"
#include "common/graph/weights.h"
#include "common/base/durable.h"
#include "common/base/log.h"
#include "common/store/checkpoint.h"

#define PARAM_PREFIX "param."
#define NOT_SPLIT    "none (--local)" /* run_spec.c */
#define OWNER_MOST   1024

struct exporting {
	struct gp_model_export *x;
	char dir[PATH_MAX];                /* of the client */
	char body[PATH_MAX];               /* the run's folder of the server; "": not needed */
	uint64_t step[GP_CHECKPOINTS_MAX]; /* to choose from */
	int count;
	struct gp_checkpoint *ours, *theirs;
};

/* --- the client's half ------------------------------------------------------------------------------------------ */

/* DIR/step-000000000300 names one of the checkpoints in DIR. */
static bool names_one(const char *path, char dir[PATH_MAX], uint64_t *step)
{
	static const char prefix[] = "step-";
	size_t len = strlen(path);
	while (len > 1 && path[len - 1] == '/')
		len--;
	size_t at = len;
	while (at > 0 && path[at - 1] != '/')
		at--;
	const size_t digits = strspn(path + at + (len - at > 5 ? 5 : 0), "0123456789");
	if (len >= PATH_MAX || len - at <= 5 || strncmp(path + at, prefix, 5) != 0 || at + 5 + digits != len)
		return false;
	*step = strtoull(path + at + 5, NULL, 10);
	if (at == 0)
		strcpy(dir, ".");
	else
		snprintf(dir, PATH_MAX, "%.*s", at > 1 ? (int)at - 1 : 1, path);
	return true;
}

static enum gp_status list_ours(struct exporting *e, struct gp_err *err)
{
	const char *path = e->x->checkpoint;
	if (names_one(path, e->dir, &e->step[0])) {
		e->count = 1;
		return GP_OK;
	}
	if (snprintf(e->dir, sizeof e->dir, "%s", path) >= (int)sizeof e->dir)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", path);
	GP_TRY(gp_checkpoint_list(e->dir, e->step, &e->count, err));
	if (e->count == 0)
		GP_FAIL(err, GP_INVALID, "there is no checkpoint in %s", path);
	return GP_OK;
}

/* The whole model, or a part of it? All checkpoints of a run agree on that. */
static enum gp_status open_ours(struct exporting *e, uint64_t step, struct gp_err *err)
{
	gp_checkpoint_close(e->ours);
	e->ours = NULL;
	GP_TRY(gp_checkpoint_open(e->dir, step, &e->ours, err));
	if (e->ours->manifest.role != GP_MANIFEST_CLIENT)
		GP_FAIL(err, GP_INVALID,
			"%s holds checkpoints of a server; name the folder of the client's --checkpoint", e->dir);
	return GP_OK;
}

static void tell_older(const struct exporting *e, int at, const struct gp_err *err)
{
	if (at + 1 < e->count)
		gp_log(main, GP_LOG_WARN, "%s; an older checkpoint is taken", err->text);
}

/* The newest that is whole. */
static enum gp_status open_newest(struct exporting *e, struct gp_err *err)
{
	enum gp_status status = GP_OK;
	for (int i = 0; i < e->count; i++) {
		status = open_ours(e, e->step[i], err);
		if (status != GP_INVALID || e->ours) /* whole, but a server's */
			return status;
		tell_older(e, i, err);
	}
	return status;
}

static bool is_whole(const struct exporting *e)
{
	const char *cut = gp_pairs_find(&e->ours->manifest.spec, "cut");
	return cut && strcmp(cut, NOT_SPLIT) == 0;
}

/* --- the server's half ------------------------------------------------------------------------------------------ */

/* state_dir.c: every byte that is not printable ASCII, and '%', as %XX. Returns the length. */
static size_t unescape(const char *text, char out[OWNER_MOST])
{
	size_t n = 0;
	for (; *text && n < OWNER_MOST; text++) {
		char hex[3] = {0};
		if (*text == '%' && text[1] && text[2]) {
			memcpy(hex, text + 1, 2);
			out[n++] = (char)strtoul(hex, NULL, 16);
			text += 2;
		} else {
			out[n++] = *text;
		}
	}
	return n;
}

/* A server with credentials names the folder by the run and by whose it is: server/session.c. */
static bool is_folder_of(const uint8_t run[GP_RUN_ID_BYTES], const char *owner, const uint8_t folder[GP_RUN_ID_BYTES])
{
	uint8_t bytes[GP_RUN_ID_BYTES + OWNER_MOST], sum[SHA256_DIGEST_LENGTH];
	memcpy(bytes, run, GP_RUN_ID_BYTES);
	const size_t len = unescape(owner, (char *)bytes + GP_RUN_ID_BYTES);
	SHA256(bytes, GP_RUN_ID_BYTES + len, sum);
	return memcmp(len > 0 ? sum : run, folder, GP_RUN_ID_BYTES) == 0;
}

/* Whether this folder of the server's has the run: as its name says, or as its owner's name in it does. */
static bool has_run(const struct exporting *e, const char *name, char path[PATH_MAX])
{
	uint8_t folder[GP_RUN_ID_BYTES];
	uint64_t step[GP_CHECKPOINTS_MAX];
	struct gp_manifest m;
	struct gp_err ignored;
	int count = 0;
	bool ours = false;
	if (!gp_run_id_parse(name, folder) || snprintf(path, PATH_MAX, "%s/%s", e->x->state_dir, name) >= PATH_MAX ||
	    gp_checkpoint_list(path, step, &count, &ignored) != GP_OK)
		return false;
	for (int i = 0; i < count && !ours; i++) {
		if (gp_checkpoint_peek(path, step[i], &m, &ignored) != GP_OK)
			continue;
		const char *owner = gp_pairs_find(&m.progress, "owner");
		ours = is_folder_of(e->ours->manifest.run_id, owner ? owner : "", folder);
		gp_manifest_deinit(&m);
	}
	return ours;
}

static enum gp_status find_body(struct exporting *e, struct gp_err *err)
{
	char path[PATH_MAX];
	DIR *dir = opendir(e->x->state_dir);
	if (!dir)
		return gp_fail_os(err, GP_INVALID, "open --state-dir", e->x->state_dir);
	for (const struct dirent *entry; !e->body[0] && (entry = readdir(dir));)
		if (has_run(e, entry->d_name, path))
			memcpy(e->body, path, sizeof e->body);
	closedir(dir);
	if (!e->body[0])
		GP_FAIL(err, GP_INVALID, "--state-dir %s has no checkpoint of the run in %s", e->x->state_dir, e->dir);
	return GP_OK;
}

/* The newest step that both have, whole. */
static enum gp_status open_both(struct exporting *e, struct gp_err *err)
{
	if (!e->x->state_dir)
		GP_FAIL(err, GP_INVALID,
			"%.100s is of a split run: the server has the body's parameters. Give --server HOST:PORT, or "
			"its --state-dir DIR where that is on this machine",
			e->x->checkpoint);
	GP_TRY(find_body(e, err));
	enum gp_status status = GP_OK;
	for (int i = 0; i < e->count; i++) {
		struct gp_manifest m;
		struct gp_err ignored;
		if (gp_checkpoint_peek(e->body, e->step[i], &m, &ignored) != GP_OK)
			continue;
		gp_manifest_deinit(&m);
		status = gp_checkpoint_open(e->body, e->step[i], &e->theirs, err);
		if (status == GP_OK)
			status = open_ours(e, e->step[i], err);
		if (status != GP_INVALID)
			return status;
		gp_checkpoint_close(e->theirs);
		e->theirs = NULL;
		tell_older(e, i, err);
	}
	GP_TRY(status);
	GP_FAIL(err, GP_INVALID, "the server has no checkpoint of a step that %s has one of (newest: step %" PRIu64 ")",
		e->dir, e->step[0]);
}

/* The rest of the id opens the run's checkpoints. */
static void note_run(const struct exporting *e, struct gp_saved_model *m)
{
	char id[GP_RUN_ID_HEX];
	gp_run_id_text(e->ours->manifest.run_id, id);
	snprintf(m->run, sizeof m->run, "%.8s", id);
}

/* --- from the server --------------------------------------------------------------------------------------------- */

static enum gp_status save_fetched(struct exporting *e, struct gp_saved_model *m, const struct gp_run_weights *w,
				   struct gp_err *err)
{
	struct gp_saved_pairs pairs;
	e->x->step = m->steps = w->step;
	e->x->tensors = w->weights->graph->params;
	note_run(e, m);
	GP_TRY(gp_saved_pairs_make(m, &pairs, err));
	const enum gp_status status = gp_weights_save_with(w->weights, e->x->out, pairs.pair, pairs.count, err);
	gp_saved_pairs_deinit(&pairs);
	return status;
}

static enum gp_status fetch_as(struct exporting *e, struct gp_saved_model *m, struct gp_job_settings *job,
			       const struct gp_optim *optim, struct gp_err *err)
{
	struct gp_run_weights w = {0};
	const struct gp_run_weights_spec spec = {
		.dir = e->dir, .manifest = &e->ours->manifest, .saved = m, .optim = optim};
	job->server = e->x->server->server;
	job->security = e->x->server->security;
	job->model = m->model;
	job->data = m->data;
	job->device = "cpu";
	job->client_precision = 1 + GP_PRECISION_FP32; /* nothing is computed here */
	job->reconnect_for_s = 0;
	job->local = job->progress = false;
	enum gp_status status = gp_run_weights_fetch(&w, job, &spec, err);
	if (status == GP_OK)
		status = save_fetched(e, m, &w, err);
	gp_run_weights_deinit(&w);
	return status;
}

static enum gp_status fetch_model(struct exporting *e, struct gp_saved_model *m, struct gp_err *err)
{
	struct gp_job_settings job;
	struct gp_optim optim;
	struct gp_options_result r;
	if (!m->model[0])
		GP_FAIL(err, GP_INVALID,
			"%.100s: an older version wrote it, which does not say of which model it is; the run can write "
			"its weights: its command with --resume --save FILE",
			e->x->checkpoint);
	e->x->knows_model = true;
	GP_TRY(e->x->read_run(&e->ours->manifest.spec, &job, &optim, &r, err));
	const enum gp_status status = fetch_as(e, m, &job, &optim, err);
	gp_options_free(&r);
	return status;
}

/* Which step it is of is settled with the server: the newest that both have. */
static enum gp_status export_from_server(struct exporting *e, struct gp_err *err)
{
	struct gp_saved_model m;
	uint64_t step;
	char dir[PATH_MAX];
	if (is_whole(e))
		GP_FAIL(err, GP_INVALID, "%.100s is of a local run, which no server has a part of: leave --server out",
			e->x->checkpoint);
	if (names_one(e->x->checkpoint, dir, &step))
		GP_FAIL(err, GP_USAGE,
			"with --server CHECKPOINT is the run's folder, %.100s: of the newest step that both sides have",
			dir);
	GP_TRY(gp_saved_model_parse(e->ours->state, e->dir, &m, err));
	const enum gp_status status = fetch_model(e, &m, err);
	gp_saved_model_deinit(&m);
	return status;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

static int add_params(const struct gp_checkpoint *c, struct gp_st_item *item, int count)
{
	for (int i = 0; c && i < gp_st_count(c->state); i++) {
		const struct gp_st_tensor *t = gp_st_at(c->state, i);
		if (strncmp(t->name, PARAM_PREFIX, strlen(PARAM_PREFIX)) == 0 && t->dtype != GP_ST_OTHER)
			item[count++] = (struct gp_st_item){gp_weights_file_name(t->name + strlen(PARAM_PREFIX)),
							    t->shape, t->data, t->dtype};
	}
	return count;
}

static enum gp_status write_items(const struct exporting *e, const struct gp_saved_model *m, struct gp_err *err)
{
	char name[GP_MODEL_SPEC];
	struct gp_saved_pairs pairs;
	struct gp_st_pair meta[2 + GP_WEIGHTS_PAIRS] = {{"format", "pt"},
							{"model", name}}; /* as gp_weights_save_with */
	struct gp_st_item *item;
	const int most = gp_st_count(e->ours->state) + (e->theirs ? gp_st_count(e->theirs->state) : 0);
	GP_TRY(gp_saved_pairs_make(m, &pairs, err));
	snprintf(name, sizeof name, "%.*s", (int)strcspn(m->model, ":"), m->model);
	memcpy(meta + 2, pairs.pair, (size_t)pairs.count * sizeof *meta);
	enum gp_status status = gp_alloc_array((void **)&item, (size_t)most, sizeof *item, err);
	if (status == GP_OK) {
		e->x->tensors = add_params(e->theirs, item, add_params(e->ours, item, 0));
		status = gp_st_write(e->x->out, item, e->x->tensors, meta, 2 + pairs.count, err);
		gp_free(item);
	}
	gp_saved_pairs_deinit(&pairs);
	return status;
}

static enum gp_status write_file(const struct exporting *e, struct gp_err *err)
{
	struct gp_saved_model m;
	GP_TRY(gp_saved_model_parse(e->ours->state, e->dir, &m, err));
	e->x->knows_model = m.model[0] != '\0';
	e->x->step = m.steps = e->ours->manifest.step;
	note_run(e, &m);
	const enum gp_status status = write_items(e, &m, err);
	gp_saved_model_deinit(&m);
	return status;
}

static enum gp_status export_from_folders(struct exporting *e, struct gp_err *err)
{
	if (!is_whole(e))
		GP_TRY(open_both(e, err));
	return write_file(e, err);
}

static long recalibrated_of(const struct gp_pairs *spec)
{
	const char *batches = gp_pairs_find(spec, "recalibrate");
	return batches ? strtol(batches, NULL, 10) : 0;
}

enum gp_status gp_model_export(struct gp_model_export *x, struct gp_err *err)
{
	struct exporting e = {.x = x};
	if (gp_st_check_target(x->out, err) != GP_OK)
		return gp_err_prefix(err, "--out");
	GP_TRY(list_ours(&e, err));
	enum gp_status status = open_newest(&e, err);
	if (status == GP_OK)
		x->recalibrated = recalibrated_of(&e.ours->manifest.spec);
	if (status == GP_OK)
		status = x->server ? export_from_server(&e, err) : export_from_folders(&e, err);
	gp_checkpoint_close(e.ours);
	gp_checkpoint_close(e.theirs);
	return status;
}
