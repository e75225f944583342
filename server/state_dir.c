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
#include "server/limits.h"

#define SHOWN_DIGITS 8
#define OWNER_KEY    "owner" /* of a manifest's progress: who wrote it */
#define OWNER_BYTES  (3 * GP_STATE_OWNER_BYTES)

/* A run that a session uses, or that has checkpoints, or both. */
struct stored_run {
	uint8_t id[GP_RUN_ID_BYTES];
	char owner[OWNER_BYTES]; /* in printable ASCII, so that manifests can have it; "": nobody in particular */
	uint64_t bytes;          /* of its checkpoints */
	uint64_t written;        /* order of the newest ones */
	int uses;
	bool going; /* is being removed */
	bool stuck; /* cannot be removed */
};

/* What is on the disk is known from the start on, so that no question about it waits for the disk. */
struct gp_state_dir {
	char *path;
	struct gp_state_limits limits;
	int lock;
	pthread_mutex_t mutex;                /* around what follows; never held while a file is touched */
	pthread_cond_t gone;                  /* a run that was `going` is */
	const struct gp_limits_table *shares; /* of each owner; NULL: the same for all, as `limits` has them */
	struct stored_run *run;
	int runs, room;
	uint64_t written; /* the highest of all */
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

/* An error for a client, which is told no path; the path is for the log, at a level that leaves the line about the failure
 * to whoever knows the session. */
static enum gp_status without_path(const uint8_t run[GP_RUN_ID_BYTES], enum gp_log_level level, struct gp_err *err)
{
	const int os = err->os_code;
	conceal(run, err);
	if (!os)
		return err->code;
	gp_log(main, level, "no checkpoint: %s", err->text);
	return gp_err_set(err, err->code, os, __FILE__, __LINE__, "%s", strerror(os));
}

/* --- a run on the disk ------------------------------------------------------------------------------------------- */

static uint64_t file_bytes(const char *folder, uint64_t step, const char *name)
{
	struct path path;
	struct stat st;
	int n = snprintf(path.text, sizeof path.text, "%s/step-%012" PRIu64 "/%s", folder, step, name);
	return n < (int)sizeof path.text && stat(path.text, &st) == 0 ? (uint64_t)st.st_size : 0;
}

struct measure {
	uint64_t bytes, newest_ns;
};

static struct measure measure_folder(const char *folder)
{
	struct measure m = {0, 0};
	struct stat st;
	struct gp_err ignored;
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count = 0;
	if (gp_checkpoint_list(folder, step, &count, &ignored) != GP_OK)
		return m;
	for (int i = 0; i < count; i++)
		m.bytes +=
			file_bytes(folder, step[i], "state.safetensors") + file_bytes(folder, step[i], "manifest.json");
	if (stat(folder, &st) == 0) /* changes with every checkpoint that comes or goes */
		m.newest_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
	return m;
}

/* A folder without a checkpoint counts as nothing, so it does not stay either. */
static struct measure measure_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct path folder;
	struct gp_err ignored;
	if (run_path(d, id, &folder, &ignored) != GP_OK)
		return (struct measure){0, 0};
	const struct measure m = measure_folder(folder.text);
	if (m.bytes == 0)
		rmdir(folder.text); /* where it is empty */
	return m;
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

/* --- the runs that are known; with the mutex --------------------------------------------------------------------- */

static struct stored_run *find_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	for (int i = 0; i < d->runs; i++)
		if (memcmp(d->run[i].id, id, GP_RUN_ID_BYTES) == 0)
			return &d->run[i];
	return NULL;
}

/* The one that is there, or a new one of nobody. */
static enum gp_status enter_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct stored_run **out,
				struct gp_err *err)
{
	*out = find_run(d, id);
	if (*out)
		return GP_OK;
	if (d->runs == d->room) {
		int room = d->room ? 2 * d->room : 64;
		struct stored_run *more = gp_realloc(d->run, (size_t)room, sizeof *more);
		if (!more)
			GP_FAIL(err, GP_NOMEM, "out of memory for a run");
		d->run = more;
		d->room = room;
	}
	*out = &d->run[d->runs++];
	memset(*out, 0, sizeof **out);
	memcpy((*out)->id, id, GP_RUN_ID_BYTES);
	return GP_OK;
}

