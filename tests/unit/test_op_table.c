/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ops (common/graph/op_table.h) and their definitions say the same
 * as the table of PROTOCOL.md section 8: ids, names, numbers of inputs, and the
 * names of attributes in their order.
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/graph/op.h"

enum { ROWS_MAX = 64, CELLS = 5 };

/* One op of a row "| id | operation | inputs | outputs | attributes |" of the page. */
struct row {
	int id, inputs_min, inputs_max;
	char name[32], attributes[256];
};

static struct row rows[ROWS_MAX];
static int row_count;

static char *trim(char *s)
{
	while (isspace((unsigned char)*s))
		s++;
	for (size_t n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--)
		s[n - 1] = '\0';
	return s;
}

/* "2 to 64", or a number with anything behind it. */
static void read_inputs(const char *text, struct row *r)
{
	r->inputs_min = atoi(text);
	if (sscanf(text, "%*d to %d", &r->inputs_max) != 1)
		r->inputs_max = r->inputs_min;
}

/* "| 4, 5 | relu, relu6 | ..." adds a row for each of the two. */
static void add_line(char *line)
{
	char *cell[CELLS], *at = line + 1, *id, *name, *ids, *names;
	for (int i = 0; i < CELLS; i++) {
		cell[i] = strsep(&at, "|");
		assert_non_null(at);
		cell[i] = trim(cell[i]);
	}
	id = strtok_r(cell[0], ",", &ids);
	name = strtok_r(cell[1], ",", &names);
	for (; id && name; id = strtok_r(NULL, ",", &ids), name = strtok_r(NULL, ",", &names)) {
		struct row *r = &rows[row_count++];
		assert_true(row_count <= ROWS_MAX);
		r->id = atoi(id);
		snprintf(r->name, sizeof r->name, "%s", trim(name));
		snprintf(r->attributes, sizeof r->attributes, "%s", cell[4]);
		read_inputs(cell[2], r);
	}
	assert_true(!id && !name);
}

static int read_page(void **state)
{
	(void)state;
	char line[512];
	bool inside = false;
	FILE *f = fopen("proto/PROTOCOL.md", "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof line, f)) {
		if (strncmp(line, "| id | operation |", 18) == 0)
			inside = true;
		else if (inside && line[0] != '|')
			inside = false;
		else if (inside && strncmp(line, "|---", 4) != 0)
			add_line(line);
	}
	fclose(f);
	return row_count > 0 ? 0 : -1;
}

static const struct row *row_of(int id)
{
	for (int i = 0; i < row_count; i++)
		if (rows[i].id == id)
			return &rows[i];
	fail_msg("section 8 has no row for %d, %s", id, gp_op_name((enum gp_op)id));
	return NULL;
}

/* The text behind `name`, where that stands in `text` as a word. */
static const char *behind_word(const char *text, const char *name)
{
	const size_t n = strlen(name);
	for (const char *p = strstr(text, name); p; p = strstr(p + 1, name))
		if ((p == text || !isalnum((unsigned char)p[-1])) && !isalnum((unsigned char)p[n]) && p[n] != '_')
			return p + n;
	return NULL;
}

/* "as conv2d; ...": the attributes of the op that is named there. */
static const char *attributes_of(const struct row *r)
{
	if (strncmp(r->attributes, "as ", 3) != 0)
		return r->attributes;
	for (int i = 0; i < row_count; i++)
		if (behind_word(r->attributes + 3, rows[i].name) == r->attributes + 3 + strlen(rows[i].name))
			return rows[i].attributes;
	fail_msg("%s: section 8 says \"%s\"", r->name, r->attributes);
	return NULL;
}

static void every_op_is_as_the_page_says(void **state)
{
	(void)state;
	for (int id = 1; id < GP_OP_COUNT; id++) {
		const struct gp_op_def *def = gp_op_def((enum gp_op)id);
		if (!def)
			continue;
		const struct row *r = row_of(id);
		const char *at = attributes_of(r);
		assert_string_equal(def->name, r->name);
		assert_int_equal(def->inputs_min, r->inputs_min);
		assert_int_equal(def->inputs_max, r->inputs_max);
		for (int i = 0; i < def->attrs; i++) {
			at = behind_word(at, def->attr[i].name);
			if (!at)
				fail_msg("%s: section 8 has no attribute %s at its place", r->name, def->attr[i].name);
			assert_int_equal(strncmp(at, " r", 2) == 0, def->attr[i].real);
		}
	}
}

static void the_page_has_no_other_ops(void **state)
{
	(void)state;
	for (int i = 0; i < row_count; i++) {
		if (!gp_op_def((enum gp_op)rows[i].id))
			fail_msg("section 8 has %d, %s, which is no op", rows[i].id, rows[i].name);
		for (int j = 0; j < i; j++)
			assert_int_not_equal(rows[i].id, rows[j].id);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_op_is_as_the_page_says),
		cmocka_unit_test(the_page_has_no_other_ops),
	};
	return cmocka_run_group_tests(tests, read_page, NULL);
}
