/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the server keeps checkpoints. See state_dir.h.
 * Test: tests/unit/test_state_dir.c
 */
#include "server/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/durable.h"
#include "server/state_dir_impl.h"

#define OWNER_KEY     "owner" /* of a manifest's progress: who wrote it */
#define LOCK_TRIES    50
#define LOCK_PAUSE_US 100000

enum gp_status gp_state_run_path(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES],
				 struct gp_state_path *out, struct gp_err *err)
{
	char hex[GP_RUN_ID_HEX];
	gp_run_id_text(run, hex);
	if (snprintf(out->text, sizeof out->text, "%s/%s", d->path, hex) >= (int)sizeof out->text)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", d->path);
	return GP_OK;
}

void gp_state_conceal(const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err)
{
	char hex[GP_RUN_ID_HEX], *at;
	gp_run_id_text(run, hex);
	while ((at = strstr(err->text, hex)) != NULL) {
		const char *rest = at + strlen(hex);
		at += GP_STATE_SHOWN_DIGITS;
		memcpy(at, "...", 3);
		memmove(at + 3, rest, strlen(rest) + 1);
	}
}

/* An error for a client, which is told no path; the path is for the log, at a level that leaves the line about the failure
 * to whoever knows the session. */
static enum gp_status without_path(const uint8_t run[GP_RUN_ID_BYTES], enum gp_log_level level, struct gp_err *err)
{
	const int os = err->os_code;
	gp_state_conceal(run, err);
	if (!os)
		return err->code;
	gp_log(main, level, "no checkpoint: %s", err->text);
	return gp_err_set(err, err->code, os, __FILE__, __LINE__, "%s", strerror(os));
}

/* --- a run on the disk ------------------------------------------------------------------------------------------- */

static uint64_t file_bytes(const char *folder, uint64_t step, const char *name)
{
	struct gp_state_path path;
	struct stat st;
	int n = snprintf(path.text, sizeof path.text, "%s/step-%012" PRIu64 "/%s", folder, step, name);
	return n < (int)sizeof path.text && stat(path.text, &st) == 0 ? (uint64_t)st.st_size : 0;
}

uint64_t gp_state_changed_ns(const char *folder)
{
	struct stat st;
	if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
		return 0;
	return (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
}

static struct gp_state_measure measure_folder(const char *folder)
{
	struct gp_state_measure m = {0};
	struct gp_err ignored;
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count = 0;
	if (gp_checkpoint_list(folder, step, &count, &ignored) != GP_OK)
		return m;
	for (int i = 0; i < count; i++)
		m.bytes +=
			file_bytes(folder, step[i], "state.safetensors") + file_bytes(folder, step[i], "manifest.json");
	m.changed_ns = gp_state_changed_ns(folder);
	struct gp_state_path newest;
	const int n = count ? snprintf(newest.text, sizeof newest.text, "%s/step-%012" PRIu64, folder, step[0]) : 0;
	if (count && n < (int)sizeof newest.text)
		m.newest_ns = gp_state_changed_ns(newest.text);
	return m;
}

struct gp_state_measure gp_state_measure_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_state_path folder;
	struct gp_err ignored;
	if (gp_state_run_path(d, id, &folder, &ignored) != GP_OK)
		return (struct gp_state_measure){0};
	return measure_folder(folder.text);
}

/* --- the runs that are known; with the mutex --------------------------------------------------------------------- */

struct gp_stored_run *gp_state_find_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	for (int i = 0; i < d->runs; i++)
		if (memcmp(d->run[i].id, id, GP_RUN_ID_BYTES) == 0)
			return &d->run[i];
	return NULL;
}

enum gp_status gp_state_enter_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_stored_run **out,
				  struct gp_err *err)
{
	*out = gp_state_find_run(d, id);
	if (*out)
		return GP_OK;
	if (d->runs == d->room) {
		int room = d->room ? 2 * d->room : 64;
		struct gp_stored_run *more = gp_realloc(d->run, (size_t)room, sizeof *more);
		if (!more)
			GP_FAIL(err, GP_NOMEM, "out of memory for a run");
		d->run = more;
		d->room = room;
	}
	*out = &d->run[d->runs++];
	memset(*out, 0, sizeof **out);
	memcpy((*out)->id, id, GP_RUN_ID_BYTES);
	(*out)->pass = d->refresh.pass;
	return GP_OK;
}

