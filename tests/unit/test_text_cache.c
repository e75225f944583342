/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens of texts kept in a file (client/data/text_cache.h): the same rows come
 * back; what belongs to other texts, is damaged or cannot be, is told and made
 * anew. The layout is checked byte by byte by fuzz_text_cache.c.
 */
#include "tests/unit/data_files.h"

#include <glob.h>
#include <unistd.h>

#include "client/data/text_cache.h"
#include "common/base/little_endian.h"

enum { ROWS = 2500, MOST = 12 };

static struct gp_tokenizer *tokenizer;
static char text[ROWS][32];

/* Pairs of texts of many lengths, in three parts of the rows. */
static struct gp_table make_table(void)
{
	struct gp_table t = {.rows = ROWS};
	t.row = calloc(ROWS, sizeof *t.row);
	assert_non_null(t.row);
	for (uint32_t i = 0; i < ROWS; i++) {
		snprintf(text[i], sizeof text[i], "%.*s", (int)(1 + i % 20), "! ? a b c ! ? a b c ! ?");
		t.row[i] = (struct gp_table_row){.text = gp_text_of(text[i]), .line = i + 1};
		if (i % 3 == 0)
			t.row[i].pair = gp_text_of("! a");
	}
	return t;
}

static struct gp_text_rows rows_of(const struct gp_table *t, const struct gp_text_making *how)
{
	struct gp_text_rows rows;
	struct gp_err err = {0};
	if (gp_text_rows_get(tokenizer, "table.tsv", t, MOST, how, &rows, &err) != GP_OK)
		fail_msg("%s", err.text);
	return rows;
}

static void expect_same(const struct gp_text_rows *a, const struct gp_text_rows *b)
{
	assert_int_equal(a->longest, b->longest);
	assert_int_equal(a->cut, b->cut);
	assert_true(a->cut > 0);
	for (uint32_t i = 0; i < ROWS; i++) {
		int n, m;
		const int32_t *x = gp_text_rows_at(a, i, &n), *y = gp_text_rows_at(b, i, &m);
		assert_int_equal(n, m);
		assert_memory_equal(x, y, (size_t)n * sizeof *x);
		assert_int_equal(gp_text_rows_first_segment(a, i), gp_text_rows_first_segment(b, i));
	}
}

/* The only file there, "" where there is none; its name of this test's own. */
static const char *cached(void)
{
	static char path[256];
	glob_t found;
	path[0] = '\0';
	char pattern[128];
	snprintf(pattern, sizeof pattern, "%s/cache/*", data_dir);
	if (glob(pattern, 0, NULL, &found) == 0) {
		assert_int_equal(found.gl_pathc, 1);
		snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
		globfree(&found);
	}
	return path;
}

static uint8_t *read_file(const char *path, size_t *bytes)
{
	char *file;
	struct gp_err err = {0};
	assert_int_equal(gp_text_file_read(path, 1 << 30, &file, bytes, &err), GP_OK);
	return (uint8_t *)file;
}

static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, size, f), size);
	assert_int_equal(fclose(f), 0);
}

static void rows_come_back_as_they_were(void **state)
{
	(void)state;
	char folder[128];
	snprintf(folder, sizeof folder, "%s/cache", data_dir);
	const struct gp_text_making plain = {.threads = 1}, how = {.threads = 2, .cache = folder};
	struct gp_table t = make_table();
	struct gp_text_rows made = rows_of(&t, &plain), kept = rows_of(&t, &how);
	expect_same(&made, &kept);
	assert_true(cached()[0]);
	gp_text_rows_deinit(&kept);
	const struct gp_text_key key = gp_text_key_of(tokenizer, &t, MOST);
	struct gp_err err = {0};
	assert_int_equal(gp_text_cache_read(cached(), &key, &kept, &err), GP_OK);
	expect_same(&made, &kept);
	gp_text_rows_deinit(&kept);
	gp_text_rows_deinit(&made);
	free(t.row);
}

static void expect_refused(const struct gp_text_key *key, const char *words)
{
	struct gp_text_rows rows = {0};
	struct gp_err err = {0};
	assert_int_equal(gp_text_cache_read(cached(), key, &rows, &err), GP_INVALID);
	assert_null(rows.part);
	if (!strstr(err.text, words) || !strstr(err.text, ".tokens: "))
		fail_msg("'%s' does not say '%s'", err.text, words);
}

/* Nothing of a file is read, or has memory, that is longer than any with this key. */
static void expect_too_long(const char *path, const struct gp_text_key *key)
{
	struct gp_text_rows rows = {0};
	struct gp_err err = {0};
	assert_int_equal(gp_text_cache_read(path, key, &rows, &err), GP_INVALID);
	if (!strstr(err.text, "more than the"))
		fail_msg("%s", err.text);
}

