/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounds of --state-dir: how much each client, and all together, may have there, and which runs go for others. See
 * state_dir.h. Test: tests/unit/test_state_dir.c
 */
#include <inttypes.h>
#include <string.h>

#include "server/limits.h"
#include "server/state_dir_impl.h"

struct usage {
	uint64_t bytes, runs;
};

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What set_owner has made of a name becomes that name again; what a manifest has besides is nobody's name. */
static void name_of(const char *owner, char name[GP_STATE_OWNER_ROOM])
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
	char name[GP_STATE_OWNER_ROOM];
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
		const struct gp_stored_run *r = &d->run[i];
		if (r->bytes == 0 || r->removing || (owner && strcmp(r->owner, owner) != 0))
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

/* Also while another thread gives its lease back, or takes the run from a dead server, which takes a moment. */
static bool is_idle(const struct gp_stored_run *r)
{
	return r->bytes > 0 && r->uses == 0 && !r->removing && !r->stuck && (!r->elsewhere || r->going);
}

/* With the mutex: the oldest of the owner's runs that nobody uses; NULL: there is none. */
static struct gp_stored_run *oldest_of(const struct gp_state_dir *d, const char *owner)
{
	struct gp_stored_run *oldest = NULL;
	for (int i = 0; i < d->runs; i++) {
		struct gp_stored_run *r = &d->run[i];
		if (is_idle(r) && strcmp(r->owner, owner) == 0 && (!oldest || r->written < oldest->written))
			oldest = r;
	}
	return oldest;
}

/* With the mutex: one's own first; then those of nobody, and of a name that has more than its share, as after the share
 * was made smaller. A name within its share loses nothing to others. */
static struct gp_stored_run *choose(const struct gp_state_dir *d, const char *owner)
{
	struct gp_stored_run *r = oldest_of(d, owner);
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

static struct victim mark(struct gp_stored_run *r)
{
	struct victim v = {.bytes = r->bytes, .found = true};
	memcpy(v.id, r->id, sizeof v.id);
	r->going = r->removing = true;
	return v;
}

static enum gp_status remove_checkpoints(const struct gp_state_hold *hold, struct gp_err *err)
{
	const char *folder = hold->folder.text, *work = hold->work.text;
	GP_TRY(gp_checkpoint_drop_after_via(folder, work, 0, err));
	GP_TRY(gp_checkpoint_remove_via(folder, work, 0, err));
	return gp_checkpoint_clean(folder, err);
}

/* One that another server has, or may have, stays. */
static bool remove_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_state_hold hold;
	struct gp_err err;
	enum gp_status status = gp_state_lock_going(d, id, &hold, &err);
	if (status == GP_OK)
		status = gp_state_check_hold(d, &hold, &err);
	const bool elsewhere = status == GP_BUSY || status == GP_CANCELED;
	if (status == GP_OK)
		status = remove_checkpoints(&hold, &err);
	if (status != GP_OK && !elsewhere) {
		gp_state_conceal(id, &err);
		gp_log(main, GP_LOG_WARN, "%s", err.text);
	}
	gp_state_give_going(d, id);
	return !elsewhere;
}

/* Without the mutex: a large folder on a slow disk takes its time. Returns how many bytes went. */
static uint64_t remove_victim(struct gp_state_dir *d, const struct victim *v)
{
	const bool tried = remove_run(d, v->id);
	const struct gp_state_measure left = gp_state_measure_run(d, v->id);
	if (left.bytes == 0)
		gp_log(main, GP_LOG_INFO, "a run's checkpoints are removed to make room (%.0f MiB)",
		       (double)v->bytes / 1048576);
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, v->id);
	r->going = r->removing = false;
	r->stuck = tried && left.bytes > 0;
	r->elsewhere = !tried;
	r->bytes = left.bytes;
	gp_state_forget_unless_needed(d, r);
	pthread_cond_broadcast(&d->gone);
	pthread_mutex_unlock(&d->mutex);
	return v->bytes > left.bytes ? v->bytes - left.bytes : 0;
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

/* With the mutex: what has to go for this owner's write, if anything. A run on whose lease another thread works is waited
 * for; the mutex is free meanwhile. GP_NOMEM: nothing may go. */
static enum gp_status find_victim(struct gp_state_dir *d, const char *owner, struct victim *out, struct gp_err *err)
{
	*out = (struct victim){.found = false};
	for (;;) {
		const struct usage all = usage_of(d, NULL), own = usage_of(d, owner), may = share_of(d, owner);
		const bool whole = all.bytes > d->limits.bytes || all.runs > GP_STATE_RUNS_MAX;
		const bool share = is_over(&own, &may);
		if (!whole && !share)
			return GP_OK;
		struct gp_stored_run *r = share ? oldest_of(d, owner) : choose(d, owner);
		if (!r)
			return whole ? refuse_all(d, &all, err) : refuse_share(d, &own, &may, err);
		if (!r->going) {
			*out = mark(r);
			return GP_OK;
		}
		pthread_cond_wait(&d->gone, &d->mutex);
	}
}

enum gp_status gp_state_make_room(struct gp_state_dir *d, const char *owner, struct gp_err *err)
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

bool gp_state_free_disk(struct gp_state_dir *d, const char *owner, uint64_t bytes)
{
	uint64_t freed = 0;
	while (freed < bytes) {
		struct victim v = {.found = false};
		pthread_mutex_lock(&d->mutex);
		struct gp_stored_run *r;
		while ((r = choose(d, owner)) && r->going)
			pthread_cond_wait(&d->gone, &d->mutex);
		if (r)
			v = mark(r);
		pthread_mutex_unlock(&d->mutex);
		if (!v.found)
			break;
		freed += remove_victim(d, &v);
	}
	return freed > 0;
}

enum gp_status gp_state_check_share(struct gp_state_dir *d, const char *owner, uint64_t bytes, struct gp_err *err)
{
	pthread_mutex_lock(&d->mutex);
	const struct usage may = share_of(d, owner);
	const char *by = d->shares ? "--limits" : "--state-max-per-client";
	pthread_mutex_unlock(&d->mutex);
	if (bytes > may.bytes || may.runs == 0)
		GP_FAIL(err, GP_NOMEM,
			"this checkpoint takes %.1f MiB; this client may have %.1f MiB and %" PRIu64 " runs (%s)",
			(double)bytes / 1048576, (double)may.bytes / 1048576, may.runs, by);
	return GP_OK;
}