void gp_state_forget_unless_needed(struct gp_state_dir *d, struct gp_stored_run *r)
{
	if (r->uses == 0 && r->bytes == 0 && !r->going && r->epoch == 0)
		*r = d->run[--d->runs];
}

/* Every byte that is not printable ASCII, and '%', as %XX. */
static void set_owner(struct gp_stored_run *r, const char *name)
{
	size_t n = 0;
	for (; *name && n + 4 < sizeof r->owner; name++) {
		const unsigned char c = (unsigned char)*name;
		if (c >= 0x20 && c < 0x7f && c != '%')
			r->owner[n++] = (char)c;
		else
			n += (size_t)snprintf(r->owner + n, 4, "%%%02X", c);
	}
	r->owner[n] = '\0';
}

/* --- what is there when the server starts --------------------------------------------------------------------- */

/* A checkpoint of an older version says nothing. */
void gp_state_read_owner(const char *folder, char owner[GP_STATE_OWNER_ROOM])
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	struct gp_err ignored;
	int count = 0;
	owner[0] = '\0';
	if (gp_checkpoint_list(folder, step, &count, &ignored) != GP_OK)
		return;
	for (int i = 0; i < count; i++) {
		struct gp_manifest m;
		if (gp_checkpoint_peek(folder, step[i], &m, &ignored) != GP_OK)
			continue;
		const char *found = gp_pairs_find(&m.progress, OWNER_KEY);
		snprintf(owner, GP_STATE_OWNER_ROOM, "%s", found ? found : "");
		gp_manifest_deinit(&m);
		return;
	}
}

static enum gp_status take_in(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct gp_state_path folder;
	struct gp_stored_run *r;
	gp_keeper_tick(d->keeper); /* this may take long */
	const bool elsewhere = gp_state_reclaim(d, id);
	const struct gp_state_measure m = gp_state_measure_run(d, id);
	if (m.bytes == 0)
		return GP_OK;
	GP_TRY(gp_state_run_path(d, id, &folder, err));
	GP_TRY(gp_state_enter_run(d, id, &r, err));
	r->bytes = m.bytes;
	r->elsewhere = elsewhere;
	r->written = m.newest_ns;
	r->changed_ns = m.changed_ns;
	if (d->written < r->written)
		d->written = r->written;
	if (d->limits.names)
		gp_state_read_owner(folder.text, r->owner);
	return GP_OK;
}

/* One that another version has written would be no checkpoint here, and the run would be written over. */
static enum gp_status check_format(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct gp_state_path folder;
	struct gp_manifest m;
	struct gp_err why;
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count = 0;
	GP_TRY(gp_state_run_path(d, id, &folder, err));
	if (gp_checkpoint_list(folder.text, step, &count, &why) != GP_OK)
		return GP_OK;
	for (int i = 0; i < count; i++) {
		const enum gp_status status = gp_checkpoint_peek(folder.text, step[i], &m, &why);
		if (status == GP_OK)
			gp_manifest_deinit(&m);
		if (status != GP_UNSUPPORTED)
			continue;
		gp_state_conceal(id, &why);
		GP_FAIL(err, GP_INVALID, "%s; start the version that wrote it, or name another folder", why.text);
	}
	return GP_OK;
}

static enum gp_status each_run(struct gp_state_dir *d,
			       enum gp_status (*each)(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES],
						      struct gp_err *err),
			       struct gp_err *err)
{
	uint8_t id[GP_RUN_ID_BYTES];
	enum gp_status status = GP_OK;
	DIR *dir = gp_open_folder(d->path);
	if (!dir)
		return gp_fail_os(err, GP_IO, "open", d->path);
	for (const struct dirent *e; status == GP_OK && (e = readdir(dir));)
		if (gp_run_id_parse(e->d_name, id))
			status = each(d, id, err);
	closedir(dir);
	return status;
}

