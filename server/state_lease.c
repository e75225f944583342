/* SPDX-License-Identifier: Apache-2.0
 *
 * The leases of --state-dir: which runs this server has, and the thread that keeps them. See state_dir.h; what stands on
 * the disk is in run_lease.h. Test: tests/unit/test_state_sharing.c
 */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/durable.h"
#include "common/net/token.h"
#include "server/state_dir_impl.h"

#define TRIES 5 /* where another server is at the same run in the same moment */

/* --- one thread at a time for a run ----------------------------------------------------------------------------------- */

bool gp_state_claim_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_stored_run *r;
	pthread_mutex_lock(&d->mutex);
	while ((r = gp_state_find_run(d, id)) && r->going)
		pthread_cond_wait(&d->gone, &d->mutex);
	if (r)
		r->going = true;
	pthread_mutex_unlock(&d->mutex);
	return r != NULL;
}

void gp_state_unclaim_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, id);
	r->going = false;
	if (r->uses == 0 && r->epoch > 0)
		gp_state_wake_keeping(d);
	gp_state_forget_unless_needed(d, r);
	pthread_cond_broadcast(&d->gone);
	pthread_mutex_unlock(&d->mutex);
}

/* --- taking and giving ------------------------------------------------------------------------------------------------ */

static void tell_taken(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], const struct gp_lease_sight *from)
{
	char hex[GP_RUN_ID_HEX];
	const struct gp_log_event e = {.name = "run_taken_over"};
	gp_run_id_text(id, hex);
	gp_log_write_event(GP_LOG_AREA_main, GP_LOG_INFO, &e,
			   "run %.*s is taken over from server %s, which is dead, as generation %" PRIu64,
			   GP_STATE_SHOWN_DIGITS, hex, from->owner, from->generation + 1);
	pthread_mutex_lock(&d->mutex);
	d->taken_over++;
	pthread_mutex_unlock(&d->mutex);
}

static enum gp_status make_run(struct gp_state_dir *d, struct gp_state_hold *out, struct gp_err *err)
{
	struct gp_err ignored;
	char place[PATH_MAX];
	GP_TRY(gp_keeper_place(d->keeper, out->id, place, err));
	GP_TRY(gp_run_lease_make(out->folder.text, place, out->holder, err));
	out->generation = 1;
	if (gp_sync_folder(d->path, err) == GP_OK)
		return GP_OK;
	gp_run_lease_give(out->folder.text, out->generation, out->holder, &ignored);
	return err->code;
}

/* The lease was renamed and the rest failed, because of the disk: what it is called now is this server's own doing, and no sign
 * that another one has had the run. The lease that this server may have had before is gone with its name. */
static void note_half_taken(struct gp_state_dir *d, const struct gp_state_hold *hold)
{
	struct gp_lease_sight now;
	struct gp_err ignored;
	const bool own =
		gp_run_lease_look(hold->folder.text, &now, &ignored) == GP_OK && now.generation == hold->generation;
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, hold->id);
	r->epoch = 0;
	if (r->seen && own) {
		r->seen_generation = now.generation;
		memcpy(r->seen_owner, now.owner, sizeof r->seen_owner);
	}
	pthread_mutex_unlock(&d->mutex);
}

/* GP_CANCELED: another server was faster, or has taken the run meanwhile. */
static enum gp_status take_seen(struct gp_state_dir *d, const struct gp_lease_sight *seen, struct gp_state_hold *out,
				struct gp_err *err)
{
	GP_TRY(gp_run_lease_take(out->folder.text, seen, out->holder, err));
	out->generation = seen->generation + 1;
	const enum gp_status status = gp_run_lease_settle(out->folder.text, out->generation, out->holder, err);
	if (status != GP_OK)
		note_half_taken(d, out);
	return status;
}

/* A session went on without its lease: nobody may have changed the run since. */
static enum gp_status check_unchanged(const struct gp_lease_sight *now, const struct gp_stored_run *before,
				      struct gp_err *err)
{
	if (now->generation != before->seen_generation || strcmp(now->owner, before->seen_owner) != 0)
		GP_FAIL(err, GP_CANCELED, "another server has had the run since this session began");
	return GP_OK;
}

