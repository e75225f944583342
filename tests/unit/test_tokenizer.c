/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers (client/text/tokenizer.h) beside the ids that a second one made
 * (tests/golden/tokens), pairs and truncation, and files that are wrong.
 */
#include "tests/unit/data_files.h"

#include "client/text/tokenizer.h"

#define GOLDEN "tests/golden/tokens/"

static struct gp_tokenizer *open_tokenizer(const char *folder)
{
	struct gp_tokenizer *t = NULL;
	struct gp_err err = {0};
	if (gp_tokenizer_open(folder, &t, &err) != GP_OK)
		fail_msg("%s", err.text);
	return t;
}

static struct gp_token_scratch *new_scratch(const struct gp_tokenizer *t)
{
	struct gp_token_scratch *s = NULL;
	struct gp_err err = {0};
	assert_int_equal(gp_token_scratch_new(t, &s, &err), GP_OK);
	return s;
}

static struct gp_token_row row_of(const struct gp_tokenizer *t, struct gp_token_scratch *s, struct gp_text a,
				  const char *b, int most)
{
	struct gp_token_row row = {0};
	struct gp_err err = {0};
	const struct gp_text second = b ? gp_text_of(b) : (struct gp_text){NULL, 0};
	if (gp_tokenizer_row(t, s, a, second, most, &row, &err) != GP_OK)
		fail_msg("%s", err.text);
	return row;
}

static void append_ids(char *text, size_t size, const struct gp_token_row *row)
{
	text[0] = '\0';
	for (int i = 0; i < row->count; i++)
		gp_text_append(text, size, "%s%d", i ? " " : "", row->token[i]);
}

static FILE *open_golden(const char *path)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		fail_msg("cannot open %s", path);
	return f;
}

static void compare_with_reference(const char *folder, const char *ids)
{
	struct gp_tokenizer *t = open_tokenizer(folder);
	struct gp_token_scratch *s = new_scratch(t);
	FILE *texts = open_golden(GOLDEN "texts.txt"), *expected = open_golden(ids);
	char text[4096], wanted[16384], got[16384];
	int lines = 0;
	while (fgets(text, sizeof text, texts)) {
		assert_non_null(fgets(wanted, sizeof wanted, expected));
		wanted[strcspn(wanted, "\n")] = '\0';
		const struct gp_token_row row = row_of(t, s, (struct gp_text){text, strcspn(text, "\n")}, NULL, 4096);
		append_ids(got, sizeof got, &row);
		if (strcmp(wanted, got) != 0)
			fail_msg("line %d: %s\nexpected %s\nbut got  %s", lines + 1, text, wanted, got);
		lines++;
	}
	assert_true(lines > 30);
	fclose(texts);
	fclose(expected);
	gp_token_scratch_free(s);
	gp_tokenizer_free(t);
}

static void ids_are_those_of_the_reference(void **state)
{
	(void)state;
	compare_with_reference(GOLDEN "bpe", GOLDEN "bpe/ids.txt");
	compare_with_reference(GOLDEN "wordpiece", GOLDEN "wordpiece/ids.txt");
}

/* Every letter of "abcd..." is a token or more, so lengths say what was left out. */
static void expect_lengths(const struct gp_tokenizer *t, struct gp_token_scratch *s, int most, int first, int second)
{
	static const char a[] = "! ? ! ? ! ?", b[] = "; : ; : ; : ; :";
	const int32_t separator = gp_tokenizer_special(t, GP_TOKEN_SEPARATOR);
	const struct gp_token_row row = row_of(t, s, gp_text_of(a), b, most);
	const struct gp_token_row whole = row;
	int i = 1, seen[2] = {0};
	assert_int_equal(row.token[0], gp_tokenizer_special(t, GP_TOKEN_BEGIN));
	for (int text = 0; text < 2; text++) {
		for (; row.token[i] != separator; i++)
			seen[text]++;
		while (i < row.count && row.token[i] == separator)
			i++;
	}
	assert_int_equal(i, row.count);
	assert_int_equal(whole.whole, row.count - first - second + 14);
	if (seen[0] != first || seen[1] != second)
		fail_msg("%d and %d tokens of %d; expected %d and %d", seen[0], seen[1], most, first, second);
}

static void the_longer_text_of_a_pair_loses_its_end(void **state)
{
	(void)state;
	struct gp_tokenizer *t = open_tokenizer(GOLDEN "wordpiece"); /* a token for each mark: 6 and 8 */
	struct gp_token_scratch *s = new_scratch(t);
	expect_lengths(t, s, 100, 6, 8);
	expect_lengths(t, s, 17, 6, 8);
	expect_lengths(t, s, 16, 6, 7);
	expect_lengths(t, s, 15, 6, 6);
	expect_lengths(t, s, 14, 6, 5);
	expect_lengths(t, s, 13, 5, 5);
	expect_lengths(t, s, 8, 3, 2);
	gp_token_scratch_free(s);
	gp_tokenizer_free(t);
}

