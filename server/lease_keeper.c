/* SPDX-License-Identifier: Apache-2.0
 *
 * See lease_keeper.h. Test: tests/unit/test_lease_keeper.c
 */
#include "server/lease_keeper.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#define RENEWALS    5    /* in a lease */
#define OWN_PART    0.75 /* of a lease: so long without a renewal, and it is lost */
#define SILENT_PART 0.5  /* of a lease is left for one that has not been heard of for longer than it should be */
#define LOOKS       10   /* at each of the others, in a lease */
#define WATCHED_FOR 3    /* leases: that nobody has asked for since then is not watched any more */

/* One that somebody has asked for. */
struct watched {
	char owner[GP_OWNER_TEXT]; /* "": none */
	struct gp_beat_page page;
	bool looked;
	uint64_t since_ns; /* with looked: that page was seen then, and no other later */
	uint64_t asked_ns;
	double lease_s;
	bool told; /* that its page cannot be read */
};

struct gp_keeper {
	const char *dir;
	char *name;
	double lease_s;
	uint64_t (*now_ns)(void *arg);
	void *arg;
	struct gp_beat beat; /* of the tick's thread */
	bool begun;
	uint64_t renewed_ns;   /* when the last renewal began; of the tick's thread */
	uint64_t looked_ns;    /* when it last looked at the others */
	pthread_mutex_t mutex; /* around what follows; never held while a file is touched */
	char owner[GP_OWNER_TEXT];
	uint64_t epoch, until_ns; /* until_ns: this epoch's leases are held until then */
	bool lost;
	uint64_t losses;
	struct gp_beat_load load; /* to be told */
	struct watched watched[GP_KEEPER_WATCHED];
};

static uint64_t boot_clock(void *arg)
{
	(void)arg;
	return gp_boot_ns();
}

static uint64_t now_of(const struct gp_keeper *k)
{
	return k->now_ns(k->arg);
}

static uint64_t part_ns(const struct gp_keeper *k, double part)
{
	return (uint64_t)(k->lease_s * part * 1e9);
}

/* --- this server --------------------------------------------------------------------------------------------------- */

/* With the mutex. What was lost stays lost. */
static bool holds_now(struct gp_keeper *k)
{
	if (!k->lost && now_of(k) >= k->until_ns) {
		k->lost = true;
		k->losses++;
	}
	return !k->lost;
}

static void tell_loss(const struct gp_keeper *k, const char *why)
{
	const struct gp_log_event e = {.name = "lease_lost"};
	gp_log_write_event(GP_LOG_AREA_main, GP_LOG_ERROR, &e,
			   "--state-dir: this server (%s) could not renew its leases within %g s%s%s: its runs end "
			   "here, and other servers may go on with them",
			   k->beat.owner, k->lease_s * OWN_PART, *why ? ": " : "", why);
}

static enum gp_status begin_epoch(struct gp_keeper *k, struct gp_err *err)
{
	const uint64_t now = now_of(k);
	GP_TRY(gp_beat_begin(&k->beat, k->dir, k->name, (uint64_t)(k->lease_s * 1000), err));
	k->begun = true;
	k->renewed_ns = now;
	pthread_mutex_lock(&k->mutex);
	memcpy(k->owner, k->beat.owner, sizeof k->owner);
	k->epoch++;
	k->until_ns = now + part_ns(k, OWN_PART);
	k->lost = false;
	pthread_mutex_unlock(&k->mutex);
	return GP_OK;
}

/* The old folder may go before its runs are given back: nobody writes in that epoch any more. */
static void begin_anew(struct gp_keeper *k, const char *why)
{
	struct gp_err err;
	if (k->begun) {
		tell_loss(k, why);
		gp_beat_end(&k->beat);
	}
	k->begun = false;
	if (begin_epoch(k, &err) != GP_OK)
		gp_log(main, GP_LOG_DEBUG, "--state-dir: no run can be locked: %s", err.text);
}

static struct gp_beat_load load_of(struct gp_keeper *k)
{
	pthread_mutex_lock(&k->mutex);
	const struct gp_beat_load load = k->load;
	pthread_mutex_unlock(&k->mutex);
	return load;
}

void gp_keeper_set_load(struct gp_keeper *k, const struct gp_beat_load *load)
{
	pthread_mutex_lock(&k->mutex);
	k->load = *load;
	pthread_mutex_unlock(&k->mutex);
}

/* A renewal that ended after the leases were lost comes too late. One that others have no file for any more does, too. */
static void renew(struct gp_keeper *k)
{
	struct gp_err err = {0};
	const uint64_t now = now_of(k);
	if (k->begun && now - k->renewed_ns < part_ns(k, 1.0 / RENEWALS))
		return;
	k->beat.load = load_of(k);
	const enum gp_status status = k->begun ? gp_beat_renew(&k->beat, &err) : GP_CANCELED;
	pthread_mutex_lock(&k->mutex);
	bool held = holds_now(k);
	if (status == GP_CANCELED && held) {
		k->lost = true;
		k->losses++;
		held = false;
	} else if (status == GP_OK && held) {
		k->until_ns = now + part_ns(k, OWN_PART);
	}
	pthread_mutex_unlock(&k->mutex);
	if (status == GP_OK)
		k->renewed_ns = now;
	else
		gp_log(main, GP_LOG_DEBUG, "--state-dir: the lease is not renewed: %s", err.text);
	if (!held)
		begin_anew(k, err.text);
}

