/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines on stderr. See log.h. Test: tests/unit/test_log.c
 */
#include "common/base/log.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

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

static int find_name(const char *const *names, int count, const char *s, size_t len)
{
	for (int i = 0; i < count; i++)
		if (strlen(names[i]) == len && memcmp(names[i], s, len) == 0)
			return i;
	return -1;
}

static enum gp_status configure_one(const char *item, size_t len, struct gp_err *err)
{
	const char *eq = memchr(item, '=', len);
	if (!eq)
		GP_FAIL(err, GP_USAGE, "--log: '%.*s' is not AREA=LEVEL, for example all=info", (int)len, item);
	size_t area_len = (size_t)(eq - item);
	int level = find_name(level_names, 5, eq + 1, len - area_len - 1);
	if (level < 0)
		GP_FAIL(err, GP_USAGE, "--log: unknown level '%.*s'; one of error, warn, info, debug, trace",
			(int)(len - area_len - 1), eq + 1);
	if (area_len == 3 && memcmp(item, "all", 3) == 0) {
		for (int a = 0; a < GP_LOG_AREA_COUNT; a++)
			area_levels[a] = (enum gp_log_level)level;
		return GP_OK;
	}
	int area = find_name(area_names, GP_LOG_AREA_COUNT, item, area_len);
	if (area < 0)
		GP_FAIL(err, GP_USAGE,
			"--log: unknown area '%.*s'; one of all, main, net, session, sched, codec, device, data, model",
			(int)area_len, item);
	area_levels[area] = (enum gp_log_level)level;
	return GP_OK;
}

enum gp_status gp_log_configure(const char *spec, struct gp_err *err)
{
	while (*spec) {
		size_t len = strcspn(spec, ",");
		GP_TRY(configure_one(spec, len, err));
		spec += len + (spec[len] == ',');
	}
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
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	char stamp[32];
	strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
	fprintf(stderr, "%s.%03ldZ %s %s: %s\n", stamp, ts.tv_nsec / 1000000, level_names[level], area_names[area],
		text);
}