static void pairs_are_parted_as_their_models_want(void **state)
{
	(void)state;
	static const char *const folder[] = {GOLDEN "bpe", GOLDEN "wordpiece"};
	for (int k = 0; k < 2; k++) {
		struct gp_tokenizer *t = open_tokenizer(folder[k]);
		struct gp_token_scratch *s = new_scratch(t);
		const int32_t separator = gp_tokenizer_special(t, GP_TOKEN_SEPARATOR);
		const struct gp_token_row row = row_of(t, s, gp_text_of("!"), "?", 64);
		assert_int_equal(row.count, k == 0 ? 6 : 5);
		assert_int_equal(row.token[2], separator);
		assert_true((row.token[3] == separator) == (k == 0));
		assert_int_equal(row.token[row.count - 1], separator);
		assert_int_equal(row.segment[2], 0);
		for (int i = 3; i < row.count; i++)
			assert_int_equal(row.segment[i], k);
		gp_token_scratch_free(s);
		gp_tokenizer_free(t);
	}
}

static void a_long_word_takes_no_quadratic_time(void **state)
{
	(void)state;
	struct gp_tokenizer *t = open_tokenizer(GOLDEN "bpe");
	struct gp_token_scratch *s = new_scratch(t);
	struct gp_err err = {0};
	struct gp_token_row row;
	const size_t bytes = GP_TEXT_BYTES_MAX;
	char *text = malloc(bytes + 1);
	assert_non_null(text);
	memset(text, 'e', bytes + 1); /* 10^12 steps if every join looked at the whole word */
	row = row_of(t, s, (struct gp_text){text, bytes}, NULL, 1 << 20);
	assert_in_range(row.count, 3, bytes);
	assert_int_equal(
		gp_tokenizer_row(t, s, (struct gp_text){text, bytes + 1}, (struct gp_text){NULL, 0}, 8, &row, &err),
		GP_INVALID);
	assert_string_equal(err.text, "a text of 1048577 bytes; at most 1048576 can be made tokens");
	free(text);
	gp_token_scratch_free(s);
	gp_tokenizer_free(t);
}

/* --- files that are wrong --------------------------------------------------------------------------------------- */

static void expect_refused(const char *message)
{
	struct gp_tokenizer *t = NULL;
	struct gp_err err = {0};
	assert_int_equal(gp_tokenizer_open(data_dir, &t, &err), GP_INVALID);
	assert_null(t);
	assert_message(&err, message);
}

static void write_text(const char *name, const char *text)
{
	write_data_file(name, text, strlen(text));
}

static void copy_golden(const char *from, const char *name)
{
	char text[1 << 15];
	FILE *f = open_golden(from);
	const size_t n = fread(text, 1, sizeof text, f);
	assert_true(n < sizeof text);
	fclose(f);
	write_data_file(name, text, n);
}

static void files_that_are_wrong_are_named(void **state)
{
	(void)state;
	expect_refused("no tokenizer in DIR: neither vocab.json (with merges.txt: byte pair encoding) nor vocab.txt "
		       "(WordPiece) can be found there");
	write_text("vocab.json", "{\"a\": 0, \"b\": 1,}");
	expect_refused("DIR/vocab.json:1: string or '}' expected near '}'");
	write_text("vocab.json", "[1]");
	expect_refused("DIR/vocab.json: an object of tokens and their ids is expected");
	write_text("vocab.json", "{\"a\": 0, \"b\": 0}");
	expect_refused("DIR/vocab.json: 'b' has the id 0, and so has 'a'");
	write_text("vocab.json", "{\"a\": 0, \"b\": 7}");
	expect_refused("DIR/vocab.json: 'b' has the id 7, but there are 2 tokens, whose ids are 0 to 1");
	write_text("vocab.json", "{\"a\": 0, \"b\": 2}");
	expect_refused(
		"DIR/vocab.json: 'b' has the id 2, but there are 2 tokens, whose ids are 0 to 1: is a token missing?");
	write_text("vocab.json", "{\"a\": 0, \"b\": \"1\"}");
	expect_refused("DIR/vocab.json: 'b' has no id");
	write_text("vocab.json", "{\"a\": 0, \"b\": 1}");
	expect_refused("DIR/vocab.json has no token for the byte 0x00: this is no byte-level vocabulary");
}

