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

/* --- samples: thousands of them are written several times a second, so that room is made once for each ------------- */

#define VALUE_ROOM 40 /* a number and the end of its line */

static char *copy(char *at, const char *text)
{
	const size_t length = strlen(text);
	memcpy(at, text, length);
	return at + length;
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

/* At most two bytes for each of `value`. */
static char *copy_value_of_label(char *to, const char *value)
{
	while (*value) {
		if (is_plain(*value)) { /* nearly always */
			*to++ = *value++;
			continue;
		}
		const size_t bytes = gp_utf8_character(value), step = bytes > 0 ? bytes : 1;
		const char *other = replaced(value, bytes);
		if (other)
			to = copy(to, other);
		for (size_t i = 0; !other && i < step; i++)
			*to++ = value[i];
		value += step;
	}
	return to;
}

/* Returns where the value goes, which has VALUE_ROOM; NULL: the text takes nothing more. */
static char *begin_sample(struct gp_metric_text *t, const struct gp_metric_label *label, int count)
{
	size_t most = strlen(t->family) + sizeof "{} " + VALUE_ROOM;
	for (int i = 0; i < count; i++)
		most += strlen(label[i].name) + 2 * strlen(label[i].value) + sizeof ",=\"\"";
	if (!make_room(t, most))
		return NULL;
	char *at = copy(t->text + t->length, t->family);
	for (int i = 0; i < count; i++) {
		*at++ = i == 0 ? '{' : ',';
		at = copy(at, label[i].name);
		*at++ = '=';
		*at++ = '"';
		at = copy_value_of_label(at, label[i].value);
		*at++ = '"';
	}
	if (count > 0)
		*at++ = '}';
	*at++ = ' ';
	return at;
}

/* `value` has `length` bytes, its line's end included. */
static void put_sample(struct gp_metric_text *t, const struct gp_metric_label *label, int count, const char *value,
		       size_t length)
{
	char *at = begin_sample(t, label, count);
	if (!at)
		return;
	memcpy(at, value, length);
	t->length = (size_t)(at + length - t->text);
}

void gp_metric_sample(struct gp_metric_text *t, const struct gp_metric_label *label, int count, double value)
{
	char text[VALUE_ROOM];
	if (isnan(value))
		snprintf(text, sizeof text, "NaN\n");
	else if (isinf(value))
		snprintf(text, sizeof text, value > 0 ? "+Inf\n" : "-Inf\n");
	else
		snprintf(text, sizeof text, "%.10g\n", value);
	put_sample(t, label, count, text, strlen(text));
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
	put_sample(t, label, count, first, (size_t)(end - first));
}

void gp_metric_seconds(struct gp_metric_text *t, const struct gp_metric_label *label, int count, uint64_t ns)
{
	char text[VALUE_ROOM], *const end = text + sizeof text, *const fraction = end - 10;
	end[-1] = '\n';
	write_digits(ns % 1000000000, 9, end - 1);
	fraction[-1] = '.';
	const char *first = write_digits(ns / 1000000000, 1, fraction - 1);
	put_sample(t, label, count, first, (size_t)(end - first));
}

enum gp_status gp_metric_text_check(const struct gp_metric_text *t, struct gp_err *err)
{
	if (t->no_memory)
		GP_FAIL(err, GP_NOMEM, "out of memory for %zu bytes of figures", t->length);
	if (t->too_long)
		GP_FAIL(err, GP_NOMEM, "the figures would come to more than %u bytes", GP_METRIC_TEXT_MOST);
	return GP_OK;
}