uint64_t gp_keeper_epoch(struct gp_keeper *k, char owner[GP_OWNER_TEXT])
{
	pthread_mutex_lock(&k->mutex);
	const uint64_t epoch = holds_now(k) ? k->epoch : 0;
	memcpy(owner, k->owner, GP_OWNER_TEXT);
	pthread_mutex_unlock(&k->mutex);
	return epoch;
}

bool gp_keeper_holds(struct gp_keeper *k, uint64_t epoch)
{
	pthread_mutex_lock(&k->mutex);
	const bool held = holds_now(k) && epoch == k->epoch;
	pthread_mutex_unlock(&k->mutex);
	return held;
}

uint64_t gp_keeper_losses(struct gp_keeper *k)
{
	pthread_mutex_lock(&k->mutex);
	holds_now(k);
	const uint64_t losses = k->losses;
	pthread_mutex_unlock(&k->mutex);
	return losses;
}

enum gp_status gp_keeper_place(struct gp_keeper *k, const uint8_t run[GP_RUN_ID_BYTES], char out[PATH_MAX],
			       struct gp_err *err)
{
	struct gp_beat own = {.dir = k->dir};
	gp_keeper_epoch(k, own.owner);
	return gp_beat_place(&own, run, out, err);
}

int gp_keeper_wants(struct gp_keeper *k, struct gp_want out[GP_WANTS_MAX])
{
	struct gp_beat own = {.dir = k->dir};
	return gp_keeper_epoch(k, own.owner) > 0 ? gp_beat_wants(&own, out) : 0;
}

/* --- others -------------------------------------------------------------------------------------------------------- */

/* With the mutex. */
static struct watched *find_watched(struct gp_keeper *k, const char *owner)
{
	for (int i = 0; i < GP_KEEPER_WATCHED; i++)
		if (strcmp(k->watched[i].owner, owner) == 0)
			return &k->watched[i];
	return NULL;
}

/* With the mutex: that one, or a place for it. */
static struct watched *enter_watched(struct gp_keeper *k, const char *owner)
{
	struct watched *w = find_watched(k, owner), *oldest = &k->watched[0];
	for (int i = 0; i < GP_KEEPER_WATCHED && !w; i++)
		if (!k->watched[i].owner[0] || k->watched[i].asked_ns < oldest->asked_ns)
			oldest = &k->watched[i];
	if (!w) {
		w = oldest;
		*w = (struct watched){.lease_s = k->lease_s};
		memcpy(w->owner, owner, GP_OWNER_TEXT);
	}
	w->asked_ns = now_of(k);
	return w;
}

static double lease_of(const struct gp_keeper *k, const struct gp_beat_facts *f)
{
	const double theirs = f->valid ? (double)f->lease_ms * 1e-3 : GP_LEASE_S_MAX;
	return theirs > k->lease_s ? theirs : k->lease_s;
}

struct sight {
	struct gp_beat_facts facts;
	double left_s; /* until it counts as dead; 0: it does */
	bool dead;
};

/* 0 where it has begun before that: another thread may have seen the page while this one was still at reading it. */
static double seconds_since(uint64_t begin_ns, uint64_t now_ns)
{
	return now_ns > begin_ns ? (double)(now_ns - begin_ns) * 1e-9 : 0.0;
}

/* With the mutex: what was read between these two times says what of that server. */
static struct sight note_page(struct gp_keeper *k, const char *owner, const struct gp_beat_page *page,
			      uint64_t before_ns, uint64_t after_ns)
{
	struct sight s = {.facts = gp_beat_facts(page)};
	struct watched *w = find_watched(k, owner);
	const double lease_s = lease_of(k, &s.facts);
	s.left_s = lease_s;
	if (w && w->looked && memcmp(&w->page, page, sizeof *page) == 0) {
		s.left_s = lease_s - seconds_since(w->since_ns, before_ns);
	} else if (w) {
		w->page = *page;
		w->since_ns = after_ns;
		w->looked = true;
	}
	if (w && !s.facts.valid && !w->told)
		gp_log(main, GP_LOG_WARN,
		       "--state-dir: the file of server %s in 'servers' cannot be read; it counts as one with the "
		       "longest --lease (%d s)",
		       owner, GP_LEASE_S_MAX);
	if (w) {
		w->told |= !s.facts.valid;
		w->lease_s = lease_s;
	}
	s.dead = s.facts.ended || s.left_s <= 0;
	return s;
}

static void forget_watched(struct gp_keeper *k, const char *owner)
{
	pthread_mutex_lock(&k->mutex);
	struct watched *w = find_watched(k, owner);
	if (w)
		*w = (struct watched){.looked = false};
	pthread_mutex_unlock(&k->mutex);
}

