/* SPDX-License-Identifier: Apache-2.0
 *
 * A strict reader of Prometheus' text format for tests, written from its description (prometheus.io, "Exposition formats")
 * and not from the code that writes it. What it does not take fails the test with the line. It asks for more than the format:
 * HELP and TYPE before every family's samples, counters that end with _total and are not negative, and no sample twice.
 * Not a test by itself.
 */
#ifndef GP_TEST_METRIC_PARSER_H
#define GP_TEST_METRIC_PARSER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/mem.h"

#define PARSED_NAME   128
#define PARSED_LABELS 8
#define PARSED_VALUE  512

struct parsed_label {
	char name[PARSED_NAME], value[PARSED_VALUE]; /* value: unescaped */
};

struct parsed_sample {
	char name[PARSED_NAME];
	struct parsed_label label[PARSED_LABELS];
	int labels;
	double value;
	char line[1024]; /* up to the value: what must be there once */
};

struct parsed {
	struct parsed_sample *sample;
	int samples, room, families;
	char family[512][PARSED_NAME];
	bool counter[512];
};

static inline void parsed_free(struct parsed *p)
{
	gp_free(p->sample);
}

static inline const char *parse_name(const char *at, char out[PARSED_NAME], bool label)
{
	size_t n = 0;
	if (!isalpha((unsigned char)*at) && *at != '_' && (label || *at != ':'))
		fail_msg("no name begins at '%.60s'", at);
	while (isalnum((unsigned char)*at) || *at == '_' || (!label && *at == ':')) {
		assert_true(n < PARSED_NAME - 1);
		out[n++] = *at++;
	}
	out[n] = '\0';
	return at;
}

static inline const char *parse_value_of_label(const char *at, char out[PARSED_VALUE])
{
	size_t n = 0;
	assert_int_equal(*at++, '"');
	while (*at != '"') {
		char c = *at++;
		if (c == '\n' || c == '\0')
			fail_msg("a label's value is not closed");
		if (c == '\\') {
			const char e = *at++;
			if (e != 'n' && e != '"' && e != '\\')
				fail_msg("the escape \\%c is none", e);
			c = e == 'n' ? '\n' : e;
		}
		assert_true(n < PARSED_VALUE - 1);
		out[n++] = c;
	}
	out[n] = '\0';
	return at + 1;
}

static inline const char *parse_labels(const char *at, struct parsed_sample *s)
{
	while (*at != '}') {
		assert_true(s->labels < PARSED_LABELS);
		struct parsed_label *l = &s->label[s->labels++];
		at = parse_name(at, l->name, true);
		assert_int_equal(*at++, '=');
		at = parse_value_of_label(at, l->value);
		for (int i = 0; i < s->labels - 1; i++)
			assert_string_not_equal(s->label[i].name, l->name);
		if (*at == ',')
			at++;
		else if (*at != '}')
			fail_msg("'%.20s' stands behind a label", at);
	}
	return at + 1;
}

static inline void parse_number(const char *at, const char *end, double *out)
{
	char text[64], *rest;
	assert_true(end > at && (size_t)(end - at) < sizeof text);
	memcpy(text, at, (size_t)(end - at));
	text[end - at] = '\0';
	if (isspace((unsigned char)text[0]))
		fail_msg("more than one blank before '%s'", text);
	*out = strtod(text, &rest);
	if (*rest)
		fail_msg("'%s' is no number", text);
}

static inline int parsed_family(const struct parsed *p, const char *name)
{
	for (int i = 0; i < p->families; i++)
		if (strcmp(p->family[i], name) == 0)
			return i;
	return -1;
}

static inline void parse_sample(struct parsed *p, const char *line, const char *end)
{
	struct parsed_sample s = {.labels = 0};
	const char *at = parse_name(line, s.name, false);
	if (*at == '{')
		at = parse_labels(at + 1, &s);
	if (*at++ != ' ')
		fail_msg("no blank before the value: '%.*s'", (int)(end - line), line);
	parse_number(at, end, &s.value);
	if (p->families == 0 || strcmp(p->family[p->families - 1], s.name) != 0)
		fail_msg("a sample of %s stands outside its family", s.name);
	if (p->counter[p->families - 1] && !(s.value >= 0))
		fail_msg("the counter %s is %g", s.name, s.value);
	assert_true((size_t)(at - line) < sizeof s.line);
	memcpy(s.line, line, (size_t)(at - line));
	for (int i = 0; i < p->samples; i++)
		if (strcmp(p->sample[i].line, s.line) == 0)
			fail_msg("%s is there twice", s.line);
	if (p->samples == p->room) {
		p->room = p->room ? 2 * p->room : 256;
		p->sample = gp_realloc(p->sample, (size_t)p->room, sizeof *p->sample);
		assert_non_null(p->sample);
	}
	p->sample[p->samples++] = s;
}

/* "# HELP name text" begins a family, and "# TYPE name counter|gauge" follows at once. */
static inline const char *parse_family(struct parsed *p, const char *line, const char *end)
{
	char help[PARSED_NAME], type[PARSED_NAME];
	const char *at = parse_name(line + 7, help, false);
	assert_int_equal(strncmp(line, "# HELP ", 7), 0);
	assert_true(*at == ' ' && at + 1 < end);
	line = end + 1;
	if (strncmp(line, "# TYPE ", 7) != 0)
		fail_msg("no TYPE behind the HELP of %s", help);
	at = parse_name(line + 7, type, false);
	assert_string_equal(type, help);
	end = strchr(line, '\n');
	assert_non_null(end);
	const bool counter = strncmp(at, " counter\n", 9) == 0;
	if (!counter && strncmp(at, " gauge\n", 7) != 0)
		fail_msg("%s is of no type that is known here", help);
	const size_t n = strlen(help);
	if (counter != (n > 6 && strcmp(help + n - 6, "_total") == 0))
		fail_msg("%s: a counter's name ends with _total, and no other's", help);
	if (parsed_family(p, help) >= 0)
		fail_msg("the family %s is there twice", help);
	assert_true(p->families < 512);
	strcpy(p->family[p->families], help);
	p->counter[p->families++] = counter;
	return end;
}

/* `text` has a NUL behind it. */
static inline void parse_metrics(struct parsed *p, const char *text)
{
	memset(p, 0, sizeof *p);
	while (*text) {
		const char *end = strchr(text, '\n');
		if (!end)
			fail_msg("the last line has no end: '%.60s'", text);
		if (*text == '#')
			end = parse_family(p, text, end);
		else
			parse_sample(p, text, end);
		text = end + 1;
	}
}

/* The sample whose line begins so: "name{a=\"b\"} ". NULL: there is none. */
static inline const struct parsed_sample *parsed_find(const struct parsed *p, const char *line)
{
	for (int i = 0; i < p->samples; i++)
		if (strncmp(p->sample[i].line, line, strlen(line)) == 0 && p->sample[i].line[strlen(line)] == ' ')
			return &p->sample[i];
	return NULL;
}

static inline double parsed_value(const struct parsed *p, const char *line)
{
	const struct parsed_sample *s = parsed_find(p, line);
	if (!s)
		fail_msg("there is no %s", line);
	return s->value;
}

#endif
