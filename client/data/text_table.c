/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_table.h. Test: tests/unit/test_data_texts.c
 */
#include "client/data/text_table.h"

#include <string.h>

#include "client/text/text_file.h"
#include "client/text/tokenizer.h"
#include "client/text/utf8.h"
#include "common/base/mem.h"
#include "common/base/value.h"

enum { TEXT, PAIR, LABEL, WANTED };
enum { LINES_MOST = 1 << 26 };

static const char *const use[WANTED] = {"text", "pair", "label"}; /* the keys of the dataset's text */

/* The columns that are wanted, counted from 0; -1: that one is not. `count`: that every row has, as the first line. */
struct columns {
	int at[WANTED], count;
};

static bool is_number(const char *name)
{
	return name[0] && strspn(name, "0123456789") == strlen(name);
}

/* The column of that name in the first line, -1 when it is not there. */
static enum gp_status find_name(struct gp_text header, const char *name, int *out, struct gp_err *err)
{
	struct gp_text cell;
	*out = -1;
	for (int i = 0; gp_text_cut(&header, '\t', &cell); i++) {
		if (!gp_text_is(cell, name))
			continue;
		if (*out >= 0)
			GP_FAIL(err, GP_INVALID, "columns %d and %d are both named '%s'; give the column's number",
				*out + 1, i + 1, name);
		*out = i;
	}
	return GP_OK;
}

static int count_cells(struct gp_text line)
{
	struct gp_text cell;
	int count = 0;
	while (gp_text_cut(&line, '\t', &cell))
		count++;
	return count;
}

static enum gp_status no_such_column(struct gp_text header, const char *name, struct gp_err *err)
{
	enum { LIST = 200 };
	char list[LIST + 2 * GP_SHOWN] = "", shown[GP_SHOWN];
	struct gp_text cell;
	for (int i = 0; strlen(list) < LIST && gp_text_cut(&header, '\t', &cell); i++)
		gp_text_append(list, sizeof list, "%s'%s'", i ? ", " : "", gp_text_shown(cell, shown));
	if (header.at)
		gp_text_append(list, sizeof list, ", ...");
	GP_FAIL(err, GP_INVALID, "no column is named '%.40s'; the first line has %s", name, list);
}

static enum gp_status find_column(struct gp_text header, int columns, const char *name, bool has_header, int *out,
				  struct gp_err *err)
{
	*out = -1;
	if (!name)
		return GP_OK;
	if (has_header)
		GP_TRY(find_name(header, name, out, err));
	if (*out < 0 && is_number(name)) {
		const struct gp_value_form form = {.type = GP_VALUE_INT, .min = 1, .max = columns};
		char why[GP_VALUE_WHY];
		union gp_value v;
		if (!gp_value_parse(&form, gp_text_of(name), &v, why))
			GP_FAIL(err, GP_INVALID, "there is no column '%.40s'; the first line has %d, counted from 1",
				name, columns);
		*out = (int)v.whole - 1;
	}
	if (*out < 0 && !has_header)
		GP_FAIL(err, GP_USAGE,
			"column '%.40s': header=0 says that no line has the columns' names; give the column's number",
			name);
	if (*out < 0)
		return no_such_column(header, name, err);
	return GP_OK;
}

static enum gp_status find_columns(struct gp_text header, const struct gp_table_form *form, struct columns *c,
				   struct gp_err *err)
{
	const char *const name[WANTED] = {form->text, form->pair, form->label};
	c->count = count_cells(header);
	for (int i = 0; i < WANTED; i++) {
		GP_TRY(find_column(header, c->count, name[i], form->header, &c->at[i], err));
		for (int k = 0; k < i; k++)
			if (c->at[i] >= 0 && c->at[k] == c->at[i])
				GP_FAIL(err, GP_USAGE, "%s= and %s= name the same column, %d", use[k], use[i],
					c->at[i] + 1);
	}
	return GP_OK;
}

