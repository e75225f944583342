/* SPDX-License-Identifier: Apache-2.0
 *
 * See fleet.h. Test: tests/unit/test_fleet.c
 */
#include "server/fleet.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"

#define LOOKS      5   /* in a lease: as many as there are beats */
#define FRESH_PART 0.5 /* of a lease: a beat that is older is of one that hangs, or is dead */

/* One of the others, as it was seen last. */
struct seen {
	char owner[GP_OWNER_TEXT];
	struct gp_beat_page page;
	uint64_t changed_ns; /* 0: it has not, since it was seen first */
	bool there;          /* in the look under way */
};

struct gp_fleet {
	const char *dir;
	double lease_s;
	uint64_t (*now_ns)(void *arg);
	void *arg;
	uint64_t due_ns;                 /* when to look next */
	struct seen seen[GP_FLEET_SEEN]; /* of the thread that looks */
	int count;
	int listed;            /* gp_fleet_view has it, of the newest look that did not fail */
	pthread_mutex_t mutex; /* around what follows */
	struct gp_fleet_view view;
};

static uint64_t boot_clock(void *arg)
{
	(void)arg;
	return gp_boot_ns();
}

/* --- whom to look at ------------------------------------------------------------------------------------------------ */

/* The others that follow this server's own id most closely, on the ring of all ids. */
struct neighbours {
	const char *own;
	uint64_t distance[GP_FLEET_SEEN]; /* the nearest first */
	char owner[GP_FLEET_SEEN][GP_OWNER_TEXT];
	int count, all;
};

static void note_neighbour(const char *owner, void *arg)
{
	struct neighbours *n = arg;
	const uint64_t distance = strtoull(owner, NULL, 16) - strtoull(n->own, NULL, 16);
	int at = n->count;
	if (distance == 0)
		return;
	n->all++;
	while (at > 0 && n->distance[at - 1] > distance)
		at--;
	if (at == GP_FLEET_SEEN)
		return;
	const int behind = (n->count < GP_FLEET_SEEN ? n->count : GP_FLEET_SEEN - 1) - at;
	memmove(&n->distance[at + 1], &n->distance[at], (size_t)behind * sizeof n->distance[0]);
	memmove(&n->owner[at + 1], &n->owner[at], (size_t)behind * sizeof n->owner[0]);
	n->distance[at] = distance;
	memcpy(n->owner[at], owner, GP_OWNER_TEXT);
	n->count += n->count < GP_FLEET_SEEN;
}

static struct seen *find_seen(struct gp_fleet *f, const char *owner)
{
	for (int i = 0; i < f->count; i++)
		if (strcmp(f->seen[i].owner, owner) == 0)
			return &f->seen[i];
	return NULL;
}

/* Those that are gone leave their places to those that came. */
static void keep_neighbours(struct gp_fleet *f, const struct neighbours *n)
{
	int kept = 0;
	for (int i = 0; i < f->count; i++)
		f->seen[i].there = false;
	for (int i = 0; i < n->count; i++) {
		struct seen *s = find_seen(f, n->owner[i]);
		if (s)
			s->there = true;
	}
	for (int i = 0; i < f->count; i++)
		if (f->seen[i].there)
			f->seen[kept++] = f->seen[i];
	f->count = kept;
	for (int i = 0; i < n->count; i++) {
		if (find_seen(f, n->owner[i]))
			continue;
		f->seen[f->count] = (struct seen){.there = true};
		memcpy(f->seen[f->count++].owner, n->owner[i], GP_OWNER_TEXT);
	}
}

/* --- what they say -------------------------------------------------------------------------------------------------- */

/* The page of one that was not known is there for the next look to differ from. */
static void read_page(struct gp_fleet *f, struct seen *s)
{
	struct gp_beat_page page;
	struct gp_err ignored;
	if (gp_beat_read(f->dir, s->owner, &page, &ignored) != GP_OK || memcmp(&page, &s->page, sizeof page) == 0)
		return;
	if (s->page.bytes[0])
		s->changed_ns = f->now_ns(f->arg);
	s->page = page;
}

/* Enters those that live. The names of folders are whoever's who may write there: what a page says is bounded. */
static void fill(struct gp_fleet *f, struct gp_fleet_view *out)
{
	const uint64_t now = f->now_ns(f->arg);
	*out = (struct gp_fleet_view){.lease_s = f->lease_s};
	for (int i = 0; i < f->count; i++) {
		const struct seen *s = &f->seen[i];
		const struct gp_beat_facts facts = gp_beat_facts(&s->page);
		const double lease_s = (double)facts.lease_ms * 1e-3;
		if (!facts.valid || facts.ended || !facts.load.known || s->changed_ns == 0 ||
		    (double)(now - s->changed_ns) * 1e-9 > FRESH_PART * lease_s)
			continue;
		struct gp_fleet_server *o = &out->other[out->count++];
		memcpy(o->owner, s->owner, sizeof o->owner);
		o->load = facts.load;
		out->lease_s = lease_s > out->lease_s ? lease_s : out->lease_s;
	}
}

void gp_fleet_look(struct gp_fleet *f, const char *own)
{
	struct neighbours n = {.own = own};
	struct gp_fleet_view view;
	struct gp_err err;
	const uint64_t now = f->now_ns(f->arg);
	if (now < f->due_ns)
		return;
	f->due_ns = now + (uint64_t)(f->lease_s / LOOKS * 1e9);
	if (gp_beat_each(f->dir, note_neighbour, &n, &err) == GP_OK) {
		keep_neighbours(f, &n);
		f->listed = n.all;
	} else { /* those that are known stay; each shows by itself whether it lives */
		gp_log(main, GP_LOG_DEBUG, "--state-dir: other servers cannot be looked for: %s", err.text);
	}
	for (int i = 0; i < f->count; i++)
		read_page(f, &f->seen[i]);
	fill(f, &view);
	view.listed = f->listed;
	pthread_mutex_lock(&f->mutex);
	f->view = view;
	pthread_mutex_unlock(&f->mutex);
}

void gp_fleet_view(struct gp_fleet *f, struct gp_fleet_view *out)
{
	pthread_mutex_lock(&f->mutex);
	*out = f->view;
	pthread_mutex_unlock(&f->mutex);
}

enum gp_status gp_fleet_new(const char *dir, const struct gp_keeper_settings *set, struct gp_fleet **out,
			    struct gp_err *err)
{
	struct gp_fleet *f;
	GP_TRY(gp_alloc_array((void **)&f, 1, sizeof *f, err));
	memset(f, 0, sizeof *f);
	f->dir = dir;
	f->lease_s = set->lease_s;
	f->now_ns = set->now_ns ? set->now_ns : boot_clock;
	f->arg = set->arg;
	f->view.lease_s = f->lease_s;
	pthread_mutex_init(&f->mutex, NULL);
	*out = f;
	return GP_OK;
}

void gp_fleet_free(struct gp_fleet *f)
{
	if (!f)
		return;
	pthread_mutex_destroy(&f->mutex);
	gp_free(f);
}
