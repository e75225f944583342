/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_lines.h. Test: tests/unit/test_data_texts.c
 */
#include "client/data/text_lines.h"

#include <string.h>
#include <unistd.h>

#include "client/text/text_file.h"
#include "client/text/tokenizer.h"
#include "client/text/utf8.h"
#include "common/base/durable.h"
#include "common/base/mem.h"

#define A_LINE ": a line has one text, or two with a tab between them"
enum { LINES_MOST = 1 << 26, READ_STEP = 1 << 16 };

static enum gp_status grow(char **text, size_t *room, size_t used, struct gp_err *err)
{
	if (*room - used >= READ_STEP)
		return GP_OK;
	if (used > GP_TABLE_BYTES_MAX)
		GP_FAIL(err, GP_INVALID, "standard input has more than %zu bytes", GP_TABLE_BYTES_MAX);
	char *larger = gp_realloc(*text, 2 * *room + READ_STEP, 1);
	if (!larger)
		GP_FAIL(err, GP_NOMEM, "out of memory for standard input");
	*text = larger;
	*room = 2 * *room + READ_STEP;
	return GP_OK;
}

static enum gp_status read_input(char **out, size_t *bytes, struct gp_err *err)
{
	char *text = NULL;
	size_t room = 0, used = 0;
	ssize_t n = 0;
	enum gp_status status;
	while ((status = grow(&text, &room, used, err)) == GP_OK &&
	       (n = read(STDIN_FILENO, text + used, READ_STEP)) > 0)
		used += (size_t)n;
	if (status == GP_OK && n < 0)
		status = gp_fail_os(err, GP_IO, "read", "standard input");
	if (status != GP_OK) {
		gp_free(text);
		return status;
	}
	*out = text;
	*bytes = used;
	return GP_OK;
}

_Static_assert(GP_TEXT_BYTES_MAX == 1048576, "a message names it");

/* What is wrong with the line, NULL: it is a text or two. */
static const char *fault_of(struct gp_text line, const struct gp_table_row *row)
{
	if (line.len > GP_TEXT_BYTES_MAX)
		return "a text of more than 1048576 bytes";
	if (!row->pair.at)
		return gp_utf8_is_blank(row->text) ? "nothing but spaces" : NULL;
	if (memchr(row->pair.at, '\t', row->pair.len))
		return "more than one tab" A_LINE;
	if (gp_utf8_is_blank(row->text))
		return "nothing stands before the tab" A_LINE;
	return gp_utf8_is_blank(row->pair) ? "nothing stands behind the tab" A_LINE : NULL;
}

static enum gp_status add_bad(struct gp_text_lines *l, const char *path, uint32_t number, const char *why,
			      struct gp_err *err)
{
	struct gp_bad_line *grown = l->bad;
	if ((l->bad_count & (l->bad_count - 1)) == 0) /* it is full: it has room for a power of two */
		grown = gp_realloc(l->bad, l->bad_count ? 2 * (size_t)l->bad_count : 1, sizeof *grown);
	if (!grown)
		GP_FAIL(err, GP_NOMEM, "out of memory for a list of %u bad lines", l->bad_count + 1);
	l->bad = grown;
	struct gp_bad_line *bad = &l->bad[l->bad_count++];
	*bad = (struct gp_bad_line){path, why, number, l->table.rows};
	return GP_OK;
}

static enum gp_status take_line(struct gp_text_lines *l, const char *path, uint32_t number, struct gp_text line,
				struct gp_err *err)
{
	struct gp_table_row row = {.pair = line, .line = number};
	gp_text_cut(&row.pair, '\t', &row.text);
	const char *const why = fault_of(line, &row);
	if (why)
		return add_bad(l, path, number, why, err);
	l->table.row[l->table.rows] = row;
	l->path[l->table.rows++] = path;
	return GP_OK;
}

static uint32_t count_lines(struct gp_text text)
{
	struct gp_text line;
	uint32_t lines = 0;
	while (gp_text_line(&text, &line))
		lines++;
	return lines;
}

static enum gp_status add_lines(struct gp_text_lines *l, const char *path, struct gp_text text, struct gp_err *err)
{
	struct gp_table *t = &l->table;
	GP_TRY(gp_text_check(path, &text, err));
	const uint32_t lines = count_lines(text);
	struct gp_text line;
	uint32_t number = 0;
	if (lines > LINES_MOST - t->rows - l->bad_count)
		GP_FAIL(err, GP_INVALID, "%s: more than %d lines", path, LINES_MOST);
	struct gp_table_row *row = gp_realloc(t->row, (size_t)t->rows + lines + 1, sizeof *row);
	if (row)
		t->row = row;
	const char **places = gp_realloc(l->path, (size_t)t->rows + lines + 1, sizeof *places);
	if (places)
		l->path = places;
	if (!row || !places)
		GP_FAIL(err, GP_NOMEM, "out of memory for %u lines", lines);
	while (gp_text_line(&text, &line)) {
		number++;
		if (line.len == 0)
			continue;
		GP_TRY(take_line(l, path, number, line, err));
	}
	return GP_OK;
}

static enum gp_status read_all(struct gp_text_lines *l, const char *const *path, int count, struct gp_err *err)
{
	void *memory;
	GP_TRY(gp_alloc_array(&memory, (size_t)count, sizeof *l->memory, err));
	l->memory = memory;
	for (; l->files < count; l->files++) {
		const char *name = path[l->files];
		char *text;
		size_t bytes;
		if (strcmp(name, GP_STANDARD_INPUT) == 0)
			GP_TRY(read_input(&text, &bytes, err));
		else
			GP_TRY(gp_text_file_read(name, GP_TABLE_BYTES_MAX, &text, &bytes, err));
		l->memory[l->files] = text;
		GP_TRY(add_lines(l, name, (struct gp_text){text, bytes}, err));
	}
	if (l->table.rows == 0 && l->bad_count == 0)
		GP_FAIL(err, GP_INVALID, "there is no text in %s",
			strcmp(path[0], GP_STANDARD_INPUT) == 0 ? "standard input" : path[0]);
	return GP_OK;
}

enum gp_status gp_text_lines_read(const char *const *path, int count, struct gp_text_lines *out, struct gp_err *err)
{
	struct gp_text_lines l = {0};
	gp_require(count >= 1);
	if (read_all(&l, path, count, err) != GP_OK) {
		l.files = count;
		gp_text_lines_deinit(&l);
		return err->code;
	}
	*out = l;
	return GP_OK;
}

void gp_text_lines_deinit(struct gp_text_lines *l)
{
	for (int i = 0; l->memory && i < l->files; i++)
		gp_free(l->memory[i]);
	gp_free(l->memory);
	gp_free(l->path);
	gp_free(l->bad);
	gp_free(l->table.row);
	*l = (struct gp_text_lines){0};
}
