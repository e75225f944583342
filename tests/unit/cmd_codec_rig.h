/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient codec` run within a test, and what it has printed. Include it behind cmocka.h.
 */
#ifndef GP_TEST_CMD_CODEC_RIG_H
#define GP_TEST_CMD_CODEC_RIG_H

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "common/codec/codec.h"
#include "common/store/safetensors.h"

#define INPUTS "tests/golden/codec/inputs.safetensors"

/* Runs the command with stdout and stderr into files; returns the exit status. */
static int run(const char **argv, char *out, size_t out_size, char *err, size_t err_size)
{
	char *text[2] = {out, err};
	size_t size[2] = {out_size, err_size};
	FILE *file[2] = {tmpfile(), tmpfile()};
	int argc = 0, saved[2];
	while (argv[argc])
		argc++;
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		assert_non_null(file[i]);
		saved[i] = dup(i + 1);
		dup2(fileno(file[i]), i + 1);
	}
	int status = gp_cmd_codec(argc, (char **)argv);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		dup2(saved[i], i + 1);
		close(saved[i]);
		rewind(file[i]);
		size_t n = fread(text[i], 1, size[i] - 1, file[i]);
		text[i][n] = '\0';
		fclose(file[i]);
	}
	return status;
}

#define RUN(...) run((const char *[]){__VA_ARGS__, NULL}, out, sizeof out, err, sizeof err)

static char out[1 << 18], err[4096];

static inline int lines_of(const char *text)
{
	int lines = 0;
	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

static inline double number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	if (!json_is_number(value))
		fail_msg("no number \"%s\"", key);
	return json_number_value(value);
}

static inline const json_t *row(const json_t *object, size_t i)
{
	return json_array_get(json_object_get(object, "codecs"), i);
}

#endif
