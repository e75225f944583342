/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines on stderr. See log.h. Test: tests/unit/test_log.c
 */
#include "common/base/log.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log_queue.h"
#include "common/base/mem.h"
#include "common/base/plain_text.h"
#include "common/base/text.h"

#define TEXT_BYTES 1024
#define LINE_BYTES 8192 /* every byte of the texts may take several in a string of JSON */
#define ANNOUNCED  GP_LOG_INFO

static enum gp_log_format log_format;
static bool to_journald;
static struct gp_log_queue *queue; /* NULL: whoever logs writes */
static bool queue_is_over;         /* its thread is gone */

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
		GP_FAIL(err, GP_USAGE, "--log: unknown area '%s'; one of all, main, net, session, codec, data, model",
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

/* --- formats ----------------------------------------------------------------------------------------------------- */

/* As systemd.exec(5) has it of JOURNAL_STREAM: the device and the inode that stderr has then. */
static bool stderr_is_journald(void)
{
	unsigned long long device, inode;
	struct stat st;
	const char *stream = getenv("JOURNAL_STREAM");
	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDERR_FILENO, &st) == 0 &&
	       (unsigned long long)st.st_dev == device && (unsigned long long)st.st_ino == inode;
}

enum gp_status gp_log_set_format(const char *format, struct gp_err *err)
{
	const int choice = gp_choice_index(GP_LOG_FORMATS, gp_text_of(format));
	char shown[GP_SHOWN];
	if (choice < 0)
		GP_FAIL(err, GP_USAGE, "--log-format: '%s' is none of text, json",
			gp_text_shown(gp_text_of(format), shown));
	log_format = (enum gp_log_format)choice;
	to_journald = stderr_is_journald();
	return GP_OK;
}

/* A line under way; what does not fit is cut off, never within a string of JSON. */
struct line {
	char text[LINE_BYTES];
	size_t length;
};

static void put(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct line *l, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	const int n = vsnprintf(l->text + l->length, sizeof l->text - l->length, fmt, ap);
	va_end(ap);
	const size_t room = sizeof l->text - 1 - l->length;
	l->length += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

static void put_string(struct line *l, const char *key, const char *value)
{
	char string[6 * TEXT_BYTES];
	if (!value || !value[0])
		return;
	gp_json_string(value, string, sizeof string);
	if (l->length + strlen(key) + strlen(string) + 64 < sizeof l->text)
		put(l, ",\"%s\":%s", key, string);
}

/* sd-daemon(3): the priority, as syslog has it, in front. */
static void put_priority(struct line *l, enum gp_log_level level)
{
	static const int priority[LEVELS] = {3, 4, 6, 7, 7};
	if (to_journald)
		put(l, "<%d>", priority[level]);
}

static void put_time(struct line *l)
{
	struct timespec ts;
	struct tm tm;
	char stamp[32];
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
	put(l, "%s.%03ldZ", stamp, ts.tv_nsec / 1000000);
}

static void put_event(struct line *l, const struct gp_log_event *e)
{
	put_string(l, "event", e->name);
	put_string(l, "reason", e->reason);
	put_string(l, "client", e->client);
	put_string(l, "address", e->address);
	if (e->session > 0)
		put(l, ",\"session\":%llu,\"step\":%llu", (unsigned long long)e->session, (unsigned long long)e->step);
}

static void make_json(struct line *l, const char *area, enum gp_log_level level, const struct gp_log_event *e,
		      const char *text)
{
	put_priority(l, level);
	put(l, "{\"time\":\"");
	put_time(l);
	put(l, "\",\"level\":\"%s\",\"area\":\"%s\"", level_names[level], area);
	if (e)
		put_event(l, e);
	put_string(l, "text", text);
	put(l, "}\n");
}

static void make_text(struct line *l, const char *area, enum gp_log_level level, const char *text)
{
	put_priority(l, level);
	put_time(l);
	put(l, " %s %s: ", level_names[level], area);
	const size_t from = l->length;
	put(l, "%s", text);
	for (size_t i = from; i < l->length; i++)
		if (l->text[i] ==
		    '\n') /* in a path that was asked for, say: what follows would look like a line of ours */
			l->text[i] = '?';
	put(l, "\n");
}

static void make_line(struct line *l, const char *area, enum gp_log_level level, const struct gp_log_event *e,
		      const char *text)
{
	l->length = 0;
	if (log_format == GP_LOG_JSON)
		make_json(l, area, level, e, text);
	else
		make_text(l, area, level, text);
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static size_t make_left_out(uint64_t lines, char *out, size_t size)
{
	struct line l;
	char text[96];
	snprintf(text, sizeof text, "%llu lines of the log were left out here: whoever reads it is too slow",
		 (unsigned long long)lines);
	const struct gp_log_event e = {.name = "log_dropped"};
	make_line(&l, "main", GP_LOG_WARN, &e, text);
	const size_t length = l.length < size ? l.length : size;
	memcpy(out, l.text, length);
	return length;
}

void gp_log_start(void)
{
	struct gp_err err;
	if (queue && queue_is_over) {
		gp_log_queue_free(queue);
		queue = NULL;
	}
	if (queue)
		return;
	queue_is_over = false;
	if (gp_log_queue_new(STDERR_FILENO, make_left_out, &queue, &err) != GP_OK)
		gp_log(main, GP_LOG_WARN, "lines of the log are written by whoever logs: %s", err.text);
}

/* The queue stays: a program that leaves what is under way has threads which may still log. */
void gp_log_stop(double seconds)
{
	if (queue && !queue_is_over)
		queue_is_over = gp_log_queue_stop(queue, seconds);
}

uint64_t gp_log_dropped(void)
{
	return queue ? gp_log_queue_dropped(queue) : 0;
}

static void write_line(const struct line *l)
{
	if (queue)
		gp_log_queue_put(queue, l->text, l->length);
	else
		fwrite(l->text, 1, l->length, stderr);
}

static void write_formatted(enum gp_log_area area, enum gp_log_level level, const struct gp_log_event *e,
			    const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));

static void write_formatted(enum gp_log_area area, enum gp_log_level level, const struct gp_log_event *e,
			    const char *fmt, va_list ap)
{
	char text[TEXT_BYTES];
	struct line l;
	vsnprintf(text, sizeof text, fmt, ap);
	gp_hide_control_characters(text);
	make_line(&l, area_names[area], level, e, text);
	write_line(&l);
}

void gp_log_write(enum gp_log_area area, enum gp_log_level level, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	write_formatted(area, level, NULL, fmt, ap);
	va_end(ap);
}

void gp_log_write_event(enum gp_log_area area, enum gp_log_level level, const struct gp_log_event *event,
			const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	write_formatted(area, level, event, fmt, ap);
	va_end(ap);
}

void gp_log_announce(const struct gp_log_event *event, const char *fmt, ...)
{
	char text[TEXT_BYTES];
	struct line l = {.length = 0};
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (log_format == GP_LOG_JSON)
		make_json(&l, "main", ANNOUNCED, event, text);
	else
		put(&l, "%s\n", text);
	write_line(&l);
}