static void set_measure(struct gp_state_dir *d, struct stored_run *r, const struct measure *m)
{
	if (m->bytes > 0 && m->newest_ns != r->written) {
		r->written = m->newest_ns > d->written ? m->newest_ns : d->written + 1;
		d->written = r->written;
	}
	r->bytes = m->bytes;
}

static void forget_unless_needed(struct gp_state_dir *d, struct stored_run *r)
{
	if (r->uses == 0 && r->bytes == 0 && !r->going)
		*r = d->run[--d->runs];
}

/* Every byte that is not printable ASCII, and '%', as %XX. */
static void set_owner(struct stored_run *r, const char *name)
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

/* As the newest checkpoint says that can be read; one of an older version says nothing. */
static void read_owner(const char *folder, struct stored_run *r)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	struct gp_err ignored;
	int count = 0;
	if (gp_checkpoint_list(folder, step, &count, &ignored) != GP_OK)
		return;
	for (int i = 0; i < count; i++) {
		struct gp_manifest m;
		if (gp_checkpoint_peek(folder, step[i], &m, &ignored) != GP_OK)
			continue;
		const char *owner = gp_pairs_find(&m.progress, OWNER_KEY);
		snprintf(r->owner, sizeof r->owner, "%s", owner ? owner : "");
		gp_manifest_deinit(&m);
		return;
	}
}

static enum gp_status take_in(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct path folder;
	struct stored_run *r;
	clean_run(d, id);
	const struct measure m = measure_run(d, id);
	if (m.bytes == 0)
		return GP_OK;
	GP_TRY(run_path(d, id, &folder, err));
	GP_TRY(enter_run(d, id, &r, err));
	r->bytes = m.bytes;
	r->written = m.newest_ns;
	if (d->written < r->written)
		d->written = r->written;
	if (d->limits.names)
		read_owner(folder.text, r);
	return GP_OK;
}