/* GP_CANCELED: another server was faster, look again. */
static enum gp_status take_run(struct gp_state_dir *d, const struct gp_stored_run *before, struct gp_state_hold *out,
			       struct gp_err *err)
{
	struct gp_lease_sight seen;
	GP_TRY(gp_run_lease_look(out->folder.text, &seen, err));
	if (before->seen)
		GP_TRY(check_unchanged(&seen, before, err));
	if (!seen.there)
		return make_run(d, out, err);
	if (seen.owner[0])
		GP_TRY(gp_keeper_ask(d->keeper, seen.owner, err));
	GP_TRY(take_seen(d, &seen, out, err));
	if (seen.owner[0] && strcmp(seen.owner, out->holder) != 0)
		tell_taken(d, out->id, &seen);
	return GP_OK;
}

static enum gp_status take_patiently(struct gp_state_dir *d, const struct gp_stored_run *before,
				     struct gp_state_hold *out, struct gp_err *err)
{
	out->epoch = gp_keeper_epoch(d->keeper, out->holder);
	if (out->epoch == 0)
		GP_FAIL(err, GP_IO, "the server cannot lock runs now: its lease could not be renewed");
	for (int i = 0; i < TRIES; i++) {
		const enum gp_status status = take_run(d, before, out, err);
		if (status != GP_CANCELED || before->seen) /* whoever was faster has had the run */
			return status;
	}
	GP_FAIL(err, GP_BUSY, "several servers want the run at once");
}

static void note_hold(struct gp_state_dir *d, const struct gp_state_hold *hold)
{
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, hold->id);
	r->epoch = hold->epoch;
	r->generation = hold->generation;
	memcpy(r->holder, hold->holder, sizeof r->holder);
	r->seen = r->unknown = r->elsewhere = r->of_session = false;
	r->wants = 0;
	r->pass = d->refresh.pass; /* the pass under way may have come by before the folder was there */
	pthread_mutex_unlock(&d->mutex);
}

static struct gp_stored_run copy_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	const struct gp_stored_run r = *gp_state_find_run(d, id);
	pthread_mutex_unlock(&d->mutex);
	return r;
}

static enum gp_status fill_hold(const struct gp_state_dir *d, const struct gp_stored_run *r, struct gp_state_hold *out,
				struct gp_err *err)
{
	memcpy(out->id, r->id, sizeof out->id);
	out->epoch = r->epoch;
	out->generation = r->generation;
	memcpy(out->holder, r->holder, sizeof out->holder);
	return gp_state_run_path(d, r->id, &out->folder, err);
}

static enum gp_status find_work(struct gp_state_hold *out, struct gp_err *err)
{
	return gp_run_lease_work(out->folder.text, out->generation, out->holder, out->work.text, err);
}

enum gp_status gp_state_lock_going(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_state_hold *out,
				   struct gp_err *err)
{
	const struct gp_stored_run r = copy_run(d, id);
	struct gp_err ignored;
	GP_TRY(fill_hold(d, &r, out, err));
	if (r.epoch > 0 && gp_state_check_hold(d, out, &ignored) == GP_OK)
		return find_work(out, err);
	GP_TRY(take_patiently(d, &r, out, err));
	note_hold(d, out);
	return find_work(out, err);
}

enum gp_status gp_state_lock_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_state_hold *out,
				 struct gp_err *err)
{
	gp_require(gp_state_claim_run(d, id));
	const enum gp_status status = gp_state_lock_going(d, id, out, err);
	gp_state_unclaim_run(d, id);
	return status;
}

/* The lease was had, and was lost: from here on the run is one that this server has seen last as its own. */
static void note_own_loss(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_state_hold hold;
	struct gp_err ignored;
	const struct gp_stored_run before = copy_run(d, id);
	if (before.epoch == 0 || fill_hold(d, &before, &hold, &ignored) != GP_OK ||
	    gp_state_check_hold(d, &hold, &ignored) == GP_OK)
		return;
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, id);
	r->seen = true;
	r->seen_generation = before.generation;
	memcpy(r->seen_owner, before.holder, sizeof r->seen_owner);
	pthread_mutex_unlock(&d->mutex);
}

