/* SPDX-License-Identifier: Apache-2.0
 *
 * What other servers of the same --state-dir have changed: runs that are new, have grown or are gone, so that bounds count
 * them, and runs of servers that have died. A pass goes over the whole folder, a part of it at each call, so that a folder
 * of thousands of runs keeps nobody waiting. See state_dir.h. Test: tests/unit/test_state_sharing.c
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/durable.h"
#include "server/state_dir_impl.h"

#define PASS_EVERY_S 30
#define RUNS_AT_ONCE 64

/* --- the runs of dead servers ------------------------------------------------------------------------------------- */

/* The entry is there for as long as this lasts, whatever else becomes of the run. */
static bool claim(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_stored_run *r;
	struct gp_err ignored;
	pthread_mutex_lock(&d->mutex);
	const bool idle =
		gp_state_enter_run(d, id, &r, &ignored) == GP_OK && r->uses == 0 && !r->going && r->epoch == 0;
	if (idle)
		r->going = true;
	pthread_mutex_unlock(&d->mutex);
	return idle;
}

static enum gp_status reclaim(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_err *err)
{
	struct gp_state_path folder;
	struct gp_lease_sight seen;
	struct gp_state_hold hold;
	GP_TRY(gp_state_run_path(d, id, &folder, err));
	GP_TRY(gp_run_lease_look(folder.text, &seen, err));
	if (!seen.there)
		rmdir(folder.text); /* an empty one, which somebody may have left between two steps */
	if (!seen.there || (!seen.owner[0] && !seen.bare))
		return GP_OK;
	if (seen.owner[0])
		GP_TRY(gp_keeper_ask(d->keeper, seen.owner, err));
	if (!claim(d, id))
		return GP_OK;
	const enum gp_status status = gp_state_lock_going(d, id, &hold, err);
	gp_state_give_going(d, id);
	gp_state_unclaim_run(d, id);
	return status;
}

bool gp_state_reclaim(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_err err;
	const enum gp_status status = reclaim(d, id, &err);
	if (status == GP_OK || status == GP_BUSY)
		return status == GP_BUSY;
	pthread_mutex_lock(&d->mutex);
	const bool news = d->refresh.pass == 0 || gp_state_find_run(d, id); /* one without checkpoints is told once */
	pthread_mutex_unlock(&d->mutex);
	char hex[GP_RUN_ID_HEX];
	gp_run_id_text(id, hex);
	gp_state_conceal(id, &err);
	gp_log(main, news ? GP_LOG_WARN : GP_LOG_DEBUG, "--state-dir: run %.*s: %s", GP_STATE_SHOWN_DIGITS, hex,
	       err.text);
	return false;
}

/* --- a pass -------------------------------------------------------------------------------------------------------- */

/* False: it is this server's own to know, or as it was. */
static bool has_changed(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], uint64_t changed)
{
	pthread_mutex_lock(&d->mutex);
	struct gp_stored_run *r = gp_state_find_run(d, id);
	const bool own = r && (r->uses > 0 || r->going || r->epoch > 0);
	const bool same = r && r->changed_ns == changed && !r->elsewhere && !r->stuck;
	if (r)
		r->pass = d->refresh.pass;
	pthread_mutex_unlock(&d->mutex);
	return !own && !same;
}

/* With the mutex. A pass comes by in any order: how old a run is counts, not when it was met. */
static void set_measure(struct gp_state_dir *d, struct gp_stored_run *r, const struct gp_state_measure *m)
{
	r->bytes = m->bytes;
	if (m->bytes > 0 && r->written < m->newest_ns)
		r->written = m->newest_ns;
	if (d->written < r->written)
		d->written = r->written;
}

static void take_note(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], const char *folder, bool elsewhere)
{
	char owner[GP_STATE_OWNER_ROOM] = "";
	struct gp_stored_run *r;
	struct gp_err ignored;
	const uint64_t changed = gp_state_changed_ns(folder);
	const struct gp_state_measure m = gp_state_measure_run(d, id);
	if (d->limits.names)
		gp_state_read_owner(folder, owner);
	pthread_mutex_lock(&d->mutex);
	const bool known = gp_state_find_run(d, id) != NULL;
	if ((known || m.bytes > 0) && gp_state_enter_run(d, id, &r, &ignored) == GP_OK && r->uses == 0 && !r->going) {
		set_measure(d, r, &m);
		r->changed_ns = changed;
		r->pass = d->refresh.pass;
		r->elsewhere = elsewhere;
		r->stuck = false;
		memcpy(r->owner, owner, sizeof owner);
		gp_state_forget_unless_needed(d, r);
	}
	pthread_mutex_unlock(&d->mutex);
}

static void look_at(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES])
{
	struct gp_state_path folder;
	struct gp_err ignored;
	if (gp_state_run_path(d, id, &folder, &ignored) != GP_OK ||
	    !has_changed(d, id, gp_state_changed_ns(folder.text)))
		return;
	const bool elsewhere = gp_state_reclaim(d, id);
	take_note(d, id, folder.text, elsewhere);
}

/* Those that the pass has not come upon are gone. */
static void forget_gone(struct gp_state_dir *d)
{
	pthread_mutex_lock(&d->mutex);
	for (int i = d->runs - 1; i >= 0; i--) {
		struct gp_stored_run *r = &d->run[i];
		if (r->pass == d->refresh.pass || r->uses > 0 || r->going || r->epoch > 0)
			continue;
		r->bytes = 0;
		gp_state_forget_unless_needed(d, r);
	}
	pthread_mutex_unlock(&d->mutex);
}

/* The more servers there are, the more runs each has that all others look at: together they ask no more of the folder. */
void gp_state_plan_refresh(struct gp_state_dir *d)
{
	struct gp_fleet_view fleet;
	gp_fleet_view(d->fleet, &fleet);
	const uint64_t every_s = PASS_EVERY_S * (uint64_t)(fleet.listed + 1);
	d->refresh.due_ns = d->limits.keep_by_hand ? 0 : gp_now_ns() + every_s * UINT64_C(1000000000);
}

static void begin_pass(struct gp_state_dir *d)
{
	d->refresh.dir = gp_open_folder(d->path);
	pthread_mutex_lock(&d->mutex);
	d->refresh.pass++;
	pthread_mutex_unlock(&d->mutex);
	gp_state_plan_refresh(d);
}

void gp_state_refresh(struct gp_state_dir *d)
{
	uint8_t id[GP_RUN_ID_BYTES];
	const uint64_t until_ns = gp_now_ns() + (uint64_t)(gp_keeper_pause_s(d->keeper) * 1e9);
	if (!d->refresh.dir && gp_now_ns() >= d->refresh.due_ns)
		begin_pass(d);
	for (int n = 0; d->refresh.dir && n < RUNS_AT_ONCE && gp_now_ns() < until_ns;) {
		errno = 0;
		const struct dirent *e = readdir(d->refresh.dir);
		if (!e) {
			const bool whole = errno == 0;
			gp_state_stop_refresh(d);
			if (whole)
				forget_gone(d);
		} else if (gp_run_id_parse(e->d_name, id)) {
			look_at(d, id);
			n++;
		}
	}
}

void gp_state_stop_refresh(struct gp_state_dir *d)
{
	if (d->refresh.dir)
		closedir(d->refresh.dir);
	d->refresh.dir = NULL;
}