/* Every byte that changes is seen, and so is every end. */
static void a_damaged_file_is_never_taken(void **state)
{
	(void)state;
	struct gp_table t = make_table();
	const struct gp_text_key key = gp_text_key_of(tokenizer, &t, MOST);
	char path[256];
	size_t bytes;
	snprintf(path, sizeof path, "%s", cached());
	uint8_t *file = read_file(path, &bytes);
	for (size_t at = 0; at < bytes; at += at < 64 ? 1 : 977) {
		file[at] ^= 0x10;
		write_file(path, file, bytes);
		expect_refused(&key, "");
		file[at] ^= 0x10;
	}
	for (size_t end = 0; end < bytes; end += end < 70 ? 7 : 3001) {
		write_file(path, file, end);
		expect_refused(&key, "");
	}
	memset(file + bytes - 4, 0xff, 4);
	gp_text_cache_seal(file, bytes); /* a checksum that fits: what is in it still cannot be */
	write_file(path, file, bytes);
	expect_refused(&key, "a token of it is beyond the vocabulary");
	write_file(path, file, 64);
	assert_int_equal(truncate(path, 64 + (off_t)ROWS * (8 + 4 * MOST) + 1), 0);
	expect_too_long(path, &key);
	gp_free(file);
	free(t.row);
}

/* The file is damaged still, from the test before. */
static void what_is_damaged_is_made_anew(void **state)
{
	(void)state;
	char folder[128];
	snprintf(folder, sizeof folder, "%s/cache", data_dir);
	const struct gp_text_making plain = {.threads = 1}, how = {.cache = folder};
	struct gp_table t = make_table();
	const struct gp_text_key key = gp_text_key_of(tokenizer, &t, MOST);
	struct gp_text_rows made = rows_of(&t, &plain), rows = rows_of(&t, &how);
	struct gp_err err = {0};
	expect_same(&made, &rows);
	gp_text_rows_deinit(&rows);
	assert_int_equal(gp_text_cache_read(cached(), &key, &rows, &err), GP_OK);
	gp_text_rows_deinit(&rows);
	gp_text_rows_deinit(&made);
	free(t.row);
}

static bool same_key(const struct gp_text_key *a, const struct gp_text_key *b)
{
	return memcmp(a->hash, b->hash, sizeof a->hash) == 0;
}

static void whatever_decides_tokens_is_in_the_key(void **state)
{
	(void)state;
	struct gp_table t = make_table();
	struct gp_err err = {0};
	struct gp_tokenizer *other;
	assert_int_equal(gp_tokenizer_open("tests/golden/tokens/bpe", &other, &err), GP_OK);
	const struct gp_text_key key = gp_text_key_of(tokenizer, &t, MOST);
	struct gp_text_key k = gp_text_key_of(tokenizer, &t, MOST + 1);
	assert_false(same_key(&k, &key));
	expect_refused(&k, "of other texts, of another tokenizer or of another limit");
	k = gp_text_key_of(other, &t, MOST);
	assert_false(same_key(&k, &key));
	text[ROWS - 1][0] ^= 1;
	k = gp_text_key_of(tokenizer, &t, MOST);
	assert_false(same_key(&k, &key));
	text[ROWS - 1][0] ^= 1;
	t.row[7].line = 99; /* where a text stands does not */
	k = gp_text_key_of(tokenizer, &t, MOST);
	assert_true(same_key(&k, &key));
	t.row[1].pair = (struct gp_text){"", 0};
	k = gp_text_key_of(tokenizer, &t, MOST);
	assert_false(same_key(&k, &key));
	t.rows--;
	k = gp_text_key_of(tokenizer, &t, MOST);
	expect_refused(&k, "of other texts");
	gp_tokenizer_free(other);
	free(t.row);
}

/* A cache that cannot be kept costs nothing but the time. */
static void a_folder_that_cannot_be_is_no_error(void **state)
{
	(void)state;
	write_data_file("file", "", 0);
	const struct gp_text_making plain = {.threads = 1}, how = {.cache = data_path("file")};
	struct gp_table t = make_table();
	struct gp_text_rows made = rows_of(&t, &plain), rows = rows_of(&t, &how);
	expect_same(&made, &rows);
	gp_text_rows_deinit(&rows);
	gp_text_rows_deinit(&made);
	free(t.row);
}

struct told {
	uint32_t last, times;
};

static void note_progress(void *arg, uint32_t done, uint32_t of)
{
	struct told *told = arg;
	assert_int_equal(of, ROWS);
	assert_true(done > told->last && done <= of);
	told->last = done;
	told->times++;
}

static void progress_is_told_on_one_thread(void **state)
{
	(void)state;
	struct told told = {0};
	const struct gp_text_making how = {.threads = 1, .progress = note_progress, .progress_arg = &told};
	struct gp_table t = make_table();
	struct gp_text_rows rows = rows_of(&t, &how);
	assert_int_equal(told.last, ROWS);
	assert_int_equal(told.times, 3);
	gp_text_rows_deinit(&rows);
	free(t.row);
}

static int open_all(void **state)
{
	struct gp_err err;
	return make_data_dir(state) == 0 &&
			       gp_tokenizer_open("tests/golden/tokens/wordpiece", &tokenizer, &err) == GP_OK
		       ? 0
		       : -1;
}

static int close_all(void **state)
{
	gp_tokenizer_free(tokenizer);
	return remove_data_dir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_come_back_as_they_were),
		cmocka_unit_test(whatever_decides_tokens_is_in_the_key),
		cmocka_unit_test(a_damaged_file_is_never_taken),
		cmocka_unit_test(what_is_damaged_is_made_anew),
		cmocka_unit_test(a_folder_that_cannot_be_is_no_error),
		cmocka_unit_test(progress_is_told_on_one_thread),
	};
	return cmocka_run_group_tests(tests, open_all, close_all);
}
