/* SPDX-License-Identifier: Apache-2.0
 *
 * Token files: what is in them, what is wrong with them, and that no message
 * holds a token.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/net/token_file.h"

#define GOOD "0123456789abcdef"

static char path[] = "/tmp/gp-tokens-XXXXXX";

static int make_file(void **state)
{
	(void)state;
	const int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

static void put(const char *text, size_t len)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

static struct gp_token_file *load(const char *text)
{
	struct gp_token_file *t = NULL;
	struct gp_err err;
	put(text, strlen(text));
	if (gp_token_file_load(path, &t, &err) != GP_OK)
		fail_msg("%s", err.text);
	return t;
}

static const char *owner(const struct gp_token_file *t, const char *token)
{
	static char name[GP_CLIENT_NAME_BYTES];
	name[0] = '\0';
	return gp_token_file_find(t, (struct gp_span){(const uint8_t *)token, strlen(token)}, name) ? name : NULL;
}

static void a_token_finds_its_name(void **state)
{
	(void)state;
	struct gp_token_file *t = load("# the clients\n\n  edge-1\t" GOOD "1  # in the hall\r\nedge-2 " GOOD "2\n"
				       "edge-1 " GOOD "3");
	assert_string_equal(owner(t, GOOD "1"), "edge-1");
	assert_string_equal(owner(t, GOOD "2"), "edge-2");
	assert_string_equal(owner(t, GOOD "3"), "edge-1"); /* a name may have two: to change them */
	assert_null(owner(t, GOOD));
	assert_null(owner(t, GOOD "12"));
	assert_null(owner(t, ""));
	assert_null(owner(t, "edge-1"));
	gp_token_file_free(t);
}

static void a_token_is_found_again_by_its_sum_and_name(void **state)
{
	(void)state;
	struct gp_token_file *t = load("edge-1 " GOOD "1\nedge-2 " GOOD "2\n");
	uint8_t sum[GP_TOKEN_SUM_BYTES];
	gp_token_file_sum((struct gp_span){(const uint8_t *)(GOOD "1"), strlen(GOOD "1")}, sum);
	assert_true(gp_token_file_holds(t, sum, "edge-1"));
	assert_false(gp_token_file_holds(t, sum, "edge-2"));
	gp_token_file_free(t);
	t = load("edge-1 " GOOD "3\n"); /* the name is there, the token is another */
	assert_false(gp_token_file_holds(t, sum, "edge-1"));
	gp_token_file_free(t);
}

static void a_token_with_any_bytes_and_length_is_nobodys(void **state)
{
	(void)state;
	static uint8_t bytes[100000];
	char name[GP_CLIENT_NAME_BYTES];
	struct gp_token_file *t = load("edge-1 " GOOD);
	for (size_t len = 0; len < sizeof bytes; len += len < 600 ? 1 : 9999)
		assert_false(gp_token_file_find(t, (struct gp_span){bytes, len}, name));
	memcpy(bytes, GOOD, 16);
	assert_false(gp_token_file_find(t, (struct gp_span){bytes, 17}, name)); /* a 0 behind it */
	assert_true(gp_token_file_find(t, (struct gp_span){bytes, 16}, name));
	gp_token_file_free(t);
}

static void refuses(const char *text, const char *words)
{
	struct gp_token_file *t = NULL;
	struct gp_err err;
	put(text, strlen(text));
	assert_int_equal(gp_token_file_load(path, &t, &err), GP_INVALID);
	assert_null(t);
	if (!strstr(err.text, words))
		fail_msg("'%s' is not in '%s'", words, err.text);
	assert_null(strstr(err.text, "01234567"));
}

static void a_wrong_line_is_named_without_the_token(void **state)
{
	(void)state;
	char text[2000];
	refuses("", "there is no token in it");
	refuses("# edge-1 " GOOD "\n", "there is no token in it");
	refuses("edge-1 " GOOD "\nedge-2 0123456789abcde\n", ":2: the token has 15 characters, at least 16");
	refuses("edge-1\n", ":1: a line is NAME TOKEN");
	refuses(GOOD "\n", ":1: a line is NAME TOKEN");
	refuses("edge-1 " GOOD " more\n", ":1: a line is NAME TOKEN");
	refuses("edge-1 " GOOD "\xc3\xa4\n", ":1: a token is up to 512 printable ASCII characters");
	refuses("edge-\x01 " GOOD "\n", ":1: a name is up to 63");
	snprintf(text, sizeof text, "\n\n%070d " GOOD "\n", 1);
	refuses(text, ":3: a name is up to 63");
	snprintf(text, sizeof text, "edge-1 %0600d\n", 1);
	refuses(text, ":1: a token is up to 512");
	snprintf(text, sizeof text, "edge-1 %01800d\n", 1);
	refuses(text, ":1: a line is at most");
	struct gp_token_file *t = NULL;
	struct gp_err err;
	char token[GP_CLIENT_TOKEN_MAX + 1];
	assert_int_equal(gp_token_file_load("/dev/zero", &t, &err), GP_INVALID); /* and has an end */
	assert_non_null(strstr(err.text, "of text"));
	assert_int_equal(gp_token_file_own("/dev/zero", token, &err), GP_INVALID);
	assert_int_equal(gp_token_file_load("no/such/file", &t, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "no/such/file: No such file"));
}

static void a_client_reads_its_token_alone_or_behind_its_name(void **state)
{
	(void)state;
	static const char *const texts[] = {GOOD, GOOD "\n", "# mine\n\n" GOOD "\nmore\n", "edge-1 " GOOD "\n"};
	char token[GP_CLIENT_TOKEN_MAX + 1];
	struct gp_err err;
	for (size_t i = 0; i < 4; i++) {
		put(texts[i], strlen(texts[i]));
		assert_int_equal(gp_token_file_own(path, token, &err), GP_OK);
		assert_string_equal(token, GOOD);
	}
	token[0] = '\0';
	put("", 0);
	assert_int_equal(gp_token_file_own(path, token, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "there is no token in it"));
	put("a b c\n", 6);
	assert_int_equal(gp_token_file_own(path, token, &err), GP_INVALID);
	put("short\n", 6);
	assert_int_equal(gp_token_file_own(path, token, &err), GP_INVALID);
	static const char servers[] = "# all\nedge-1 " GOOD "\n\nedge-2 another-" GOOD "\n";
	put(servers, strlen(servers));
	assert_int_equal(gp_token_file_own(path, token, &err), GP_INVALID);
	assert_non_null(strstr(err.text, ":4: a second line of NAME TOKEN: this is a server's file"));
	assert_null(strstr(err.text, GOOD));
	assert_int_equal(gp_token_file_own("no/such/file", token, &err), GP_INVALID);
	assert_string_equal(token, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_finds_its_name),
		cmocka_unit_test(a_token_is_found_again_by_its_sum_and_name),
		cmocka_unit_test(a_token_with_any_bytes_and_length_is_nobodys),
		cmocka_unit_test(a_wrong_line_is_named_without_the_token),
		cmocka_unit_test(a_client_reads_its_token_alone_or_behind_its_name),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