static enum gp_status note_leaseless(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct gp_state_path folder;
	struct gp_lease_sight seen;
	struct gp_err ignored;
	GP_TRY(gp_state_run_path(d, id, &folder, err));
	d->leaseless |= gp_run_lease_look(folder.text, &seen, &ignored) == GP_INVALID;
	return GP_OK;
}

/* One that cannot get its lease is no reason to serve nobody. */
static enum gp_status introduce(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct gp_state_path folder;
	struct gp_err why;
	(void)err;
	enum gp_status status = gp_state_run_path(d, id, &folder, &why);
	if (status == GP_OK)
		status = gp_run_lease_introduce(folder.text, &why);
	if (status == GP_OK)
		return GP_OK;
	gp_state_conceal(id, &why);
	gp_log(main, GP_LOG_WARN, "--state-dir: %s", why.text);
	return GP_OK;
}

/* --- the lock of the whole folder -------------------------------------------------------------------------------- */

/*
 * Servers of this version share it, those of an older one want it alone. Nothing else depends on it, so that a file system
 * without such locks will do.
 */
static enum gp_status lock_shared(struct gp_state_dir *d, struct gp_err *err)
{
	for (int i = 0; flock(d->lock, LOCK_SH | LOCK_NB) != 0; i++) {
		if (errno != EWOULDBLOCK)
			return GP_OK;
		if (i == LOCK_TRIES)
			GP_FAIL(err, GP_INVALID,
				"%s is in use by another process that does not share it: an older version of this "
				"server",
				d->path);
		usleep(LOCK_PAUSE_US); /* another one that starts just now */
	}
	return GP_OK;
}

/* Who is alone there gives leases to the runs that an older version has left. */
static enum gp_status introduce_all(struct gp_state_dir *d, struct gp_err *err)
{
	GP_TRY(each_run(d, note_leaseless, err));
	if (!d->leaseless)
		return GP_OK;
	if (flock(d->lock, LOCK_EX | LOCK_NB) == 0)
		GP_TRY(each_run(d, introduce, err));
	return lock_shared(d, err); /* whether the other one was had or not, this one was lost for it */
}

static enum gp_status lock_folder(struct gp_state_dir *d, struct gp_err *err)
{
	struct gp_state_path path;
	GP_TRY(gp_make_folder(d->path, err));
	if (snprintf(path.text, sizeof path.text, "%s/lock", d->path) >= (int)sizeof path.text)
		GP_FAIL(err, GP_INVALID, "the path %.100s... is too long", d->path);
	d->lock = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (d->lock < 0)
		return gp_fail_os(err, GP_INVALID, "create", path.text);
	GP_TRY(each_run(d, check_format, err));
	GP_TRY(lock_shared(d, err));
	return introduce_all(d, err);
}

/* --- life ------------------------------------------------------------------------------------------------------- */

static enum gp_status open_folder(struct gp_state_dir *d, struct gp_err *err)
{
	struct gp_keeper_settings keeping = d->limits.lease;
	if (keeping.lease_s <= 0)
		keeping.lease_s = GP_STATE_LEASE_S;
	if (!keeping.name)
		keeping.name = "";
	GP_TRY(gp_checkpoint_check_folder(d->path, GP_MANIFEST_SERVER, err));
	GP_TRY(lock_folder(d, err));
	GP_TRY(gp_keeper_new(d->path, &keeping, &d->keeper, err));
	GP_TRY(gp_fleet_new(d->path, &keeping, &d->fleet, err));
	GP_TRY(each_run(d, take_in, err));
	gp_state_plan_refresh(d);
	return gp_state_start_keeping(d, err);
}

static void init_wake(pthread_cond_t *wake)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(wake, &attr);
	pthread_condattr_destroy(&attr);
}