/* What is held may be held for another session of this server, which has gone further. */
static enum gp_status lock_late(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_state_hold *out,
				struct gp_err *err)
{
	const struct gp_stored_run before = copy_run(d, id);
	struct gp_err ignored;
	if (before.unknown)
		GP_FAIL(err, GP_CANCELED,
			"nobody knows whether another server has had the run since this session began");
	GP_TRY(fill_hold(d, &before, out, err));
	if (before.epoch > 0 && before.of_session && gp_state_check_hold(d, out, &ignored) == GP_OK)
		GP_FAIL(err, GP_CANCELED, "another session of this server has the run");
	note_own_loss(d, id);
	return gp_state_lock_going(d, id, out, err);
}

enum gp_status gp_state_lock_late(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_state_hold *out,
				  struct gp_err *err)
{
	gp_require(gp_state_claim_run(d, id));
	const enum gp_status status = lock_late(d, id, out, err);
	gp_state_unclaim_run(d, id);
	return status;
}

void gp_state_give_going(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_state_hold hold;
	struct gp_err err;
	const struct gp_stored_run r = copy_run(d, id);
	if (r.epoch == 0 || fill_hold(d, &r, &hold, &err) != GP_OK)
		return;
	const enum gp_status status = gp_run_lease_give(hold.folder.text, hold.generation, hold.holder, &err);
	if (status != GP_OK && status != GP_CANCELED) {
		gp_state_conceal(id, &err);
		gp_log(main, GP_LOG_WARN, "--state-dir: the lease of a run is not given back: %s", err.text);
	}
	pthread_mutex_lock(&d->mutex);
	gp_state_find_run(d, id)->epoch = 0;
	pthread_mutex_unlock(&d->mutex);
}

enum gp_status gp_state_check_hold(const struct gp_state_dir *d, const struct gp_state_hold *hold, struct gp_err *err)
{
	if (!gp_keeper_holds(d->keeper, hold->epoch))
		GP_FAIL(err, GP_CANCELED, "this server has lost its lease of the run");
	return gp_run_lease_check(hold->folder.text, hold->generation, hold->holder, err);
}

/* Somebody has taken the run although this server's clock says that nobody may: the file system is right. */
static void note_loss(struct gp_state_dir *d, const struct gp_state_hold *hold)
{
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, hold->id);
	if (r->generation == hold->generation)
		r->epoch = 0;
	d->wanted = true;
	pthread_mutex_unlock(&d->mutex);
}

enum gp_status gp_state_find_hold(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], uint64_t lease,
				  struct gp_state_hold *out, struct gp_err *err)
{
	const struct gp_stored_run r = copy_run(d, id);
	if (r.epoch == 0 || r.generation != lease)
		GP_FAIL(err, GP_CANCELED, "this server has lost its lease of the run");
	GP_TRY(fill_hold(d, &r, out, err));
	const enum gp_status status = gp_state_check_hold(d, out, err);
	if (status == GP_CANCELED)
		note_loss(d, out);
	return status == GP_OK ? find_work(out, err) : status;
}

/* --- for sessions ------------------------------------------------------------------------------------------------------ */

static void note_seen(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	struct gp_state_path folder;
	struct gp_lease_sight sight;
	struct gp_err ignored;
	const bool found = gp_state_run_path(d, run, &folder, &ignored) == GP_OK &&
			   gp_run_lease_look(folder.text, &sight, &ignored) == GP_OK;
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, run);
	r->seen = found;
	r->unknown = !found;
	if (!found)
		sight = (struct gp_lease_sight){.there = false};
	r->seen_generation = sight.generation;
	memcpy(r->seen_owner, sight.owner, sizeof r->seen_owner);
	pthread_mutex_unlock(&d->mutex);
}

/* Its client is here, so the other server is asked to hand it over. */
static void want(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	struct gp_state_path folder;
	struct gp_lease_sight seen;
	struct gp_want w;
	struct gp_err err;
	if (gp_state_run_path(d, run, &folder, &err) != GP_OK || gp_run_lease_look(folder.text, &seen, &err) != GP_OK ||
	    !seen.owner[0])
		return;
	w.generation = seen.generation;
	memcpy(w.run, run, sizeof w.run);
	if (gp_random_bytes(&w.nonce, sizeof w.nonce, &err) != GP_OK ||
	    gp_beat_want(d->path, seen.owner, &w, &err) != GP_OK)
		gp_log(main, GP_LOG_DEBUG, "--state-dir: server %s cannot be asked for a run: %s", seen.owner,
		       err.text);
}

