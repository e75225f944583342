/* SPDX-License-Identifier: Apache-2.0
 *
 * See metric_text.h. Test: tests/unit/test_metric_text.c
 */
#include "common/metrics/metric_text.h"

#include <math.h>
#include <string.h>

#include "common/base/plain_text.h"

#define FIRST_ROOM 16384u

void gp_metric_text_deinit(struct gp_metric_text *t)
{
	gp_free(t->text);
	*t = (struct gp_metric_text){0};
}

static bool make_room(struct gp_metric_text *t, size_t more)
{
	if (t->too_long || t->no_memory)
		return false;
	if (more <= t->room - t->length)
		return true;
	size_t room = t->room ? t->room : FIRST_ROOM;
	while (room < t->length + more)
		room *= 2;
	if (room > GP_METRIC_TEXT_MOST) {
		t->too_long = true;
		return false;
	}
	char *text = gp_realloc(t->text, room, 1);
	if (!text) {
		t->no_memory = true;
		return false;
	}
	t->text = text;
	t->room = room;
	return true;
}

static void put(struct gp_metric_text *t, const char *text, size_t length)
{
	if (!make_room(t, length))
		return;
	memcpy(t->text + t->length, text, length);
	t->length += length;
}

static void put_text(struct gp_metric_text *t, const char *text)
{
	put(t, text, strlen(text));
}

void gp_metric_family(struct gp_metric_text *t, const char *name, enum gp_metric_kind kind, const char *help)
{
	t->family = name;
	put_text(t, "# HELP ");
	put_text(t, name);
	put_text(t, " ");
	put_text(t, help);
	put_text(t, "\n# TYPE ");
	put_text(t, name);
	put_text(t, kind == GP_METRIC_COUNTER ? " counter\n" : " gauge\n");
}

/* NULL: the character at `at`, of so many bytes, stays as it is. */
static const char *replaced(const char *at, size_t bytes)
{
	return bytes == 0 ? "?" : *at == '\n' ? "\\n" : *at == '"' ? "\\\"" : *at == '\\' ? "\\\\" : NULL;
}

static bool is_plain(char c)
{
	return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

static void put_value_of_label(struct gp_metric_text *t, const char *value)
{
	const char *from = value; /* of what is written as it is */
	for (const char *at = value; *at;) {
		if (is_plain(*at)) { /* nearly always, and thousands of labels are written several times a second */
			at++;
			continue;
		}
		const size_t bytes = gp_utf8_character(at);
		const char *other = replaced(at, bytes);
		at += bytes > 0 ? bytes : 1;
		if (!other)
			continue;
		put(t, from, (size_t)(at - (bytes > 0 ? bytes : 1) - from));
		put_text(t, other);
		from = at;
	}
	put_text(t, from);
}

static void begin_sample(struct gp_metric_text *t, const struct gp_metric_label *label, int count)
{
	put_text(t, t->family);
	for (int i = 0; i < count; i++) {
		put_text(t, i == 0 ? "{" : ",");
		put_text(t, label[i].name);
		put_text(t, "=\"");
		put_value_of_label(t, label[i].value);
		put_text(t, "\"");
	}
	put_text(t, count > 0 ? "} " : " ");
}

void gp_metric_sample(struct gp_metric_text *t, const struct gp_metric_label *label, int count, double value)
{
	char text[40];
	if (isnan(value))
		snprintf(text, sizeof text, "NaN\n");
	else if (isinf(value))
		snprintf(text, sizeof text, value > 0 ? "+Inf\n" : "-Inf\n");
	else
		snprintf(text, sizeof text, "%.10g\n", value);
	begin_sample(t, label, count);
	put_text(t, text);
}

/* Writes at least so many digits, with zeros in front, so that the last one lies before `end`; returns the first. What
 * snprintf does, in a tenth of its time. */
static char *write_digits(uint64_t value, int least, char *end)
{
	char *at = end;
	for (; value > 0 || least > 0; value /= 10, least--)
		*--at = (char)('0' + value % 10);
	return at;
}

void gp_metric_count(struct gp_metric_text *t, const struct gp_metric_label *label, int count, uint64_t value)
{
	char text[24], *const end = text + sizeof text;
	end[-1] = '\n';
	const char *first = write_digits(value, 1, end - 1);
	begin_sample(t, label, count);
	put(t, first, (size_t)(end - first));
}

void gp_metric_seconds(struct gp_metric_text *t, const struct gp_metric_label *label, int count, uint64_t ns)
{
	char text[40], *const end = text + sizeof text, *const fraction = end - 10;
	end[-1] = '\n';
	write_digits(ns % 1000000000, 9, end - 1);
	fraction[-1] = '.';
	const char *first = write_digits(ns / 1000000000, 1, fraction - 1);
	begin_sample(t, label, count);
	put(t, first, (size_t)(end - first));
}

enum gp_status gp_metric_text_check(const struct gp_metric_text *t, struct gp_err *err)
{
	if (t->no_memory)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu bytes of figures", t->length);
	if (t->too_long)
		GP_FAIL(err, GP_NOMEM, "the figures would come to more than %u bytes", GP_METRIC_TEXT_MOST);
	return GP_OK;
}
