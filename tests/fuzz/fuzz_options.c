/* SPDX-License-Identifier: Apache-2.0
 *
 * Any command line and config file gives settings within their ranges, or one
 * line of error and nothing left allocated. Input: arguments, one per line; a
 * zero byte; the config file's text.
 */
#include "tests/fuzz/memory_file.h"

#include <stddef.h>
#include <string.h>

#include "common/options/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct settings {
	bool json;
	int64_t batch, window;
	double lr, rate, delay;
	const char *model, *config;
	int optimizer;
};

#define ROW(name_, type_, ...)                                                                                         \
	{                                                                                                              \
		.name = #name_, .type = (type_), .offset = offsetof(struct settings, name_), __VA_ARGS__               \
	}
static const struct gp_opt rows[] = {
	ROW(json, GP_OPT_FLAG, .help = ""),
	ROW(batch, GP_OPT_INT, .initial = "64", .min = 1, .max = 65536),
	ROW(window, GP_OPT_SIZE, .initial = "1M", .min = 1024, .max = 0x1p40),
	ROW(lr, GP_OPT_REAL, .initial = "0.1", .max = 100),
	ROW(rate, GP_OPT_RATE, .initial = "1gbit", .min = 1, .max = 1e12),
	ROW(delay, GP_OPT_TIME, .initial = "20ms", .max = 60),
	ROW(model, GP_OPT_TEXT, .initial = "cnn"),
	ROW(config, GP_OPT_TEXT, .help = ""),
	ROW(optimizer, GP_OPT_CHOICE, .choices = "sgd|adam|adamw"),
};
static const struct gp_opt_table table = {
	.command = "fuzz", .positional = "X", .positional_max = 16, .opt = rows, .count = sizeof rows / sizeof rows[0]};

static void must(bool what)
{
	if (!what)
		abort();
}

static void check_result(const struct settings *s, const struct gp_options_result *r, enum gp_status status,
			 const struct gp_err *err)
{
	if (status != GP_OK) {
		must(err->text[0] && !strchr(err->text, '\n') && !s->model && !r->owned && r->owned_count == 0);
		must(status == err->code && (status == GP_USAGE || status == GP_INVALID));
		return;
	}
	must(s->model && s->batch >= 1 && s->batch <= 65536 && s->window >= 1024 && s->window <= 1LL << 40);
	must(s->lr >= 0 && s->lr <= 100 && s->rate >= 1 && s->rate <= 1e12 && s->delay >= 0 && s->delay <= 60);
	must(s->optimizer >= 0 && s->optimizer <= 2 && r->positionals <= 16);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *zero = memchr(data, 0, size);
	size_t args_size = zero ? (size_t)(zero - data) : size;
	char *text = strndup((const char *)data, args_size), path[32], *argv[66], *rest = text, *word;
	char config_flag[] = "--config";
	int argc = 0, fd = -1;
	if (zero) {
		fd = memory_file(zero + 1, size - args_size - 1, path);
		argv[argc++] = config_flag;
		argv[argc++] = path;
	}
	while (argc < 66 && (word = strsep(&rest, "\n")))
		if (strcmp(word, "--help") != 0 && strcmp(word, "-h") != 0) /* would print */
			argv[argc++] = word;
	struct settings s;
	struct gp_options_result r;
	struct gp_err err = {0};
	enum gp_status status = gp_options_parse(&table, argc, argv, &s, &r, &err);
	check_result(&s, &r, status, &err);
	gp_options_free(&r);
	free(text);
	if (fd >= 0)
		close(fd);
	return 0;
}