/* An older session of the run, which is ending, may still have something to write: it has another lease from here on. */
static enum gp_status lock_anew(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], struct gp_state_hold *hold,
				struct gp_err *err)
{
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, run);
	r->seen = r->unknown = false;
	r->wants = 0; /* the client that was asked for is here */
	const bool another = r->uses > 1;
	pthread_mutex_unlock(&d->mutex);
	GP_TRY(gp_state_lock_going(d, run, hold, err));
	if (!another)
		return GP_OK;
	struct gp_lease_sight seen = {.there = true, .generation = hold->generation};
	memcpy(seen.owner, hold->holder, sizeof seen.owner);
	GP_TRY(take_seen(d, &seen, hold, err));
	note_hold(d, hold);
	return GP_OK;
}

enum gp_status gp_state_dir_hold(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t *lease,
				 struct gp_err *err)
{
	struct gp_state_hold hold;
	char hex[GP_RUN_ID_HEX];
	gp_require(gp_state_claim_run(d, run));
	const enum gp_status status = lock_anew(d, run, &hold, err);
	pthread_mutex_lock(&d->mutex);
	gp_state_find_run(d, run)->of_session = status == GP_OK;
	pthread_mutex_unlock(&d->mutex);
	gp_state_unclaim_run(d, run);
	if (status == GP_OK) {
		*lease = hold.generation;
		return GP_OK;
	}
	if (status == GP_BUSY) {
		want(d, run);
		return status;
	}
	gp_state_conceal(run, err);
	gp_run_id_text(run, hex);
	gp_log(main, GP_LOG_WARN, "--state-dir: run %.*s cannot be locked: %s", GP_STATE_SHOWN_DIGITS, hex, err->text);
	if (status != GP_INVALID)
		note_seen(d, run);
	return status;
}

bool gp_state_dir_has_news(struct gp_state_dir *d)
{
	const uint64_t losses = gp_keeper_losses(d->keeper);
	pthread_mutex_lock(&d->mutex);
	const bool news = d->wanted || losses != d->losses_told;
	d->wanted = false;
	d->losses_told = losses;
	pthread_mutex_unlock(&d->mutex);
	return news;
}

bool gp_state_dir_is_lost(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t lease)
{
	pthread_mutex_lock(&d->mutex);
	const struct gp_stored_run *r = gp_state_find_run(d, run);
	const uint64_t epoch = r && r->generation == lease ? r->epoch : 0;
	pthread_mutex_unlock(&d->mutex);
	return lease > 0 && !gp_keeper_holds(d->keeper, epoch);
}

uint64_t gp_state_dir_wants(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	const struct gp_stored_run *r = gp_state_find_run(d, run);
	const uint64_t wants = r ? r->wants : 0;
	pthread_mutex_unlock(&d->mutex);
	return wants;
}

void gp_state_dir_unwant(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES])
{
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, run);
	if (r)
		r->wants = 0;
	pthread_mutex_unlock(&d->mutex);
}

void gp_state_dir_figures(struct gp_state_dir *d, struct gp_state_figures *out)
{
	struct gp_fleet_view fleet;
	gp_fleet_view(d->fleet, &fleet);
	*out = (struct gp_state_figures){.losses = gp_keeper_losses(d->keeper), .servers = fleet.count + 1};
	gp_keeper_epoch(d->keeper, out->owner);
	pthread_mutex_lock(&d->mutex);
	for (int i = 0; i < d->runs; i++)
		out->held += d->run[i].epoch > 0;
	out->taken_over = d->taken_over;
	pthread_mutex_unlock(&d->mutex);
}

void gp_state_dir_tell_load(struct gp_state_dir *d, const struct gp_beat_load *load)
{
	gp_keeper_set_load(d->keeper, load);
}

void gp_state_dir_fleet(struct gp_state_dir *d, struct gp_fleet_view *out)
{
	gp_fleet_view(d->fleet, out);
}

