/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the server keeps checkpoints. See state_dir.h.
 * Test: tests/unit/test_state_dir.c
 */
#include "server/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/durable.h"
#include "common/base/log.h"

#define SHOWN_DIGITS 8

struct user {
	uint8_t run[GP_RUN_ID_BYTES];
	int uses;
};

struct gp_state_dir {
	char *path;
	uint64_t max_bytes;
	int lock;
	pthread_mutex_t mutex; /* around what follows */
	struct user *user;
	int users, room;
};

struct path {
	char text[PATH_MAX];
};

static enum gp_status run_path(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], struct path *out,
			       struct gp_err *err)
{
	char hex[GP_RUN_ID_HEX];
	gp_run_id_text(run, hex);
	if (snprintf(out->text, sizeof out->text, "%s/%s", d->path, hex) >= (int)sizeof out->text)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", d->path);
	return GP_OK;
}

/* The id of a run opens its checkpoints: a message has as much of it as finds the folder. */
static void conceal(const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err)
{
	char hex[GP_RUN_ID_HEX], *at;
	gp_run_id_text(run, hex);
	while ((at = strstr(err->text, hex)) != NULL) {
		const char *rest = at + strlen(hex);
		at += SHOWN_DIGITS;
		memcpy(at, "...", 3);
		memmove(at + 3, rest, strlen(rest) + 1);
	}
}

/* An error for a client, which is told no path; the path is for the log. */
static enum gp_status without_path(const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err)
{
	const int os = err->os_code;
	conceal(run, err);
	if (!os)
		return err->code;
	gp_log(main, GP_LOG_WARN, "no checkpoint: %s", err->text);
	return gp_err_set(err, err->code, os, __FILE__, __LINE__, "%s", strerror(os));
}

/* --- all runs --------------------------------------------------------------------------------------------------- */

struct stored_run {
	uint8_t id[GP_RUN_ID_BYTES];
	uint64_t bytes;
	uint64_t newest_ns;
};

struct inventory {
	struct stored_run *run;
	int count, room;
	uint64_t bytes;
};

static uint64_t file_bytes(const char *folder, uint64_t step, const char *name)
{
	struct path path;
	struct stat st;
	int n = snprintf(path.text, sizeof path.text, "%s/step-%012" PRIu64 "/%s", folder, step, name);
	return n < (int)sizeof path.text && stat(path.text, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static struct stored_run measure_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct stored_run r = {.bytes = 0};
	struct path folder;
	struct stat st;
	struct gp_err ignored;
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count = 0;
	memcpy(r.id, id, sizeof r.id);
	if (run_path(d, id, &folder, &ignored) != GP_OK ||
	    gp_checkpoint_list(folder.text, step, &count, &ignored) != GP_OK)
		return r;
	for (int i = 0; i < count; i++)
		r.bytes += file_bytes(folder.text, step[i], "state.safetensors") +
			   file_bytes(folder.text, step[i], "manifest.json");
	if (stat(folder.text, &st) == 0) /* changes with every checkpoint that comes or goes */
		r.newest_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
	return r;
}

static enum gp_status add_run(struct inventory *v, const struct stored_run *r, struct gp_err *err)
{
	if (v->count == v->room) {
		int room = v->room ? 2 * v->room : 64;
		struct stored_run *more = gp_realloc(v->run, (size_t)room, sizeof *more);
		if (!more)
			GP_FAIL(err, GP_NOMEM, "out of memory for a list of runs");
		v->run = more;
		v->room = room;
	}
	v->run[v->count++] = *r;
	v->bytes += r->bytes;
	return GP_OK;
}

/* After a failure the inventory still is to be freed. */
static enum gp_status take_inventory(const struct gp_state_dir *d, struct inventory *v, struct gp_err *err)
{
	uint8_t id[GP_RUN_ID_BYTES];
	enum gp_status status = GP_OK;
	DIR *dir = opendir(d->path);
	if (!dir)
		return gp_fail_os(err, GP_IO, "open", d->path);
	for (const struct dirent *e; status == GP_OK && (e = readdir(dir));) {
		if (!gp_run_id_parse(e->d_name, id))
			continue;
		const struct stored_run r = measure_run(d, id);
		status = add_run(v, &r, err);
	}
	closedir(dir);
	return status;
}

static void remove_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct path folder;
	struct gp_err err;
	enum gp_status status = run_path(d, id, &folder, &err);
	if (status == GP_OK)
		status = gp_checkpoint_drop_after(folder.text, 0, &err);
	if (status == GP_OK)
		status = gp_checkpoint_remove(folder.text, 0, &err);
	if (status == GP_OK)
		status = gp_checkpoint_clean(folder.text, &err);
	if (status == GP_OK)
		status = gp_remove_folder(folder.text, &err);
	if (status != GP_OK) {
		conceal(id, &err);
		gp_log(main, GP_LOG_WARN, "%s", err.text);
	}
}