/* One that another version has written would be no checkpoint here, and the run would be written over. */
static enum gp_status check_format(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct path folder;
	struct gp_manifest m;
	struct gp_err why;
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count = 0;
	GP_TRY(run_path(d, id, &folder, err));
	if (gp_checkpoint_list(folder.text, step, &count, &why) != GP_OK)
		return GP_OK;
	for (int i = 0; i < count; i++) {
		const enum gp_status status = gp_checkpoint_peek(folder.text, step[i], &m, &why);
		if (status == GP_OK)
			gp_manifest_deinit(&m);
		if (status != GP_UNSUPPORTED)
			continue;
		conceal(id, &why);
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
	DIR *dir = opendir(d->path);
	if (!dir)
		return gp_fail_os(err, GP_IO, "open", d->path);
	for (const struct dirent *e; status == GP_OK && (e = readdir(dir));)
		if (gp_run_id_parse(e->d_name, id))
			status = each(d, id, err);
	closedir(dir);
	return status;
}

static enum gp_status take_in_all(struct gp_state_dir *d, struct gp_err *err)
{
	GP_TRY(each_run(d, check_format, err));
	return each_run(d, take_in, err);
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
	enum gp_status status = gp_checkpoint_check_folder(path, GP_MANIFEST_SERVER, err);
	if (status == GP_OK)
		status = gp_checkpoint_lock(path, &d->lock, err);
	if (status == GP_OK)
		status = take_in_all(d, err);
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
	pthread_cond_destroy(&d->gone);
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
	struct stored_run *r;
	pthread_mutex_lock(&d->mutex);
	enum gp_status status = enter_run(d, run, &r, err);
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
	struct stored_run *r = find_run(d, run);
	gp_require(r && r->uses > 0);
	r->uses--;
	forget_unless_needed(d, r);
	pthread_mutex_unlock(&d->mutex);
}

/* One that was chosen to make room a moment before somebody wanted it again. */
static void await_removal(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	for (const struct stored_run *r; (r = find_run(d, run)) && r->going;)
		pthread_cond_wait(&d->gone, &d->mutex);
	pthread_mutex_unlock(&d->mutex);
}

/* What is on the disk of a run may have changed. */
static void measure_again(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	const struct measure m = measure_run(d, run);
	pthread_mutex_lock(&d->mutex);
	struct stored_run *r = find_run(d, run);
	if (r) {
		set_measure(d, r, &m);
		forget_unless_needed(d, r);
	}
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

uint64_t gp_state_dir_common(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const uint64_t *step,
			     size_t count)
{
	uint64_t newest = 0;
	await_removal(d, run);
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

int gp_state_dir_list(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step[GP_CHECKPOINTS_MAX])
{
	struct path folder;
	struct gp_err ignored;
	int count = 0;
	await_removal(d, run);
	if (run_path(d, run, &folder, &ignored) != GP_OK ||
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

/* Not what another moment may have put right. */
static bool is_damage(enum gp_status status, const struct gp_err *err)
{
	return status == GP_INVALID && err->os_code != EMFILE && err->os_code != ENFILE && err->os_code != ENOMEM;
}

/* Else it would be offered to the run for ever. The client is told no path. */
static enum gp_status discard(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const char *folder,
			      uint64_t step, const char *what, struct gp_err *err)
{
	struct gp_err why;
	const bool removed = gp_checkpoint_remove(folder, step, &why) == GP_OK;
	measure_again(d, run);
	gp_log(main, GP_LOG_ERROR, "a checkpoint is %s: %s", removed ? "removed" : "of no use, and stays", err->text);
	GP_FAIL(err, removed ? GP_CANCELED : err->code, "the checkpoint of step %" PRIu64 " %s%s", step, what,
		removed ? " and is removed" : "");
}

enum gp_status gp_state_dir_load(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				 struct gp_checkpoint **out, struct gp_err *err)
{
	struct path folder;
	GP_TRY(run_path(d, run, &folder, err));
	enum gp_status status = gp_checkpoint_open(folder.text, step, out, err);
	if (status == GP_OK)
		return GP_OK;
	conceal(run, err);
	return is_damage(status, err) ? discard(d, run, folder.text, step, "was damaged", err)
				      : without_path(run, GP_LOG_WARN, err);
}

enum gp_status gp_state_dir_discard(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				    const char *what, struct gp_err *err)
{
	struct path folder;
	struct gp_err ignored;
	return run_path(d, run, &folder, &ignored) == GP_OK ? discard(d, run, folder.text, step, what, err) : err->code;
}

/* --- making room ------------------------------------------------------------------------------------------------- */

struct usage {
	uint64_t bytes, runs;
};

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What set_owner has made of a name becomes that name again; what a manifest has besides is nobody's name. */
static void name_of(const char *owner, char name[OWNER_BYTES])
{
	while (*owner) {
		const int high = *owner == '%' ? hex_digit(owner[1]) : -1, low = high >= 0 ? hex_digit(owner[2]) : -1;
		*name++ = low >= 0 ? (char)(high << 4 | low) : *owner;
		owner += low >= 0 ? 3 : 1;
	}
	*name = '\0';
}

/* With the mutex: what an owner may have. */
static struct usage share_of(const struct gp_state_dir *d, const char *owner)
{
	char name[OWNER_BYTES];
	if (!d->shares)
		return (struct usage){d->limits.client_bytes, (uint64_t)d->limits.client_runs};
	name_of(owner, name);
	const struct gp_limits *l = gp_limits_find(d->shares, name);
	return (struct usage){l->checkpoint_bytes, l->runs};
}

static bool is_over(const struct usage *u, const struct usage *may)
{
	return u->bytes > may->bytes || u->runs > may->runs;
}

/* With the mutex. owner NULL: everybody. */
static struct usage usage_of(const struct gp_state_dir *d, const char *owner)
{
	struct usage u = {0, 0};
	for (int i = 0; i < d->runs; i++) {
		const struct stored_run *r = &d->run[i];
		if (r->bytes == 0 || r->going || (owner && strcmp(r->owner, owner) != 0))
			continue;
		u.bytes += r->bytes;
		u.runs++;
	}
	return u;
}

static bool passes_share(const struct gp_state_dir *d, const char *owner)
{
	const struct usage u = usage_of(d, owner), may = share_of(d, owner);
	return is_over(&u, &may);
}

static bool is_idle(const struct stored_run *r)
{
	return r->bytes > 0 && r->uses == 0 && !r->going && !r->stuck;
}

/* With the mutex: the oldest of the owner's runs that nobody uses; NULL: there is none. */
static struct stored_run *oldest_of(const struct gp_state_dir *d, const char *owner)
{
	struct stored_run *oldest = NULL;
	for (int i = 0; i < d->runs; i++) {
		struct stored_run *r = &d->run[i];
		if (is_idle(r) && strcmp(r->owner, owner) == 0 && (!oldest || r->written < oldest->written))
			oldest = r;
	}
	return oldest;
}

/* With the mutex: one's own first; then those of nobody, and of a name that has more than its share, as after the share
 * was made smaller. A name within its share loses nothing to others. */
static struct stored_run *choose(const struct gp_state_dir *d, const char *owner)
{
	struct stored_run *r = oldest_of(d, owner);
	for (int i = 0; i < d->runs && !r; i++)
		if (is_idle(&d->run[i]) && (!d->run[i].owner[0] || passes_share(d, d->run[i].owner)))
			r = oldest_of(d, d->run[i].owner);
	return r;
}

struct victim {
	uint8_t id[GP_RUN_ID_BYTES];
	uint64_t bytes;
	bool found;
};

static struct victim mark(struct stored_run *r)
{
	struct victim v = {.bytes = r->bytes, .found = true};
	memcpy(v.id, r->id, sizeof v.id);
	r->going = true;
	return v;
}

/* Without the mutex: a large folder on a slow disk takes its time. */
static void remove_victim(struct gp_state_dir *d, const struct victim *v)
{
	gp_log(main, GP_LOG_INFO, "a run's checkpoints are removed to make room (%.0f MiB)",
	       (double)v->bytes / 1048576);
	remove_run(d, v->id);
	const struct measure left = measure_run(d, v->id);
	pthread_mutex_lock(&d->mutex);
	struct stored_run *r = find_run(d, v->id);
	r->going = false;
	r->stuck = left.bytes > 0;
	r->bytes = left.bytes;
	forget_unless_needed(d, r);
	pthread_cond_broadcast(&d->gone);
	pthread_mutex_unlock(&d->mutex);
}

static enum gp_status refuse_share(const struct gp_state_dir *d, const struct usage *own, const struct usage *may,
				   struct gp_err *err)
{
	if (own->runs > may->runs)
		GP_FAIL(err, GP_NOMEM,
			"with this one, %" PRIu64 " runs under way have checkpoints; this client may have %" PRIu64
			" (%s)",
			own->runs, may->runs, d->shares ? "--limits" : "--state-runs-per-client");
	GP_FAIL(err, GP_NOMEM,
		"with this one, the checkpoints of this client's runs under way take %.1f MiB; it may have %.1f MiB "
		"(%s)",
		(double)own->bytes / 1048576, (double)may->bytes / 1048576,
		d->shares ? "--limits" : "--state-max-per-client");
}

static enum gp_status refuse_all(const struct gp_state_dir *d, const struct usage *all, struct gp_err *err)
{
	GP_FAIL(err, GP_NOMEM,
		"with this one, the checkpoints of runs under way and of other clients would take %.1f MiB (%" PRIu64
		" runs); the server stores %.1f MiB (--state-max) and %d runs",
		(double)all->bytes / 1048576, all->runs, (double)d->limits.bytes / 1048576, GP_STATE_RUNS_MAX);
}

/* With the mutex: what has to go for this owner's write, if anything. GP_NOMEM: nothing may go. */
static enum gp_status find_victim(const struct gp_state_dir *d, const char *owner, struct victim *out,
				  struct gp_err *err)
{
	const struct usage all = usage_of(d, NULL), own = usage_of(d, owner), may = share_of(d, owner);
	const bool whole = all.bytes > d->limits.bytes || all.runs > GP_STATE_RUNS_MAX;
	const bool share = is_over(&own, &may);
	*out = (struct victim){.found = false};
	if (!whole && !share)
		return GP_OK;
	struct stored_run *r = share ? oldest_of(d, owner) : choose(d, owner);
	if (!r)
		return whole ? refuse_all(d, &all, err) : refuse_share(d, &own, &may, err);
	*out = mark(r);
	return GP_OK;
}

static enum gp_status make_room(struct gp_state_dir *d, const char *owner, struct gp_err *err)
{
	for (struct victim v;;) {
		pthread_mutex_lock(&d->mutex);
		enum gp_status status = find_victim(d, owner, &v, err);
		pthread_mutex_unlock(&d->mutex);
		if (status != GP_OK || !v.found)
			return status;
		remove_victim(d, &v);
	}
}

/* The disk is full, whatever the limits say: removes by the same rules what has as many bytes. True: something went. */
static bool free_disk(struct gp_state_dir *d, const char *owner, uint64_t bytes)
{
	uint64_t freed = 0;
	while (freed < bytes) {
		struct victim v = {.found = false};
		pthread_mutex_lock(&d->mutex);
		struct stored_run *r = choose(d, owner);
		if (r)
			v = mark(r);
		pthread_mutex_unlock(&d->mutex);
		if (!v.found)
			break;
		remove_victim(d, &v);
		freed += v.bytes;
	}
	return freed > 0;
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

struct writing {
	struct gp_state_dir *d;
	struct path folder;
	struct gp_manifest m;
	const struct gp_st_item *items;
	int count, stay;
	char owner[OWNER_BYTES];
};

static enum gp_status write_once(const struct writing *w, struct gp_err *err)
{
	GP_TRY(gp_make_folder(w->folder.text, err));
	GP_TRY(gp_sync_folder(w->d->path, err));
	return gp_checkpoint_write(w->folder.text, &w->m, w->items, w->count, NULL, err);
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

static enum gp_status write_or_free_disk(const struct writing *w, struct gp_err *err)
{
	const enum gp_status status = write_once(w, err);
	const bool full = status != GP_OK && (err->os_code == ENOSPC || err->os_code == EDQUOT);
	if (!full || !free_disk(w->d, w->owner, items_bytes(w)))
		return status;
	gp_log(main, GP_LOG_WARN, "--state-dir: the disk is full; runs that have ended made room");
	return write_once(w, err);
}

/* What can never fit is not written first, and makes no room. */
static enum gp_status check_fits_share(const struct writing *w, struct gp_err *err)
{
	pthread_mutex_lock(&w->d->mutex);
	const struct usage may = share_of(w->d, w->owner);
	const char *by = w->d->shares ? "--limits" : "--state-max-per-client";
	pthread_mutex_unlock(&w->d->mutex);
	const uint64_t bytes = items_bytes(w);
	if (bytes > may.bytes || may.runs == 0)
		GP_FAIL(err, GP_NOMEM,
			"this checkpoint takes %.1f MiB; this client may have %.1f MiB and %" PRIu64 " runs (%s)",
			(double)bytes / 1048576, (double)may.bytes / 1048576, may.runs, by);
	return GP_OK;
}

static enum gp_status write_and_bound(const struct writing *w, struct gp_err *err)
{
	struct gp_err ignored;
	GP_TRY(check_fits_share(w, err));
	GP_TRY(write_or_free_disk(w, err));
	enum gp_status status = gp_checkpoint_drop_after(w->folder.text, w->m.step, err);
	if (status == GP_OK)
		status = gp_checkpoint_prune(w->folder.text, w->stay, err);
	measure_again(w->d, w->m.run_id);
	if (status == GP_OK)
		status = make_room(w->d, w->owner, err);
	if (status != GP_OK)
		gp_checkpoint_remove(w->folder.text, w->m.step, &ignored);
	return status;
}

/* The run is in use while it is written; it is its owner's whom gp_state_dir_use has named. */
static enum gp_status begin_writing(struct writing *w, struct gp_err *err)
{
	struct stored_run *r;
	await_removal(w->d, w->m.run_id);
	pthread_mutex_lock(&w->d->mutex);
	enum gp_status status = enter_run(w->d, w->m.run_id, &r, err);
	if (status == GP_OK) {
		r->uses++;
		memcpy(w->owner, r->owner, sizeof w->owner);
	}
	pthread_mutex_unlock(&w->d->mutex);
	return status;
}

enum gp_status gp_state_dir_write(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				  const struct gp_pairs *spec, const struct gp_st_item *items, int count, int stay,
				  struct gp_err *err)
{
	struct writing w = {.d = d,
			    .m = {.role = GP_MANIFEST_SERVER, .step = step, .spec = *spec},
			    .items = items,
			    .count = count,
			    .stay = stay};
	memcpy(w.m.run_id, run, sizeof w.m.run_id);
	GP_TRY(run_path(d, run, &w.folder, err));
	GP_TRY(begin_writing(&w, err));
	if (w.owner[0])
		gp_pairs_add(&w.m.progress, OWNER_KEY, w.owner);
	enum gp_status status = write_and_bound(&w, err);
	if (status != GP_OK)
		measure_again(d, run);
	gp_state_dir_release(d, run);
	return status == GP_OK ? GP_OK : without_path(run, GP_LOG_DEBUG, err);
}