static void merges_belong_to_their_vocabulary(void **state)
{
	(void)state;
	copy_golden(GOLDEN "bpe/vocab.json", "vocab.json");
	unlink(data_path("merges.txt"));
	expect_refused("cannot open DIR/merges.txt: No such file or directory");
	write_text("merges.txt", "#version: 0.2\ni n\nq zz\n");
	expect_refused("DIR/merges.txt:3: the second of 'q zz' is no token of vocab.json: the two files do not belong "
		       "together");
	write_text("merges.txt", "q z\n");
	expect_refused("DIR/merges.txt:1: what comes of 'q z' is no token of vocab.json: the two files do not belong "
		       "together");
	write_text("merges.txt", "i n\ni n\n");
	expect_refused("DIR/merges.txt:2: 'i n' occurs twice");
	write_text("merges.txt", "i n g\n");
	expect_refused("DIR/merges.txt:1: 'i n g' is not two tokens with a space between");
	write_text("merges.txt", "\xff\xfei");
	expect_refused("DIR/merges.txt: its text is UTF-16; convert it to UTF-8");
	write_text("merges.txt", "\xef\xbb\xbf#version: 0.2\n"); /* as some editors save it */
	gp_tokenizer_free(open_tokenizer(data_dir));
	write_text("merges.txt", "");
	gp_tokenizer_free(open_tokenizer(data_dir)); /* bytes alone */
	write_text("tokenizer_config.json", "\xef\xbb\xbf{\"add_prefix_space\": false}");
	gp_tokenizer_free(open_tokenizer(data_dir));
	write_text("tokenizer_config.json", "{\"add_prefix_space\": true}");
	expect_refused("DIR/tokenizer_config.json: \"add_prefix_space\" is true, but texts get no space in front of "
		       "them here, so that their tokens would be others");
	unlink(data_path("tokenizer_config.json"));
	write_text("vocab.txt", "[PAD]\n");
	expect_refused("DIR holds vocab.json and vocab.txt, of two kinds of tokenizers; keep the files of one");
	unlink(data_path("vocab.txt"));
}

static void word_pieces_stand_on_lines(void **state)
{
	(void)state;
	unlink(data_path("vocab.json"));
	write_text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n");
	expect_refused("DIR/vocab.txt lacks the token [MASK]");
	write_text("vocab.txt", "[PAD]\n\n");
	expect_refused("DIR/vocab.txt:2: an empty line; a token is expected");
	write_text("vocab.txt", "[PAD]\na\na\n");
	expect_refused("DIR/vocab.txt:3: 'a' occurs twice, with the ids 1 and 2");
	write_text("vocab.txt", "[PAD]\n\xe4\n");
	expect_refused("DIR/vocab.txt:2: '?' is not UTF-8");
	write_text("vocab.txt", "\xef\xbb\xbf[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\nA\r\na\r\n");
	write_text("tokenizer_config.json", "{\"do_lower_case\": 1}");
	expect_refused("DIR/tokenizer_config.json: \"do_lower_case\" is neither true nor false");
	write_text("tokenizer_config.json", "{\"do_lower_case\": false}");
	struct gp_tokenizer *t = open_tokenizer(data_dir);
	struct gp_token_scratch *s = new_scratch(t);
	assert_int_equal(row_of(t, s, gp_text_of("A"), NULL, 8).token[1], 5);
	assert_int_equal(row_of(t, s, gp_text_of("\xc3\x84"), NULL, 8).token[1], 1); /* the accent stays */
	gp_token_scratch_free(s);
	gp_tokenizer_free(t);
}

static void equal_tokenizers_have_equal_hashes(void **state)
{
	(void)state;
	struct gp_tokenizer *a = open_tokenizer(GOLDEN "bpe"), *b = open_tokenizer(GOLDEN "wordpiece");
	struct gp_tokenizer *again = open_tokenizer(GOLDEN "bpe");
	assert_true(gp_tokenizer_hash(a) == gp_tokenizer_hash(again));
	assert_true(gp_tokenizer_hash(a) != gp_tokenizer_hash(b));
	gp_tokenizer_free(a);
	gp_tokenizer_free(b);
	gp_tokenizer_free(again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_are_those_of_the_reference),
		cmocka_unit_test(the_longer_text_of_a_pair_loses_its_end),
		cmocka_unit_test(pairs_are_parted_as_their_models_want),
		cmocka_unit_test(a_long_word_takes_no_quadratic_time),
		cmocka_unit_test(files_that_are_wrong_are_named),
		cmocka_unit_test(merges_belong_to_their_vocabulary),
		cmocka_unit_test(word_pieces_stand_on_lines),
		cmocka_unit_test(equal_tokenizers_have_equal_hashes),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}