enum gp_status gp_state_dir_open(const char *path, const struct gp_state_limits *limits, struct gp_state_dir **out,
				 struct gp_err *err)
{
	struct gp_state_dir *d = gp_calloc(1, sizeof *d);
	char *copy = d ? gp_strdup(path) : NULL;
	if (!copy) {
		gp_free(d);
		GP_FAIL(err, GP_NOMEM, "out of memory for --state-dir");
	}
	d->path = copy;
	d->limits = *limits;
	d->lock = -1;
	pthread_mutex_init(&d->mutex, NULL);
	pthread_cond_init(&d->gone, NULL);
	init_wake(&d->keeping.wake);
	if (open_folder(d, err) != GP_OK) {
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
	gp_state_stop_keeping(d);
	gp_keeper_free(d->keeper);
	gp_fleet_free(d->fleet);
	if (d->lock >= 0)
		close(d->lock);
	pthread_cond_destroy(&d->gone);
	pthread_cond_destroy(&d->keeping.wake);
	pthread_mutex_destroy(&d->mutex);
	gp_free(d->run);
	gp_free(d->path);
	gp_free(d);
}

void gp_state_dir_set_shares(struct gp_state_dir *d, const struct gp_limits_table *shares)
{
	pthread_mutex_lock(&d->mutex);
	d->shares = shares;
	pthread_mutex_unlock(&d->mutex);
}

/* --- who uses what ----------------------------------------------------------------------------------------------- */

enum gp_status gp_state_dir_use(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const char *owner,
				struct gp_err *err)
{
	struct gp_stored_run *r;
	pthread_mutex_lock(&d->mutex);
	enum gp_status status = gp_state_enter_run(d, run, &r, err);
	if (status == GP_OK) {
		r->uses++;
		set_owner(r, owner);
	}
	pthread_mutex_unlock(&d->mutex);
	return status;
}

void gp_state_dir_release(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, run);
	gp_require(r && r->uses > 0);
	r->uses--;
	r->seen &= r->uses > 0; /* by a session that is gone now */
	if (r->uses == 0 && r->epoch > 0)
		gp_state_wake_keeping(d);
	gp_state_forget_unless_needed(d, r);
	pthread_mutex_unlock(&d->mutex);
}

/* One that was chosen to make room a moment before somebody wanted it again, or that is being given back. */
static void await_rest(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	for (const struct gp_stored_run *r; (r = gp_state_find_run(d, run)) && r->going;)
		pthread_cond_wait(&d->gone, &d->mutex);
	pthread_mutex_unlock(&d->mutex);
}

/* With the mutex. Of two checkpoints that this server writes within a tick of the clock that files have, the second is newer. */
static void set_own_measure(struct gp_state_dir *d, struct gp_stored_run *r, const struct gp_state_measure *m)
{
	if (m->bytes > 0 && m->newest_ns != r->written) {
		r->written = m->newest_ns > d->written ? m->newest_ns : d->written + 1;
		d->written = r->written;
	}
	r->bytes = m->bytes;
}

void gp_state_measure_again(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	const struct gp_state_measure m = gp_state_measure_run(d, run);
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, run);
	if (r) {
		set_own_measure(d, r, &m);
		gp_state_forget_unless_needed(d, r);
	}
	pthread_mutex_unlock(&d->mutex);
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

/* For a moment, by the server itself: whose the run is stays as it is known. */
static enum gp_status use_unnamed(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct gp_stored_run *r;
	pthread_mutex_lock(&d->mutex);
	const enum gp_status status = gp_state_enter_run(d, run, &r, err);
	if (status == GP_OK)
		r->uses++;
	pthread_mutex_unlock(&d->mutex);
	return status;
}

static enum gp_status peek(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
			   struct gp_manifest *out, struct gp_err *err)
{
	struct gp_state_path folder;
	struct gp_manifest m;
	GP_TRY(gp_state_run_path(d, run, &folder, err));
	GP_TRY(gp_checkpoint_peek(folder.text, step, &m, err));
	if (m.role != GP_MANIFEST_SERVER || memcmp(m.run_id, run, sizeof m.run_id) != 0) {
		gp_manifest_deinit(&m);
		GP_FAIL(err, GP_INVALID, "there is something else than a checkpoint of this run");
	}
	*out = m;
	return GP_OK;
}

/* What is there, or is not there: no failure of the disk, which another moment may put right. */
static bool is_certain(const struct gp_err *err)
{
	return err->os_code == 0 || err->os_code == ENOENT || err->os_code == ENOTDIR;
}

