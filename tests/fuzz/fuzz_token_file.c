/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any file is taken as a token file or refused with a message of one
 * line; what is taken finds its own tokens only (common/net/token_file.h).
 */
#include <string.h>

#include "common/net/token_file.h"
#include "memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const struct gp_err *err)
{
	gp_require(err->code == GP_INVALID && err->text[0] && !strchr(err->text, '\n'));
}

static void check_own(const char *path, const struct gp_token_file *t)
{
	char token[GP_CLIENT_TOKEN_MAX + 1], name[GP_CLIENT_NAME_BYTES];
	struct gp_err err;
	if (gp_token_file_own(path, token, &err) != GP_OK) {
		check_message(&err);
		gp_require(!t || strstr(err.text, "a second line of NAME TOKEN"));
		return;
	}
	const struct gp_span span = {(const uint8_t *)token, strlen(token)};
	gp_require(span.len >= GP_CLIENT_TOKEN_MIN);
	gp_require(!t || (gp_token_file_find(t, span, name) && name[0])); /* its first line is one of NAME TOKEN */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[32], name[GP_CLIENT_NAME_BYTES];
	struct gp_token_file *t = NULL;
	struct gp_err err;
	const int fd = memory_file(data, size, path);
	if (gp_token_file_load(path, &t, &err) != GP_OK)
		check_message(&err);
	else
		gp_require(!gp_token_file_find(t, (struct gp_span){(const uint8_t *)"", 0}, name));
	check_own(path, t);
	gp_token_file_free(t);
	close(fd);
	return 0;
}