/* --- life ------------------------------------------------------------------------------------------------------- */

/* One that cannot be cleaned is no reason to serve nobody. */
static void clean_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct path folder;
	struct gp_err err;
	enum gp_status status = run_path(d, id, &folder, &err);
	if (status == GP_OK)
		status = gp_checkpoint_clean(folder.text, &err);
	if (status == GP_OK)
		return;
	conceal(id, &err);
	gp_log(main, GP_LOG_WARN, "--state-dir: %s", err.text);
}

static enum gp_status clean_runs(const struct gp_state_dir *d, struct gp_err *err)
{
	struct inventory v = {0};
	enum gp_status status = take_inventory(d, &v, err);
	for (int i = 0; status == GP_OK && i < v.count; i++)
		clean_run(d, v.run[i].id);
	gp_free(v.run);
	return status;
}

enum gp_status gp_state_dir_open(const char *path, uint64_t max_bytes, struct gp_state_dir **out, struct gp_err *err)
{
	struct gp_state_dir *d = gp_calloc(1, sizeof *d);
	char *copy = d ? gp_strdup(path) : NULL;
	if (!copy) {
		gp_free(d);
		GP_FAIL(err, GP_NOMEM, "out of memory for --state-dir");
	}
	d->path = copy;
	d->max_bytes = max_bytes;
	d->lock = -1;
	pthread_mutex_init(&d->mutex, NULL);
	enum gp_status status = gp_checkpoint_lock(path, &d->lock, err);
	if (status == GP_OK)
		status = clean_runs(d, err);
	if (status != GP_OK) {
		gp_state_dir_close(d);
		return gp_err_prefix(err, "--state-dir");
	}
	*out = d;
	return GP_OK;
}

void gp_state_dir_close(struct gp_state_dir *d)
{
	if (!d)
		return;
	if (d->lock >= 0)
		gp_checkpoint_unlock(d->lock);
	pthread_mutex_destroy(&d->mutex);
	gp_free(d->user);
	gp_free(d->path);
	gp_free(d);
}

/* --- who uses what; with the mutex ------------------------------------------------------------------------------ */

static struct user *find_user(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	for (int i = 0; i < d->users; i++)
		if (memcmp(d->user[i].run, run, GP_RUN_ID_BYTES) == 0)
			return &d->user[i];
	return NULL;
}

static enum gp_status add_user(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct user *u = find_user(d, run);
	if (u) {
		u->uses++;
		return GP_OK;
	}
	if (d->users == d->room) {
		int room = d->room ? 2 * d->room : 16;
		struct user *more = gp_realloc(d->user, (size_t)room, sizeof *more);
		if (!more)
			GP_FAIL(err, GP_NOMEM, "out of memory for a run");
		d->user = more;
		d->room = room;
	}
	u = &d->user[d->users++];
	memcpy(u->run, run, GP_RUN_ID_BYTES);
	u->uses = 1;
	return GP_OK;
}

enum gp_status gp_state_dir_use(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err)
{
	pthread_mutex_lock(&d->mutex);
	enum gp_status status = add_user(d, run, err);
	pthread_mutex_unlock(&d->mutex);
	return status;
}

