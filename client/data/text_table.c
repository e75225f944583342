/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_table.h. Test: tests/unit/test_data_texts.c
 */
#include "client/data/text_table.h"

#include <string.h>

#include "client/text/text_file.h"
#include "common/base/mem.h"
#include "common/base/value.h"

enum { TEXT, PAIR, LABEL, WANTED };
enum { LINES_MOST = 1 << 26 };

/* The columns that are wanted, counted from 0; -1: that one is not. */
struct columns {
	int at[WANTED];
};

static bool is_number(const char *name)
{
	return name[0] && strspn(name, "0123456789") == strlen(name);
}

/* The column of that name in the first line, -1 when it is not there. */
static int find_name(struct gp_text header, const char *name)
{
	struct gp_text cell;
	for (int i = 0; gp_text_cut(&header, '\t', &cell); i++)
		if (gp_text_is(cell, name))
			return i;
	return -1;
}

static enum gp_status find_column(struct gp_text header, const char *name, bool has_header, int *out,
				  struct gp_err *err)
{
	char shown[GP_SHOWN];
	*out = -1;
	if (!name)
		return GP_OK;
	if (has_header)
		*out = find_name(header, name);
	if (*out < 0 && is_number(name)) {
		const struct gp_value_form form = {.type = GP_VALUE_INT, .min = 1, .max = GP_TABLE_COLUMNS_MAX};
		char why[GP_VALUE_WHY];
		union gp_value v;
		if (!gp_value_parse(&form, gp_text_of(name), &v, why))
			GP_FAIL(err, GP_USAGE, "column '%.40s': there are columns 1 to %d", name, GP_TABLE_COLUMNS_MAX);
		*out = (int)v.whole - 1;
	}
	if (*out < 0 && !has_header)
		GP_FAIL(err, GP_USAGE,
			"column '%.40s': header=0 says that no line has the columns' names; give the column's number",
			name);
	if (*out < 0)
		GP_FAIL(err, GP_INVALID, "no column is named '%.40s'; the first line is '%s'", name,
			gp_text_shown(header, shown));
	return GP_OK;
}

static enum gp_status find_columns(struct gp_text header, const struct gp_table_form *form, struct columns *c,
				   struct gp_err *err)
{
	const char *const name[WANTED] = {form->text, form->pair, form->label};
	for (int i = 0; i < WANTED; i++)
		GP_TRY(find_column(header, name[i], form->header, &c->at[i], err));
	return GP_OK;
}

/* The cells that are wanted of a line. */
static enum gp_status read_row(struct gp_text line, const struct columns *c, const struct gp_table_form *form,
			       struct gp_text cell[WANTED], struct gp_err *err)
{
	const char *const name[WANTED] = {form->text, form->pair, form->label};
	struct gp_text each;
	memset(cell, 0, WANTED * sizeof *cell);
	for (int i = 0; gp_text_cut(&line, '\t', &each); i++)
		for (int k = 0; k < WANTED; k++)
			if (c->at[k] == i)
				cell[k] = each;
	for (int k = 0; k < WANTED; k++) {
		if (c->at[k] >= 0 && !cell[k].at)
			GP_FAIL(err, GP_INVALID, "the row has no column %d ('%.40s')", c->at[k] + 1, name[k]);
		if (c->at[k] >= 0 && cell[k].len == 0)
			GP_FAIL(err, GP_INVALID, "column %d ('%.40s') is empty", c->at[k] + 1, name[k]);
	}
	return GP_OK;
}

static uint32_t count_lines(struct gp_text text)
{
	uint32_t lines = 1; /* the file has no more than GP_TABLE_BYTES_MAX of them */
	for (size_t i = 0; i < text.len; i++)
		lines += text.at[i] == '\n';
	return lines;
}

static enum gp_status read_rows(struct gp_table *t, const char *path, struct gp_text rest,
				const struct gp_table_form *form, struct gp_err *err)
{
	struct columns c;
	struct gp_text line, cell[WANTED];
	const struct gp_text all = rest;
	uint32_t number = 0;
	if (!gp_text_line(&rest, &line))
		GP_FAIL(err, GP_INVALID, "%s: the file is empty", path);
	if (find_columns(line, form, &c, err) != GP_OK)
		return gp_err_prefix(err, "%s", path);
	if (form->header)
		number = 1;
	else
		rest = all;
	while (gp_text_line(&rest, &line)) {
		number++;
		if (line.len == 0)
			continue;
		if (read_row(line, &c, form, cell, err) != GP_OK)
			return gp_err_prefix(err, "%s:%u", path, number);
		t->row[t->rows++] = (struct gp_table_row){cell[TEXT], cell[PAIR], cell[LABEL], number};
	}
	if (t->rows == 0)
		GP_FAIL(err, GP_INVALID, "%s: there is no row in it", path);
	return GP_OK;
}

enum gp_status gp_table_read(const char *path, const struct gp_table_form *form, struct gp_table *out,
			     struct gp_err *err)
{
	struct gp_table t = {0};
	size_t bytes;
	void *rows;
	GP_TRY(gp_text_file_read(path, GP_TABLE_BYTES_MAX, &t.memory, &bytes, err));
	struct gp_text text = {t.memory, bytes};
	enum gp_status status = gp_text_unmark(path, &text, err); /* some spreadsheets write one */
	const uint32_t lines = count_lines(text);
	if (status == GP_OK && lines > LINES_MOST)
		status = gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__, "%s has %u lines; at most %d can be read",
				    path, lines, LINES_MOST);
	if (status == GP_OK)
		status = gp_alloc_array(&rows, lines, sizeof *t.row, err);
	if (status == GP_OK) {
		t.row = rows;
		status = read_rows(&t, path, text, form, err);
	}
	if (status != GP_OK) {
		gp_table_deinit(&t);
		return status;
	}
	*out = t;
	return GP_OK;
}

void gp_table_deinit(struct gp_table *t)
{
	gp_free(t->row);
	gp_free(t->memory);
	*t = (struct gp_table){0};
}
