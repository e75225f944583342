/* SPDX-License-Identifier: Apache-2.0
 *
 * Options (common/options/options.h): command lines, config files, value parsers, --help.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/fault.h"
#include "common/options/options.h"

struct settings {
	bool json, color;
	int64_t batch, window;
	double lr, rate, delay;
	const char *model, *config;
	int optimizer, resume;
};

#define ROW(name_, type_, field, ...)                                                                                  \
	{                                                                                                              \
		.name = (name_), .type = (type_), .offset = offsetof(struct settings, field), __VA_ARGS__              \
	}
/* clang-format off */
static const struct gp_opt rows[] = {
	ROW("model", GP_OPT_TEXT, model, .value = "NAME", .initial = "cnn", .help = "what to train", .group = "Model"),
	ROW("batch", GP_OPT_INT, batch, .value = "N", .initial = "64", .help = "samples per step", .min = 1, .max = 65536),
	ROW("lr", GP_OPT_REAL, lr, .value = "X", .initial = "0.1", .help = "learning rate", .max = 100),
	ROW("optimizer", GP_OPT_CHOICE, optimizer, .initial = "sgd", .help = "update rule", .choices = "sgd|adam|adamw"),
	ROW("window", GP_OPT_SIZE, window, .value = "BYTES", .initial = "1M", .help = "bytes in flight", .min = 1024,
	    .max = 0x1p40, .group = "Link"),
	ROW("rate", GP_OPT_RATE, rate, .value = "RATE", .help = "shape the link"),
	ROW("delay", GP_OPT_TIME, delay, .value = "TIME", .initial = "20ms", .help = "one way delay", .max = 60),
	ROW("json", GP_OPT_FLAG, json, .help = "print one JSON object at the end", .group = "Output"),
	ROW("color", GP_OPT_FLAG, color, .initial = "yes", .help = "color the progress line"),
	ROW("resume", GP_OPT_CHOICE, resume, .value = "if-any", .choices = "no|yes|if-any", .bare = true, .help = "go on"),
	ROW("config", GP_OPT_TEXT, config, .value = "FILE", .help = "read flags from a file first"),
};
/* clang-format on */
static const struct gp_opt_table table = {
	.command = "gpclient train",
	.synopsis = "--model NAME [OPTIONS]",
	.about = "Trains a model.",
	.examples = "gpclient train --model cnn\ngpclient train --batch 8",
	.opt = rows,
	.count = sizeof rows / sizeof rows[0],
};
static const struct gp_opt_table with_positional = {
	.command = "gpclient link",
	.positional = "HOST:PORT",
	.positional_max = 1,
	.opt = rows,
	.count = sizeof rows / sizeof rows[0],
};

struct parsed {
	struct settings s;
	struct gp_options_result r;
	struct gp_err err;
	enum gp_status status;
};

static struct parsed parse_words(const struct gp_opt_table *t, int argc, const char **argv)
{
	struct parsed p;
	memset(&p, 0xa5, sizeof p);
	p.err.text[0] = '\0';
	p.status = gp_options_parse(t, argc, (char **)argv, &p.s, &p.r, &p.err);
	return p;
}

#define PARSE_WITH(t, ...)                                                                                             \
	parse_words((t), (int)(sizeof(const char *[]){__VA_ARGS__} / sizeof(char *)), (const char *[]){__VA_ARGS__})
#define PARSE(...) PARSE_WITH(&table, __VA_ARGS__)

#define assert_fails(wanted, text_, ...)                                                                               \
	do {                                                                                                           \
		struct parsed p_ = PARSE(__VA_ARGS__);                                                                 \
		assert_int_equal(p_.status, (wanted));                                                                 \
		assert_string_equal(p_.err.text, (text_));                                                             \
		assert_null(p_.s.model);                                                                               \
		assert_int_equal(p_.r.owned_count, 0);                                                                 \
	} while (0)

/* A config file that is gone with end_config. */
static const char *write_config(const char *text, size_t len)
{
	static char path[64];
	strcpy(path, "/tmp/gp_options_XXXXXX");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), (ssize_t)len);
	close(fd);
	return path;
}

static struct parsed parse_config(const char *text, const char *more)
{
	const char *path = write_config(text, strlen(text));
	struct parsed p = more ? PARSE("--config", path, more) : PARSE("--config", path);
	unlink(path);
	return p;
}