static enum gp_status bury(struct gp_keeper *k, const char *owner, const struct sight *s, struct gp_err *err)
{
	GP_TRY(gp_beat_bury(k->dir, owner, err));
	forget_watched(k, owner);
	if (s->facts.ended)
		gp_log(main, GP_LOG_INFO, "--state-dir: server %s (%s) has ended", owner, s->facts.name);
	else
		gp_log(main, GP_LOG_WARN,
		       "--state-dir: server %s (%s) has not been heard of for %g s: it counts as dead", owner,
		       s->facts.name, lease_of(k, &s->facts));
	return GP_OK;
}

/* GP_OK: it is dead. GP_BUSY: it is not, *out says what is known. */
static enum gp_status look_at(struct gp_keeper *k, const char *owner, struct sight *out, struct gp_err *err)
{
	struct gp_beat_page page;
	const uint64_t before = now_of(k);
	const enum gp_status status = gp_beat_read(k->dir, owner, &page, err);
	if (status == GP_CANCELED) {
		forget_watched(k, owner);
		return GP_OK;
	}
	GP_TRY(status);
	pthread_mutex_lock(&k->mutex);
	*out = note_page(k, owner, &page, before, now_of(k));
	pthread_mutex_unlock(&k->mutex);
	return out->dead ? bury(k, owner, out, err) : GP_BUSY;
}

enum gp_status gp_keeper_ask(struct gp_keeper *k, const char *owner, struct gp_err *err)
{
	struct sight s;
	pthread_mutex_lock(&k->mutex);
	const bool own = strcmp(k->owner, owner) == 0;
	if (!own)
		enter_watched(k, owner);
	pthread_mutex_unlock(&k->mutex);
	if (own)
		return GP_OK;
	const enum gp_status status = look_at(k, owner, &s, err);
	if (status != GP_BUSY)
		return status;
	if (s.left_s < SILENT_PART * lease_of(k, &s.facts))
		GP_FAIL(err, GP_BUSY,
			"server %s, which shares this one's --state-dir, has the run, and is silent; it counts as dead "
			"in %.1f s",
			owner, s.left_s);
	GP_FAIL(err, GP_BUSY, "server %s, which shares this one's --state-dir, has the run and was asked for it",
		owner);
}

/* With the mutex: "" where there is none, or none that anybody still asks for. */
static void next_watched(struct gp_keeper *k, int i, char owner[GP_OWNER_TEXT])
{
	struct watched *w = &k->watched[i];
	if ((double)(now_of(k) - w->asked_ns) * 1e-9 > WATCHED_FOR * w->lease_s)
		*w = (struct watched){.looked = false};
	memcpy(owner, w->owner, GP_OWNER_TEXT);
}

static void watch(struct gp_keeper *k)
{
	const uint64_t now = now_of(k);
	if (now - k->looked_ns < part_ns(k, 1.0 / LOOKS))
		return;
	k->looked_ns = now;
	for (int i = 0; i < GP_KEEPER_WATCHED; i++) {
		char owner[GP_OWNER_TEXT];
		struct sight s;
		struct gp_err err;
		pthread_mutex_lock(&k->mutex);
		next_watched(k, i, owner);
		pthread_mutex_unlock(&k->mutex);
		if (owner[0] && look_at(k, owner, &s, &err) == GP_IO)
			gp_log(main, GP_LOG_DEBUG, "--state-dir: server %s cannot be watched: %s", owner, err.text);
	}
}

/* --- life ---------------------------------------------------------------------------------------------------------- */

void gp_keeper_tick(struct gp_keeper *k)
{
	renew(k);
	watch(k);
}

double gp_keeper_pause_s(const struct gp_keeper *k)
{
	const double pause = k->lease_s / (2 * RENEWALS);
	return pause < 1.0 ? pause : 1.0;
}

static void watch_from_start(const char *owner, void *arg)
{
	struct gp_keeper *k = arg;
	if (strcmp(owner, k->owner) != 0)
		enter_watched(k, owner);
}

enum gp_status gp_keeper_new(const char *dir, const struct gp_keeper_settings *set, struct gp_keeper **out,
			     struct gp_err *err)
{
	struct gp_keeper *k;
	GP_TRY(gp_alloc_array((void **)&k, 1, sizeof *k, err));
	memset(k, 0, sizeof *k);
	k->dir = dir;
	k->name = gp_strdup(set->name);
	k->lease_s = set->lease_s;
	k->now_ns = set->now_ns ? set->now_ns : boot_clock;
	k->arg = set->arg;
	k->lost = true;
	pthread_mutex_init(&k->mutex, NULL);
	enum gp_status status =
		k->name ? begin_epoch(k, err)
			: gp_err_set(err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory for --state-dir");
	if (status == GP_OK)
		status = gp_beat_each(dir, watch_from_start, k, err);
	if (status != GP_OK) {
		gp_keeper_free(k);
		return status;
	}
	*out = k;
	return GP_OK;
}

void gp_keeper_free(struct gp_keeper *k)
{
	if (!k)
		return;
	if (k->begun)
		gp_beat_end(&k->beat);
	pthread_mutex_destroy(&k->mutex);
	gp_free(k->name);
	gp_free(k);
}