enum gp_status gp_state_dir_common(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const uint64_t *step,
				   size_t count, uint64_t *newest, struct gp_err *err)
{
	*newest = 0;
	await_rest(d, run);
	for (size_t i = 0; i < count; i++) {
		struct gp_manifest m;
		if (step[i] <= *newest)
			continue;
		if (peek(d, run, step[i], &m, err) == GP_OK) {
			*newest = step[i];
			gp_manifest_deinit(&m);
		} else if (!is_certain(err)) {
			without_path(run, GP_LOG_WARN, err);
			return gp_err_prefix(err, "the run's checkpoints cannot be read now");
		}
	}
	return GP_OK;
}

int gp_state_dir_list(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step[GP_CHECKPOINTS_MAX])
{
	struct gp_state_path folder;
	struct gp_err ignored;
	int count = 0;
	await_rest(d, run);
	if (gp_state_run_path(d, run, &folder, &ignored) != GP_OK ||
	    gp_checkpoint_list(folder.text, step, &count, &ignored) != GP_OK)
		return 0;
	return count;
}

enum gp_status gp_state_dir_check(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				  const struct gp_pairs *spec, struct gp_err *err)
{
	struct gp_manifest m;
	if (peek(d, run, step, &m, err) != GP_OK)
		return without_path(run, GP_LOG_WARN, err);
	enum gp_status status = gp_pairs_compare(&m.spec, spec, "", err);
	gp_manifest_deinit(&m);
	return status;
}

static bool is_damage(enum gp_status status, const struct gp_err *err)
{
	return status == GP_INVALID && is_certain(err);
}

static enum gp_status remove_one(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				 struct gp_err *err)
{
	struct gp_state_hold hold;
	GP_TRY(use_unnamed(d, run, err));
	enum gp_status status = gp_state_lock_run(d, run, &hold, err);
	if (status == GP_OK)
		status = gp_state_check_hold(d, &hold, err);
	if (status == GP_OK)
		status = gp_checkpoint_remove_via(hold.folder.text, hold.work.text, step, err);
	gp_state_measure_again(d, run);
	gp_state_dir_release(d, run);
	return status;
}

/* Else it would be offered to the run for ever. The client is told no path. */
static enum gp_status discard(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
			      const char *what, struct gp_err *err)
{
	struct gp_err why;
	const bool removed = remove_one(d, run, step, &why) == GP_OK;
	gp_log(main, GP_LOG_ERROR, "a checkpoint is %s: %s", removed ? "removed" : "of no use, and stays", err->text);
	GP_FAIL(err, removed ? GP_CANCELED : err->code, "the checkpoint of step %" PRIu64 " %s%s", step, what,
		removed ? " and is removed" : "");
}

enum gp_status gp_state_dir_load(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				 struct gp_checkpoint **out, struct gp_err *err)
{
	struct gp_state_path folder;
	GP_TRY(gp_state_run_path(d, run, &folder, err));
	enum gp_status status = gp_checkpoint_open(folder.text, step, out, err);
	if (status == GP_OK)
		return GP_OK;
	gp_state_conceal(run, err);
	return is_damage(status, err) ? discard(d, run, step, "was damaged", err) : without_path(run, GP_LOG_WARN, err);
}