static void defaults_fill_what_was_not_given(void **state)
{
	(void)state;
	struct parsed p = parse_words(&table, 0, NULL);
	assert_int_equal(p.status, GP_OK);
	assert_string_equal(p.s.model, "cnn");
	assert_int_equal(p.s.batch, 64);
	assert_true(p.s.lr == 0.1 && p.s.delay == 0.02 && p.s.rate == 0);
	assert_int_equal(p.s.window, 1 << 20);
	assert_int_equal(p.s.optimizer, 0);
	assert_true(p.s.color && !p.s.json);
	assert_null(p.s.config);
	for (int i = 0; i < GP_OPT_MAX; i++)
		assert_false(p.r.given[i]);
	gp_options_free(&p.r);
}

static void expect_resume(struct parsed p, int want)
{
	assert_int_equal(p.status, GP_OK);
	assert_int_equal(p.s.resume, want);
	gp_options_free(&p.r);
}

static void value_of_a_bare_choice_is_optional(void **state)
{
	(void)state;
	expect_resume(PARSE("--json"), 0);
	expect_resume(PARSE("--resume", "--json"), 1);
	expect_resume(PARSE("--resume=if-any"), 2);
	expect_resume(PARSE("--resume=if-any", "--no-resume"), 0);
	expect_resume(PARSE("--resume=true"), 1);
	expect_resume(parse_config("resume = if-any\n", NULL), 2);
	expect_resume(parse_config("resume = true\n", NULL), 1);
	assert_fails(GP_USAGE, "--resume: 'sometimes' is not one of no|yes|if-any", "--resume=sometimes");
	assert_fails(GP_USAGE, "unexpected argument 'if-any'; 'gpclient train --help' shows what is known", "--resume",
		     "if-any");
}

static void both_forms_of_a_flag_are_understood(void **state)
{
	(void)state;
	struct parsed p = PARSE("--model=mobilenetv2:width=0.5", "--batch", "8", "--optimizer", "adamw",
				"--rate=100mbit", "--delay", "1.5s", "--json", "--no-color", "--window", "64k");
	assert_int_equal(p.status, GP_OK);
	assert_string_equal(p.s.model, "mobilenetv2:width=0.5");
	assert_int_equal(p.s.batch, 8);
	assert_int_equal(p.s.optimizer, 2);
	assert_true(p.s.rate == 1e8 && p.s.delay == 1.5);
	assert_true(p.s.json && !p.s.color);
	assert_int_equal(p.s.window, 65536);
	assert_true(gp_options_given(&table, &p.r, "json"));
	assert_false(gp_options_given(&table, &p.r, "lr"));
	gp_options_free(&p.r);
}

static void the_last_of_repeated_flags_wins(void **state)
{
	(void)state;
	struct parsed p = PARSE("--batch", "8", "--batch=16", "--json", "--json=no");
	assert_int_equal(p.status, GP_OK);
	assert_int_equal(p.s.batch, 16);
	assert_false(p.s.json);
	gp_options_free(&p.r);
}

static void negative_and_empty_values_are_values(void **state)
{
	(void)state;
	assert_fails(GP_USAGE, "--lr: -1 is out of range (0..100)", "--lr", "-1");
	struct parsed p = PARSE("--model=");
	assert_int_equal(p.status, GP_OK);
	assert_string_equal(p.s.model, "");
	gp_options_free(&p.r);
}

static void unknown_flags_name_the_nearest_known_one(void **state)
{
	(void)state;
	assert_fails(GP_USAGE, "unknown flag --bacth; did you mean --batch? ('gpclient train --help' lists all)",
		     "--bacth", "8");
	assert_fails(GP_USAGE, "unknown flag --optim; did you mean --optimizer? ('gpclient train --help' lists all)",
		     "--optim=sgd");
	assert_fails(GP_USAGE, "unknown flag --zzzzzz; 'gpclient train --help' lists all", "--zzzzzz");
	assert_fails(GP_USAGE, "--help stands alone, or is --help=rows, the same for scripts", "--help=json");
	assert_fails(GP_USAGE, "unknown flag -batch; did you mean --batch? (flags begin with two dashes)", "-batch",
		     "8");
	assert_fails(GP_USAGE, "unknown flag --no-batch; did you mean --batch? ('gpclient train --help' lists all)",
		     "--no-batch");
}