void gp_state_dir_release(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	struct user *u = find_user(d, run);
	gp_require(u);
	if (--u->uses == 0)
		*u = d->user[--d->users];
	pthread_mutex_unlock(&d->mutex);
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

static enum gp_status peek(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
			   struct gp_manifest *out, struct gp_err *err)
{
	struct path folder;
	struct gp_manifest m;
	GP_TRY(run_path(d, run, &folder, err));
	GP_TRY(gp_checkpoint_peek(folder.text, step, &m, err));
	if (m.role != GP_MANIFEST_SERVER || memcmp(m.run_id, run, sizeof m.run_id) != 0) {
		gp_manifest_deinit(&m);
		GP_FAIL(err, GP_INVALID, "there is something else than a checkpoint of this run");
	}
	*out = m;
	return GP_OK;
}

uint64_t gp_state_dir_common(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const uint64_t *step,
			     size_t count)
{
	uint64_t newest = 0;
	for (size_t i = 0; i < count; i++) {
		struct gp_manifest m;
		struct gp_err ignored;
		if (step[i] <= newest || peek(d, run, step[i], &m, &ignored) != GP_OK)
			continue;
		newest = step[i];
		gp_manifest_deinit(&m);
	}
	return newest;
}

enum gp_status gp_state_dir_check(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				  const struct gp_pairs *spec, struct gp_err *err)
{
	struct gp_manifest m;
	if (peek(d, run, step, &m, err) != GP_OK)
		return without_path(run, err);
	enum gp_status status = gp_pairs_compare(&m.spec, spec, "", err);
	gp_manifest_deinit(&m);
	return status;
}

/* Not what another moment may have put right. */
static bool is_damage(enum gp_status status, const struct gp_err *err)
{
	return status == GP_INVALID && err->os_code != EMFILE && err->os_code != ENFILE && err->os_code != ENOMEM;
}

/* Else it would be offered to the run for ever. The client is told no path. */
static enum gp_status discard(const char *folder, uint64_t step, const char *what, struct gp_err *err)
{
	struct gp_err why;
	const bool removed = gp_checkpoint_remove(folder, step, &why) == GP_OK;
	gp_log(main, GP_LOG_ERROR, "a checkpoint is %s: %s", removed ? "removed" : "of no use, and stays", err->text);
	GP_FAIL(err, removed ? GP_CANCELED : err->code, "the checkpoint of step %" PRIu64 " %s%s", step, what,
		removed ? " and is removed" : "");
}

enum gp_status gp_state_dir_load(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				 struct gp_checkpoint **out, struct gp_err *err)
{
	struct path folder;
	GP_TRY(run_path(d, run, &folder, err));
	enum gp_status status = gp_checkpoint_open(folder.text, step, out, err);
	if (status == GP_OK)
		return GP_OK;
	conceal(run, err);
	return is_damage(status, err) ? discard(folder.text, step, "was damaged", err) : without_path(run, err);
}

enum gp_status gp_state_dir_discard(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				    const char *what, struct gp_err *err)
{
	struct path folder;
	struct gp_err ignored;
	return run_path(d, run, &folder, &ignored) == GP_OK ? discard(folder.text, step, what, err) : err->code;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

/* The oldest of the runs that nobody uses; NULL: there is none. The caller holds the mutex. */
static struct stored_run *oldest_unused(const struct gp_state_dir *d, struct inventory *v,
					const uint8_t spared[GP_RUN_ID_BYTES])
{
	struct stored_run *oldest = NULL;
	for (int i = 0; i < v->count; i++) {
		struct stored_run *r = &v->run[i];
		if (find_user(d, r->id) || memcmp(r->id, spared, sizeof r->id) == 0)
			continue;
		if (!oldest || r->newest_ns < oldest->newest_ns)
			oldest = r;
	}
	return oldest;
}

static enum gp_status shrink(struct gp_state_dir *d, struct inventory *v, const uint8_t spared[GP_RUN_ID_BYTES],
			     struct gp_err *err)
{
	while (v->bytes > d->max_bytes || v->count > GP_STATE_RUNS_MAX) {
		struct stored_run *r = oldest_unused(d, v, spared);
		if (!r)
			GP_FAIL(err, GP_NOMEM,
				"the checkpoints of the runs under way pass what the server may store (--state-max, "
				"%.0f "
				"MiB)",
				(double)d->max_bytes / 1048576);
		gp_log(main, GP_LOG_INFO, "a run's checkpoints are removed to make room (%.0f MiB)",
		       (double)r->bytes / 1048576);
		remove_run(d, r->id);
		v->bytes -= r->bytes;
		*r = v->run[--v->count];
	}
	return GP_OK;
}

static enum gp_status make_room(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct inventory v = {0};
	enum gp_status status = take_inventory(d, &v, err);
	pthread_mutex_lock(&d->mutex);
	if (status == GP_OK)
		status = shrink(d, &v, run, err);
	pthread_mutex_unlock(&d->mutex);
	gp_free(v.run);
	return status;
}

static enum gp_status write_and_bound(struct gp_state_dir *d, const char *folder, const struct gp_manifest *m,
				      const struct gp_st_item *items, int count, int stay, struct gp_err *err)
{
	struct gp_err ignored;
	GP_TRY(gp_checkpoint_write(folder, m, items, count, NULL, err));
	enum gp_status status = gp_checkpoint_drop_after(folder, m->step, err);
	if (status == GP_OK)
		status = gp_checkpoint_prune(folder, stay, err);
	if (status == GP_OK)
		status = make_room(d, m->run_id, err);
	if (status != GP_OK)
		gp_checkpoint_remove(folder, m->step, &ignored);
	return status;
}

enum gp_status gp_state_dir_write(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				  const struct gp_pairs *spec, const struct gp_st_item *items, int count, int stay,
				  struct gp_err *err)
{
	struct path folder;
	struct gp_manifest m = {.role = GP_MANIFEST_SERVER, .step = step, .spec = *spec};
	memcpy(m.run_id, run, sizeof m.run_id);
	GP_TRY(run_path(d, run, &folder, err));
	enum gp_status status = gp_make_folder(folder.text, err);
	if (status == GP_OK)
		status = gp_sync_folder(d->path, err);
	if (status == GP_OK)
		status = write_and_bound(d, folder.text, &m, items, count, stay, err);
	return status == GP_OK ? GP_OK : without_path(run, err);
}