/* The cells that are wanted of a line. */
static enum gp_status read_row(struct gp_text line, const struct columns *c, const struct gp_table_form *form,
			       struct gp_text cell[WANTED], struct gp_err *err)
{
	const char *const name[WANTED] = {form->text, form->pair, form->label};
	struct gp_text each;
	int count = 0;
	memset(cell, 0, WANTED * sizeof *cell);
	for (int i = 0; gp_text_cut(&line, '\t', &each); i++, count++)
		for (int k = 0; k < WANTED; k++)
			if (c->at[k] == i)
				cell[k] = each;
	if (count > c->count)
		GP_FAIL(err, GP_INVALID, "the row has %d columns, the first line %d: is there a tab within a text?",
			count, c->count);
	for (int k = 0; k < WANTED; k++) {
		if (c->at[k] < 0)
			continue;
		if (!cell[k].at)
			GP_FAIL(err, GP_INVALID, "the row has no column %d ('%.40s')", c->at[k] + 1, name[k]);
		if (gp_utf8_is_blank(cell[k]))
			GP_FAIL(err, GP_INVALID, "column %d ('%.40s') is %s", c->at[k] + 1, name[k],
				cell[k].len ? "nothing but spaces" : "empty");
		if (cell[k].len > GP_TEXT_BYTES_MAX)
			GP_FAIL(err, GP_INVALID, "column %d ('%.40s') has more than %d bytes", c->at[k] + 1, name[k],
				GP_TEXT_BYTES_MAX);
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

/* Tells of it, where it is. */
static bool is_bad(const struct gp_table_watch *watch, const struct gp_table_row *row, enum gp_status status,
		   const struct gp_err *err)
{
	char why[GP_TABLE_WHY];
	if (status == GP_OK && (!watch->judge || watch->judge(watch->arg, row, why)))
		return false;
	watch->tell(watch->arg, row->line, status == GP_OK ? why : err->text);
	return true;
}

static enum gp_status read_rows(struct gp_table *t, const char *path, struct gp_text rest,
				const struct gp_table_form *form, const struct gp_table_watch *watch,
				struct gp_err *err)
{
	struct columns c;
	struct gp_text line, cell[WANTED];
	const struct gp_text all = rest;
	uint32_t number = 0, bad = 0;
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
		struct gp_err own = {0};
		struct gp_table_row *row = &t->row[t->rows];
		const enum gp_status status = read_row(line, &c, form, cell, watch ? &own : err);
		if (status != GP_OK && !watch)
			return gp_err_prefix(err, "%s:%u", path, number);
		*row = (struct gp_table_row){cell[TEXT], cell[PAIR], cell[LABEL], number};
		if (watch && is_bad(watch, row, status, &own))
			bad++;
		else
			t->rows++;
	}
	if (t->rows + bad == 0)
		GP_FAIL(err, GP_INVALID, "%s: there is no row in it", path);
	return GP_OK;
}

enum gp_status gp_table_read(const char *path, const struct gp_table_form *form, struct gp_table *out,
			     struct gp_err *err)
{
	return gp_table_read_watched(path, form, NULL, out, err);
}

enum gp_status gp_table_read_watched(const char *path, const struct gp_table_form *form,
				     const struct gp_table_watch *watch, struct gp_table *out, struct gp_err *err)
{
	struct gp_table t = {0};
	size_t bytes;
	void *rows;
	GP_TRY(gp_text_file_read(path, GP_TABLE_BYTES_MAX, &t.memory, &bytes, err));
	struct gp_text text = {t.memory, bytes};
	enum gp_status status = gp_text_check(path, &text, err); /* some spreadsheets write one */
	const uint32_t lines = count_lines(text);
	if (status == GP_OK && lines > LINES_MOST)
		status = gp_err_set(err, GP_INVALID, 0, __FILE__, __LINE__, "%s has %u lines; at most %d can be read",
				    path, lines, LINES_MOST);
	if (status == GP_OK)
		status = gp_alloc_array(&rows, lines, sizeof *t.row, err);
	if (status == GP_OK) {
		t.row = rows;
		status = read_rows(&t, path, text, form, watch, err);
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