static void wrong_values_name_flag_and_form(void **state)
{
	(void)state;
	assert_fails(GP_USAGE, "--batch: 'abc' is not a whole number (1..65536)", "--batch", "abc");
	assert_fails(GP_USAGE, "--batch: 'a?c' is not a whole number (1..65536)", "--batch", "a\nc");
	assert_fails(GP_USAGE, "--batch: 0 is out of range (1..65536)", "--batch=0");
	assert_fails(GP_USAGE, "--batch: '99999999999999999999' is not a whole number (1..65536)",
		     "--batch=99999999999999999999");
	assert_fails(GP_USAGE, "--lr: 'nan' is not a number (0..100)", "--lr=nan");
	assert_fails(GP_USAGE, "--lr: '0x10' is not a number (0..100)", "--lr=0x10");
	assert_fails(GP_USAGE, "--window: 1 is out of range (1k..1T)", "--window=1");
	assert_fails(GP_USAGE, "--rate: '10Mb' is not a rate such as 100mbit, 1gbit or 12.5MB (bytes)", "--rate",
		     "10Mb");
	assert_fails(GP_USAGE, "--delay: 2m is out of range (0s..60s)", "--delay", "2m");
	assert_fails(GP_USAGE, "--delay: 'soon' is not a time such as 20ms, 1.5s or 2m (0s..60s)", "--delay", "soon");
	assert_fails(GP_USAGE, "--optimizer: 'sg' is not one of sgd|adam|adamw", "--optimizer", "sg");
	assert_fails(GP_USAGE, "--optimizer: 'sgd|adam' is not one of sgd|adam|adamw", "--optimizer", "sgd|adam");
	assert_fails(GP_USAGE, "--json: 'maybe' is not yes or no", "--json=maybe");
	assert_fails(GP_USAGE, "--no-json takes no value", "--no-json=yes");
}

static void an_open_end_is_out_of_range_and_told_so(void **state)
{
	(void)state;
	const struct gp_opt row = {.name = "momentum",
				   .type = GP_OPT_REAL,
				   .offset = offsetof(struct settings, lr),
				   .max = 1,
				   .below_max = true};
	const struct gp_opt_table t = {.command = "x", .opt = &row, .count = 1};
	struct parsed p = PARSE_WITH(&t, "--momentum", "1");
	assert_int_equal(p.status, GP_USAGE);
	assert_string_equal(p.err.text, "--momentum: 1 is out of range (at least 0, below 1)");
	p = PARSE_WITH(&t, "--momentum", "0.999");
	assert_int_equal(p.status, GP_OK);
	assert_true(p.s.lr == 0.999);
	gp_options_free(&p.r);
}

static void missing_values_are_noticed(void **state)
{
	(void)state;
	assert_fails(GP_USAGE, "--batch needs a value (--batch N)", "--batch");
	assert_fails(GP_USAGE, "--batch needs a value (--batch N)", "--batch", "--json");
}

static void positionals_are_counted(void **state)
{
	(void)state;
	assert_fails(GP_USAGE, "unexpected argument 'x'; 'gpclient train --help' shows what is known", "x");
	struct parsed p = PARSE_WITH(&with_positional, "--json", "host:1");
	assert_int_equal(p.status, GP_OK);
	assert_int_equal(p.r.positionals, 1);
	assert_string_equal(p.r.positional[0], "host:1");
	gp_options_free(&p.r);
	p = PARSE_WITH(&with_positional, "a", "b");
	assert_int_equal(p.status, GP_USAGE);
	assert_string_equal(p.err.text, "unexpected argument 'b'; 'gpclient link' takes at most 1 (HOST:PORT)");
	p = PARSE_WITH(&with_positional, "--", "--json");
	assert_int_equal(p.status, GP_OK);
	assert_string_equal(p.r.positional[0], "--json");
	assert_false(p.s.json);
	gp_options_free(&p.r);
}

static void any_number_of_positionals_can_be_taken(void **state)
{
	(void)state;
	char text[100][8], *argv[100];
	struct gp_opt_table t = with_positional;
	struct settings s;
	struct gp_options_result r;
	struct gp_err err;
	t.positional_max = 0;
	for (int i = 0; i < 100; i++) {
		snprintf(text[i], sizeof text[i], "f%d", i);
		argv[i] = text[i];
	}
	assert_int_equal(gp_options_parse(&t, 100, argv, &s, &r, &err), GP_OK);
	assert_int_equal(r.positionals, 100);
	assert_string_equal(r.positional[99], "f99");
	gp_options_free(&r);
}

