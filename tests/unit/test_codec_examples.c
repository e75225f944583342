/* SPDX-License-Identifier: Apache-2.0
 *
 * The hex examples of common/CODECS.md are what the code writes and reads. A
 * block begins with "```hex SPEC of NUMBER ... NUMBER" (a tensor of one
 * dimension) or "```hex SPEC of AxBxC NUMBER ...": its bytes are the payload; 9*NUMBER is a number
 * that comes 9 times. With "read" before the spec they are only read, because a library chooses how to write them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/codec/codec.h"

enum { MOST = 256 };

struct example {
	char spec[GP_CODEC_SPEC_MAX];
	struct gp_shape shape;
	float x[MOST];
	int n;
	uint8_t payload[1024];
	size_t len;
	bool read_only;
};

static bool parse_shape(const char *word, struct gp_shape *shape)
{
	if (!strchr(word, 'x'))
		return false;
	for (; *word; word += *word == 'x') {
		char *end;
		shape->dim[shape->ndim++] = strtol(word, &end, 10);
		word = end;
	}
	return true;
}

/* "NUMBER" or "TIMES*NUMBER". */
static void parse_number(const char *word, struct example *e)
{
	const char *star = strchr(word, '*');
	const long times = star ? strtol(word, NULL, 10) : 1;
	assert_true(times > 0 && times <= MOST - e->n);
	for (long i = 0; i < times; i++)
		e->x[e->n++] = strtof(star ? star + 1 : word, NULL);
}

static void parse_title(char *line, struct example *e)
{
	*e = (struct example){0};
	char *word = strtok(line, " \n");
	if (strcmp(word, "read") == 0) {
		e->read_only = true;
		word = strtok(NULL, " \n");
	}
	snprintf(e->spec, sizeof e->spec, "%s", word);
	word = strtok(NULL, " \n");
	assert_string_equal(word, "of");
	while ((word = strtok(NULL, " \n"))) {
		if (e->n == 0 && e->shape.ndim == 0 && parse_shape(word, &e->shape))
			continue;
		parse_number(word, e);
	}
	if (e->shape.ndim == 0)
		e->shape = (struct gp_shape){.ndim = 1, .dim = {e->n}};
	assert_int_equal(gp_shape_elements(&e->shape), e->n);
}

static void parse_bytes(const char *line, struct example *e)
{
	while (*line && *line != '#' && *line != '\n') {
		char *end;
		const unsigned long byte = strtoul(line, &end, 16);
		if (end == line)
			break;
		assert_true(byte < 256 && e->len < sizeof e->payload);
		e->payload[e->len++] = (uint8_t)byte;
		line = end + strspn(end, " ");
	}
}

static void check_written(struct gp_codec *c, const struct example *e)
{
	struct gp_err err = {0};
	uint8_t out[2048];
	size_t len;
	assert_int_equal(gp_codec_encode(c, e->x, 0, out, sizeof out, &len, &err), GP_OK);
	if (len != e->len || memcmp(out, e->payload, len) != 0) {
		print_error("%s gives", e->spec);
		for (size_t i = 0; i < len; i++)
			print_error(" %02x", out[i]);
		print_error("\n");
	}
	assert_int_equal(len, e->len);
	assert_memory_equal(out, e->payload, len);
}

static void check(const struct example *e)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c;
	float y[MOST];
	assert_int_equal(gp_codec_spec_parse(e->spec, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, &e->shape, 0, &c, &err), GP_OK);
	if (!e->read_only)
		check_written(c, e);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){e->payload, e->len}, y, &err), GP_OK);
	if (gp_codec_spec_lossless(&spec))
		assert_memory_equal(y, e->x, (size_t)e->n * sizeof *y);
	gp_codec_free(c);
}

static void examples_are_what_the_code_writes_and_reads(void **state)
{
	(void)state;
	static struct example e;
	char line[512];
	bool inside = false;
	int count = 0;
	FILE *f = fopen("common/CODECS.md", "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f)) {
		if (strncmp(line, "```hex ", 7) == 0) {
			parse_title(line + 7, &e);
			inside = true;
		} else if (inside && strncmp(line, "```", 3) == 0) {
			check(&e);
			count++;
			inside = false;
		} else if (inside) {
			parse_bytes(line, &e);
		}
	}
	fclose(f);
	assert_false(inside);
	assert_true(count >= 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(examples_are_what_the_code_writes_and_reads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
