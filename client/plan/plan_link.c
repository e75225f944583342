/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_link.h. Test: tests/unit/test_plan_measure.c
 */
#include "client/plan/plan_link.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/measure/link_figures.h"
#include "common/base/text.h"
#include "common/base/value.h"
#include "common/wire/frame.h"
#include "common/wire/send_ahead.h"

#define DELAY_MOST_S 60.0
#define RATE_MOST    1e13 /* bits per second */
#define RATE_LEAST   1.0
#define QUEUE_MOST   (1 << 30)

enum { RATE, DELAY, DOWN };

/* A number alone may be meant in any unit. */
static bool has_unit(const char *text)
{
	const size_t len = strlen(text);
	return len > 0 && isalpha((unsigned char)text[len - 1]);
}

static enum gp_status read_rate(const char *whole, const char *text, double *bytes_per_s, struct gp_err *err)
{
	double bps;
	*bytes_per_s = 0;
	if (strcmp(text, "unlimited") == 0)
		return GP_OK;
	if (!has_unit(text) || !gp_parse_rate(text, &bps) || !(bps >= RATE_LEAST && bps <= RATE_MOST))
		GP_FAIL(err, GP_USAGE,
			"--link '%.60s': '%.20s' is not a rate from 1bit to 10000gbit, such as 100mbit, or unlimited",
			whole, text);
	*bytes_per_s = bps / 8;
	return GP_OK;
}

static enum gp_status read_delay(const char *whole, const char *text, double *seconds, struct gp_err *err)
{
	double s;
	const bool zero = strcmp(text, "0") == 0;
	if ((!has_unit(text) && !zero) || !gp_parse_time(text, &s) || !(s >= 0 && s <= DELAY_MOST_S))
		GP_FAIL(err, GP_USAGE, "--link '%.60s': '%.20s' is not a time up to a minute, such as 20ms", whole,
			text);
	*seconds = s;
	return GP_OK;
}

/* "rtt=20ms": the word, and where its value begins; NULL: none of the words. */
static const char *value_of(const char *part, const char *word)
{
	const size_t len = strlen(word);
	return strncmp(part, word, len) == 0 && part[len] == '=' ? part + len + 1 : NULL;
}

static enum gp_status read_delays(const char *whole, const char *text, double part, struct gp_plan_link *out,
				  struct gp_err *err)
{
	double s;
	GP_TRY(read_delay(whole, text, &s, err));
	out->up.delay_s = out->down.delay_s = s * part;
	return GP_OK;
}

static enum gp_status read_queue(const char *whole, const char *text, double *queue_bytes, struct gp_err *err)
{
	int64_t bytes;
	if (!gp_parse_size(text, &bytes) || bytes < 0 || bytes > QUEUE_MOST)
		GP_FAIL(err, GP_USAGE, "--link '%.60s': '%.20s' is not a size up to 1G, such as 256K", whole, text);
	*queue_bytes = (double)bytes;
	return GP_OK;
}

/* What is read of a --link: the place of the next part without a name, and whether a rate has been given. */
struct link_reading {
	int place;
	bool rate;
};

static enum gp_status read_part(const char *whole, const char *part, struct link_reading *r, struct gp_plan_link *out,
				struct gp_err *err)
{
	const char *rtt = value_of(part, "rtt"), *delay = value_of(part, "delay"), *up = value_of(part, "up"),
		   *down = value_of(part, "down");
	if (value_of(part, "queue-up"))
		return read_queue(whole, value_of(part, "queue-up"), &out->up.queue_bytes, err);
	if (value_of(part, "queue-down"))
		return read_queue(whole, value_of(part, "queue-down"), &out->down.queue_bytes, err);
	if (rtt || delay)
		return read_delays(whole, rtt ? rtt : delay, rtt ? 0.5 : 1, out, err);
	if (up || down) {
		r->rate = true;
		return read_rate(whole, up ? up : down, up ? &out->up.bytes_per_s : &out->down.bytes_per_s, err);
	}
	if (strchr(part, '='))
		GP_FAIL(err, GP_USAGE,
			"--link '%.60s': '%.20s' is none of rtt=, delay=, up=, down=, queue-up= and queue-down=", whole,
			part);
	switch (r->place++) {
	case RATE:
		if (r->rate)
			GP_FAIL(err, GP_USAGE,
				"--link '%.60s': RATE is of both ways, and stands before up= and down=", whole);
		r->rate = true;
		GP_TRY(read_rate(whole, part, &out->up.bytes_per_s, err));
		out->down.bytes_per_s = out->up.bytes_per_s;
		return GP_OK;
	case DELAY:
		return read_delays(whole, part, 1, out, err);
	case DOWN:
		return read_rate(whole, part, &out->down.bytes_per_s, err);
	default:
		break;
	}
	GP_FAIL(err, GP_USAGE, "--link '%.60s' has more parts than RATE,DELAY,DOWN", whole);
}