static void joined_rows_are_one_table(void **state)
{
	(void)state;
	const struct gp_opt_rows parts[] = {{rows + 1, 2}, {rows, 1}};
	struct gp_opt joined[GP_OPT_MAX];
	assert_int_equal(gp_opt_join(parts, 2, joined), 3);
	assert_string_equal(joined[0].name, rows[1].name);
	assert_string_equal(joined[1].name, rows[2].name);
	assert_string_equal(joined[2].name, rows[0].name);
}

/* The first row of `rows`, with a range, a default and a text of its own; its type and its field are the other's. */
static void a_row_that_is_like_another_takes_what_it_leaves_out(void **state)
{
	(void)state;
	static const struct gp_opt_rows of_train = {rows, sizeof rows / sizeof rows[0]};
	static const struct gp_opt own[] = {
		{.name = "batch", .like = &of_train, .initial = "8", .min = 2, .max = 32, .help = "other"},
		{.name = "optimizer", .like = &of_train, .group = "Own"}};
	static const struct gp_opt_rows first = {own, 2};
	static const struct gp_opt second[] = {{.name = "batch", .like = &first, .offset = sizeof(int64_t)}};
	const struct gp_opt_rows parts[] = {{own, 2}, {second, 1}};
	struct gp_opt joined[GP_OPT_MAX];
	assert_int_equal(gp_opt_join(parts, 2, joined), 3);
	assert_int_equal(joined[0].type, GP_OPT_INT);
	assert_int_equal(joined[0].offset, offsetof(struct settings, batch));
	assert_string_equal(joined[0].value, "N");
	assert_string_equal(joined[0].initial, "8");
	assert_string_equal(joined[0].help, "other");
	assert_null(joined[0].group);
	assert_true(joined[0].min == 2 && joined[0].max == 32);
	assert_int_equal(joined[1].type, GP_OPT_CHOICE);
	assert_non_null(joined[1].choices);
	assert_string_equal(joined[1].group, "Own");
	assert_int_equal(joined[2].offset, sizeof(int64_t));
	assert_string_equal(joined[2].initial, "8");
}

static void config_file_sits_between_defaults_and_command_line(void **state)
{
	(void)state;
	struct parsed p = parse_config("# a comment\r\n\nbatch = 16 # half\n  lr=0.5\njson = yes\nmodel = \" a # b \"\n"
				       "optimizer = adam",
				       "--lr=0.25");
	assert_int_equal(p.status, GP_OK);
	assert_int_equal(p.s.batch, 16);
	assert_true(p.s.lr == 0.25 && p.s.json);
	assert_string_equal(p.s.model, " a # b ");
	assert_int_equal(p.s.optimizer, 1);
	assert_true(gp_options_given(&table, &p.r, "batch"));
	gp_options_free(&p.r);
}

static void assert_config_fails(const char *text, const char *message)
{
	struct parsed p = parse_config(text, NULL);
	assert_int_equal(p.status, GP_INVALID);
	const char *after_name = strchr(p.err.text, ':');
	assert_non_null(after_name);
	assert_string_equal(after_name, message);
}

static void config_errors_name_file_and_line(void **state)
{
	(void)state;
	assert_config_fails("\nbatch = many\n", ":2: batch: 'many' is not a whole number (1..65536)");
	assert_config_fails("batch = 0\n", ":1: batch: 0 is out of range (1..65536)");
	assert_config_fails("\n\nbathc = 1\n", ":3: unknown key 'bathc'; did you mean 'batch'?");
	assert_config_fails("qqqqqqq = 1\n",
			    ":1: unknown key 'qqqqqqq'; keys are the flags of 'gpclient train --help' without dashes");
	assert_config_fails("batch 1\n", ":1: expected 'key = value'");
	assert_config_fails("config = other\n", ":1: a config file cannot name another one");
}

static void unreadable_config_files_are_refused(void **state)
{
	(void)state;
	assert_fails(GP_INVALID, "cannot open config file no/such/file: No such file or directory",
		     "--config=no/such/file");
	assert_fails(GP_INVALID, "cannot read config file tests: Is a directory", "--config", "tests");
	const char *path = write_config("batch = 1\0\n", 11);
	struct parsed p = PARSE("--config", path);
	unlink(path);
	assert_int_equal(p.status, GP_INVALID);
	assert_non_null(strstr(p.err.text, "holds binary data; it must be text"));
}

static void expect_text(const struct parsed *p, const char *name, const char *want)
{
	char text[64];
	gp_options_text(&table, &p->s, name, text, sizeof text);
	assert_string_equal(text, want);
}