/* --- keeping ---------------------------------------------------------------------------------------------------------- */

void gp_state_wake_keeping(struct gp_state_dir *d)
{
	d->keeping.asked = true;
	pthread_cond_signal(&d->keeping.wake);
}

/* One that nobody uses any more becomes `going`. False: there is none. */
static bool claim_idle(struct gp_state_dir *d, uint8_t id[GP_RUN_ID_BYTES])
{
	bool found = false;
	pthread_mutex_lock(&d->mutex);
	for (int i = 0; i < d->runs && !found; i++) {
		struct gp_stored_run *r = &d->run[i];
		found = r->epoch > 0 && r->uses == 0 && !r->going;
		if (found) {
			r->going = true;
			memcpy(id, r->id, GP_RUN_ID_BYTES);
		}
	}
	pthread_mutex_unlock(&d->mutex);
	return found;
}

static void give_idle(struct gp_state_dir *d)
{
	uint8_t id[GP_RUN_ID_BYTES];
	while (claim_idle(d, id)) {
		gp_state_give_going(d, id);
		gp_state_unclaim_run(d, id);
		gp_keeper_tick(d->keeper); /* there may be many */
	}
}

static void note_wants(struct gp_state_dir *d)
{
	struct gp_want want[GP_WANTS_MAX];
	const int n = gp_keeper_wants(d->keeper, want);
	pthread_mutex_lock(&d->mutex);
	for (int i = 0; i < n; i++) {
		struct gp_stored_run *r = gp_state_find_run(d, want[i].run);
		if (!r || r->epoch == 0 || r->generation != want[i].generation || r->want_nonce == want[i].nonce)
			continue;
		r->want_nonce = want[i].nonce;
		r->wants++;
		d->wanted = true;
	}
	pthread_mutex_unlock(&d->mutex);
}

void gp_state_dir_tick(struct gp_state_dir *d)
{
	char own[GP_OWNER_TEXT];
	gp_keeper_tick(d->keeper);
	give_idle(d);
	note_wants(d);
	gp_keeper_epoch(d->keeper, own);
	gp_fleet_look(d->fleet, own);
	gp_state_refresh(d);
}

static struct timespec later(double seconds)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	const uint64_t ns = (uint64_t)at.tv_nsec + (uint64_t)(seconds * 1e9);
	at.tv_sec += (time_t)(ns / 1000000000);
	at.tv_nsec = (long)(ns % 1000000000);
	return at;
}

static void *keep(void *arg)
{
	struct gp_state_dir *d = arg;
	pthread_setname_np(pthread_self(), "gp-lease");
	pthread_mutex_lock(&d->mutex);
	while (!d->keeping.stopping) {
		d->keeping.asked = false;
		pthread_mutex_unlock(&d->mutex);
		gp_state_dir_tick(d);
		const struct timespec until = later(gp_keeper_pause_s(d->keeper));
		pthread_mutex_lock(&d->mutex);
		while (!d->keeping.stopping && !d->keeping.asked &&
		       pthread_cond_timedwait(&d->keeping.wake, &d->mutex, &until) == 0)
			;
	}
	pthread_mutex_unlock(&d->mutex);
	return NULL;
}

enum gp_status gp_state_start_keeping(struct gp_state_dir *d, struct gp_err *err)
{
	sigset_t all, before; /* the program's signals are for its other threads */
	if (d->limits.keep_by_hand)
		return GP_OK;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	const int code = pthread_create(&d->keeping.thread, NULL, keep, d);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (code != 0)
		GP_FAIL(err, GP_IO, "no thread to keep the leases of --state-dir: %s", strerror(code));
	d->keeping.runs = true;
	return GP_OK;
}

void gp_state_stop_keeping(struct gp_state_dir *d)
{
	if (d->keeping.runs) {
		pthread_mutex_lock(&d->mutex);
		d->keeping.stopping = true;
		pthread_cond_signal(&d->keeping.wake);
		pthread_mutex_unlock(&d->mutex);
		pthread_join(d->keeping.thread, NULL);
	}
	gp_state_stop_refresh(d);
	for (int i = 0; i < d->runs; i++)
		d->run[i].uses = 0;
	if (d->keeper)
		give_idle(d);
}