enum gp_status gp_state_dir_discard(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				    const char *what, struct gp_err *err)
{
	return discard(d, run, step, what, err);
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

struct writing {
	struct gp_state_dir *d;
	struct gp_state_hold hold;
	uint64_t lease;
	struct gp_manifest m;
	const struct gp_st_item *items;
	int count, stay;
	char owner[GP_STATE_OWNER_ROOM];
};

/* The lease may have been lost since the session has taken it; a session that could not take one, because of the disk, takes
 * it now. */
static enum gp_status hold_run(struct writing *w, struct gp_err *err)
{
	if (w->lease > 0)
		return gp_state_find_hold(w->d, w->m.run_id, w->lease, &w->hold, err);
	GP_TRY(gp_state_lock_late(w->d, w->m.run_id, &w->hold, err));
	return gp_state_check_hold(w->d, &w->hold, err);
}

static enum gp_status write_once(struct writing *w, struct gp_err *err)
{
	GP_TRY(hold_run(w, err));
	return gp_checkpoint_write_via(w->hold.folder.text, w->hold.work.text, &w->m, w->items, w->count, NULL, err);
}

enum gp_status gp_state_dir_check_share(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t bytes,
					struct gp_err *err)
{
	char owner[GP_STATE_OWNER_ROOM];
	pthread_mutex_lock(&d->mutex);
	const struct gp_stored_run *r = gp_state_find_run(d, run);
	snprintf(owner, sizeof owner, "%s", r ? r->owner : "");
	pthread_mutex_unlock(&d->mutex);
	return gp_state_check_share(d, owner, bytes, err);
}

static uint64_t items_bytes(const struct writing *w)
{
	uint64_t sum = 0, count;
	struct gp_err ignored;
	for (int i = 0; i < w->count; i++)
		if (gp_shape_count_or_zero(&w->items[i].shape, INT64_MAX / sizeof(double), &count, &ignored) == GP_OK)
			sum += count * gp_st_dtype_bytes(w->items[i].dtype);
	return sum;
}

static enum gp_status write_or_free_disk(struct writing *w, struct gp_err *err)
{
	const enum gp_status status = write_once(w, err);
	const bool full = status != GP_OK && (err->os_code == ENOSPC || err->os_code == EDQUOT);
	if (!full || !gp_state_free_disk(w->d, w->owner, items_bytes(w)))
		return status;
	gp_log(main, GP_LOG_WARN, "--state-dir: the disk is full; runs that have ended made room");
	return write_once(w, err);
}

/* Those of later steps go, and all but the newest. */
static enum gp_status drop_others(const struct writing *w, struct gp_err *err)
{
	const char *folder = w->hold.folder.text, *work = w->hold.work.text;
	GP_TRY(gp_state_check_hold(w->d, &w->hold, err));
	GP_TRY(gp_checkpoint_drop_after_via(folder, work, w->m.step, err));
	GP_TRY(gp_state_check_hold(w->d, &w->hold, err));
	return gp_checkpoint_prune_via(folder, work, w->stay, err);
}

/* What can never fit is not written first, and makes no room. */
static enum gp_status write_and_bound(struct writing *w, struct gp_err *err)
{
	struct gp_err ignored;
	GP_TRY(gp_state_check_share(w->d, w->owner, items_bytes(w), err));
	GP_TRY(write_or_free_disk(w, err));
	enum gp_status status = drop_others(w, err);
	gp_state_measure_again(w->d, w->m.run_id);
	if (status == GP_OK)
		status = gp_state_make_room(w->d, w->owner, err);
	if (status != GP_OK && gp_state_check_hold(w->d, &w->hold, &ignored) == GP_OK)
		gp_checkpoint_remove_via(w->hold.folder.text, w->hold.work.text, w->m.step, &ignored);
	return status;
}

/* The run is in use while it is written; it is its owner's whom gp_state_dir_use has named. */
static enum gp_status begin_writing(struct writing *w, struct gp_err *err)
{
	GP_TRY(use_unnamed(w->d, w->m.run_id, err));
	await_rest(w->d, w->m.run_id);
	pthread_mutex_lock(&w->d->mutex);
	memcpy(w->owner, gp_state_find_run(w->d, w->m.run_id)->owner, sizeof w->owner);
	pthread_mutex_unlock(&w->d->mutex);
	return GP_OK;
}

enum gp_status gp_state_dir_write_leased(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t lease,
					 uint64_t step, const struct gp_pairs *spec, const struct gp_st_item *items,
					 int count, int stay, struct gp_err *err)
{
	struct writing w = {.d = d,
			    .lease = lease,
			    .m = {.role = GP_MANIFEST_SERVER, .step = step, .spec = *spec},
			    .items = items,
			    .count = count,
			    .stay = stay};
	memcpy(w.m.run_id, run, sizeof w.m.run_id);
	GP_TRY(begin_writing(&w, err));
	if (w.owner[0])
		gp_pairs_add(&w.m.progress, OWNER_KEY, w.owner);
	enum gp_status status = write_and_bound(&w, err);
	if (status != GP_OK)
		gp_state_measure_again(d, run);
	gp_state_dir_release(d, run);
	return status == GP_OK ? GP_OK : without_path(run, GP_LOG_DEBUG, err);
}