static void values_become_text_that_parses_to_the_same(void **state)
{
	(void)state;
	struct parsed p = PARSE("--model", "cnn:width=2", "--batch", "8", "--lr", "0.1", "--optimizer", "adamw",
				"--window", "2k", "--delay", "1.5s", "--json");
	assert_int_equal(p.status, GP_OK);
	expect_text(&p, "model", "cnn:width=2");
	expect_text(&p, "batch", "8");
	expect_text(&p, "lr", "0.1");
	expect_text(&p, "optimizer", "adamw");
	expect_text(&p, "window", "2048");
	expect_text(&p, "delay", "1.5");
	expect_text(&p, "json", "true");
	expect_text(&p, "config", "");
	p.s.lr = 1.0 / 3;
	char text[64];
	gp_options_text(&table, &p.s, "lr", text, sizeof text);
	assert_true(strtod(text, NULL) == 1.0 / 3);
	gp_options_free(&p.r);
}

static void help_shows_groups_defaults_and_aligned_columns(void **state)
{
	(void)state;
	char text[8192] = {0};
	FILE *f = fmemopen(text, sizeof text - 1, "w");
	assert_non_null(f);
	gp_options_print_help(&table, f);
	fclose(f);
	assert_ptr_equal(strstr(text, "usage: gpclient train --model NAME [OPTIONS]\n\nTrains a model.\n\nModel:\n"),
			 text);
	assert_non_null(strstr(text, "\n  --model NAME                what to train (default cnn)\n"));
	assert_non_null(strstr(text, "\n  --batch N                   samples per step (1..65536; default 64)\n"));
	assert_non_null(strstr(text, "\n  --optimizer sgd|adam|adamw  update rule (default sgd)\n"));
	assert_non_null(
		strstr(text, "\n\nLink:\n  --window BYTES              bytes in flight (1k..1T; default 1M)\n"));
	assert_non_null(strstr(text, "\n  --[no-]color                color the progress line\n"));
	assert_non_null(
		strstr(text, "\n  --help                      show this text\n\nExamples:\n  gpclient train --mo"));
}

static void help_wins_over_errors(void **state)
{
	(void)state;
	fflush(stdout);
	int saved = dup(STDOUT_FILENO);
	FILE *to = tmpfile();
	assert_non_null(to);
	dup2(fileno(to), STDOUT_FILENO);
	struct parsed p = PARSE("--nonsense", "--help");
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	char line[128] = "";
	rewind(to);
	assert_non_null(fgets(line, sizeof line, to));
	fclose(to);
	assert_int_equal(p.status, GP_OK);
	assert_true(p.r.help);
	assert_string_equal(line, "usage: gpclient train --model NAME [OPTIONS]\n");
	gp_options_free(&p.r);
}

#ifdef GP_FAULTS
static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	const char *path = write_config("model = x\n", 10);
	for (uint64_t nth = 1;; nth++) {
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		struct parsed p = PARSE("--config", path, "--model", "y");
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		if (p.status == GP_OK) {
			gp_options_free(&p.r);
			assert_true(nth > 4);
			break;
		}
		assert_int_equal(p.status, GP_NOMEM);
	}
	unlink(path);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_fill_what_was_not_given),
		cmocka_unit_test(value_of_a_bare_choice_is_optional),
		cmocka_unit_test(both_forms_of_a_flag_are_understood),
		cmocka_unit_test(the_last_of_repeated_flags_wins),
		cmocka_unit_test(negative_and_empty_values_are_values),
		cmocka_unit_test(unknown_flags_name_the_nearest_known_one),
		cmocka_unit_test(wrong_values_name_flag_and_form),
		cmocka_unit_test(an_open_end_is_out_of_range_and_told_so),
		cmocka_unit_test(missing_values_are_noticed),
		cmocka_unit_test(positionals_are_counted),
		cmocka_unit_test(any_number_of_positionals_can_be_taken),
		cmocka_unit_test(joined_rows_are_one_table),
		cmocka_unit_test(a_row_that_is_like_another_takes_what_it_leaves_out),
		cmocka_unit_test(config_file_sits_between_defaults_and_command_line),
		cmocka_unit_test(config_errors_name_file_and_line),
		cmocka_unit_test(unreadable_config_files_are_refused),
		cmocka_unit_test(values_become_text_that_parses_to_the_same),
		cmocka_unit_test(help_shows_groups_defaults_and_aligned_columns),
		cmocka_unit_test(help_wins_over_errors),
#ifdef GP_FAULTS
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