enum gp_status gp_plan_link_parse(const char *text, struct gp_plan_link *out, struct gp_err *err)
{
	struct gp_text rest = gp_text_of(text), part;
	struct gp_plan_link l = {0};
	struct link_reading r = {.place = RATE};
	char word[32];
	while (gp_text_cut(&rest, ',', &part)) {
		if (!gp_text_copy(part, word, sizeof word) || !word[0])
			GP_FAIL(err, GP_USAGE, "--link '%.60s' is not RATE[,DELAY[,DOWN]], as in 100mbit,20ms", text);
		GP_TRY(read_part(text, word, &r, &l, err));
	}
	if (!r.rate)
		GP_FAIL(err, GP_USAGE, "--link '%.60s' says no rate, as in 100mbit,20ms", text);
	*out = l;
	return GP_OK;
}

/* In front of an urgent message at a sender whose way is full, on average: the kernel's share between half full and full,
 * and of the segments that are being written all but half of the first (plan_sim.h). */
static double own_bytes(double bytes_per_s)
{
	const uint32_t ahead = gp_send_ahead_at(bytes_per_s);
	const int writes = gp_send_ahead_writes(ahead, GP_SEGMENT_BYTES_SERVED);
	return 0.75 * ahead + (writes - 0.5) * GP_SEGMENT_BYTES_SERVED;
}

static struct gp_plan_way way_of(const struct gp_way_figures *w, const struct gp_trip_figures *idle)
{
	const double waits_s = w->loaded.count > 0 ? w->loaded.median - idle->median : 0;
	return (struct gp_plan_way){
		.bytes_per_s = w->bytes_per_s,
		.delay_s = idle->median / 2,
		.queue_bytes = fmin(fmax(waits_s * w->bytes_per_s - own_bytes(w->bytes_per_s), 0), QUEUE_MOST)};
}

/* What moving a byte takes at an end, in the mean of both ways. The whole machine's time counts what both ends take; it is
 * rounded to clock ticks, and not below what the thread that measured took by itself. */
static double byte_s_of(const struct gp_link_figures *f, bool same_machine)
{
	const struct gp_way_figures *up = &f->way[GP_WAY_UP], *down = &f->way[GP_WAY_DOWN];
	const double own = (up->byte_s + down->byte_s) / 2, both = (up->machine_byte_s + down->machine_byte_s) / 2;
	return same_machine ? fmax(own, both / 2) : own;
}

enum gp_status gp_plan_link_of(const struct gp_link_figures *f, bool same_machine, struct gp_plan_link *out,
			       struct gp_err *err)
{
	const bool known =
		f->idle.count > 0 && f->way[GP_WAY_UP].bytes_per_s > 0 && f->way[GP_WAY_DOWN].bytes_per_s > 0;
	if (!known) /* NaN is not above 0 */
		GP_FAIL(err, GP_PEER,
			"the server ended the measurement before the link's rates were known; say them with "
			"--link RATE,DELAY");
	*out = (struct gp_plan_link){way_of(&f->way[GP_WAY_UP], &f->idle), way_of(&f->way[GP_WAY_DOWN], &f->idle),
				     byte_s_of(f, same_machine)};
	return GP_OK;
}

static void rate_text(double bytes_per_s, char text[32])
{
	const double bps = bytes_per_s * 8;
	if (bps <= 0)
		snprintf(text, 32, "unlimited");
	else if (bps < 999.5e6)
		snprintf(text, 32, "%.4g Mbit/s", bps / 1e6);
	else
		snprintf(text, 32, "%.4g Gbit/s", bps / 1e9);
}

const char *gp_plan_link_text(const struct gp_plan_link *l, char text[GP_PLAN_LINK_TEXT])
{
	char up[32], down[32];
	rate_text(l->up.bytes_per_s, up);
	rate_text(l->down.bytes_per_s, down);
	const bool same = strcmp(up, down) == 0;
	snprintf(text, GP_PLAN_LINK_TEXT, "%s%s%s%s, round trip %.3g ms", up, same ? "" : " up, ", same ? "" : down,
		 same ? "" : " down", (l->up.delay_s + l->down.delay_s) * 1e3);
	return text;
}
