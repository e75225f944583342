/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any file gives rows whose texts lie within it and are not empty, or
 * one line of error and nothing left allocated (client/data/text_table.h).
 * Input: one byte, which columns are wanted; then the file.
 */
#include "tests/fuzz/memory_file.h"

#include "client/data/text_table.h"

static bool judge(void *arg, const struct gp_table_row *row, char why[GP_TABLE_WHY])
{
	(void)arg;
	snprintf(why, GP_TABLE_WHY, "odd");
	return row->line % 2 == 0;
}

static void count(void *arg, uint32_t line, const char *why)
{
	uint32_t *told = arg;
	gp_require(line > 0 && why[0]);
	++*told;
}

/* `good`: rows that gp_table_read has found, all of them good; 0: it has found none, or a bad one. */
static void read_watched(const char *path, const struct gp_table_form *form, uint32_t good)
{
	uint32_t told = 0;
	const struct gp_table_watch watch = {judge, count, &told};
	struct gp_table t = {0};
	struct gp_err err = {0};
	if (gp_table_read_watched(path, form, &watch, &t, &err) != GP_OK)
		gp_require(good == 0 && err.text[0] && !t.memory);
	else
		gp_require(good == 0 || t.rows + told == good);
	for (uint32_t i = 0; i < t.rows; i++)
		gp_require(t.row[i].line % 2 == 0);
	gp_table_deinit(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct gp_text *t, bool wanted)
{
	gp_require(wanted == (t->at != NULL) && wanted == (t->len > 0));
	for (size_t i = 0; i < t->len; i++)
		gp_require(t->at[i] != '\n' && t->at[i] != '\t');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const column[] = {"1", "2", "a", "sentence"};
	struct gp_table t = {0};
	struct gp_err err = {0};
	char path[32];
	if (size < 1)
		return 0;
	const bool pair = data[0] & 64;
	const struct gp_table_form form = {column[data[0] & 3], pair ? column[data[0] >> 4 & 3] : NULL,
					   column[data[0] >> 2 & 3], data[0] & 128};
	const int fd = memory_file(data + 1, size - 1, path);
	if (gp_table_read(path, &form, &t, &err) == GP_OK) {
		gp_require(t.rows > 0);
		for (uint32_t i = 0; i < t.rows; i++) {
			check(&t.row[i].text, true);
			check(&t.row[i].pair, pair);
			check(&t.row[i].label, true);
		}
	} else {
		gp_require(err.text[0] && !t.memory && !t.row);
	}
	read_watched(path, &form, t.rows);
	gp_table_deinit(&t);
	close(fd);
	return 0;
}
