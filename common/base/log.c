/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines on stderr. See log.h. Test: tests/unit/test_log.c
 */
#include "common/base/log.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "common/base/text.h"

static enum gp_log_level area_levels[GP_LOG_AREA_COUNT] = {
#define X(name) [GP_LOG_AREA_##name] = GP_LOG_WARN,
	GP_LOG_AREAS(X)
#undef X
};

static const char *const area_names[] = {
#define X(name) #name,
	GP_LOG_AREAS(X)
#undef X
};

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};
enum { LEVELS = sizeof level_names / sizeof level_names[0] };

static int find_name(const char *const *names, int count, struct gp_text t)
{
	for (int i = 0; i < count; i++)
		if (gp_text_is(t, names[i]))
			return i;
	return -1;
}

static enum gp_status configure_one(struct gp_text item, struct gp_err *err)
{
	struct gp_text name, level_name = item;
	char shown[GP_SHOWN];
	if (!gp_text_cut(&level_name, '=', &name) || !level_name.at)
		GP_FAIL(err, GP_USAGE, "--log: '%s' is not AREA=LEVEL, for example all=info",
			gp_text_shown(item, shown));
	const int level = find_name(level_names, LEVELS, level_name);
	if (level < 0)
		GP_FAIL(err, GP_USAGE, "--log: unknown level '%s'; one of error, warn, info, debug, trace",
			gp_text_shown(level_name, shown));
	const int area = find_name(area_names, GP_LOG_AREA_COUNT, name);
	if (area < 0 && !gp_text_is(name, "all"))
		GP_FAIL(err, GP_USAGE,
			"--log: unknown area '%s'; one of all, main, net, session, sched, codec, device, data, model",
			gp_text_shown(name, shown));
	for (int a = 0; a < GP_LOG_AREA_COUNT; a++)
		if (area < 0 || a == area)
			area_levels[a] = (enum gp_log_level)level;
	return GP_OK;
}

enum gp_status gp_log_configure(const char *spec, struct gp_err *err)
{
	struct gp_text item, rest = gp_text_of(spec);
	while (rest.len && gp_text_cut(&rest, ',', &item))
		GP_TRY(configure_one(item, err));
	return GP_OK;
}

bool gp_log_enabled(enum gp_log_area area, enum gp_log_level level)
{
	return level <= area_levels[area];
}

void gp_log_write(enum gp_log_area area, enum gp_log_level level, const char *fmt, ...)
{
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	gp_hide_control_characters(text);
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	char stamp[32];
	strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
	fprintf(stderr, "%s.%03ldZ %s %s: %s\n", stamp, ts.tv_nsec / 1000000, level_names[level], area_names[area],
		text);
}
