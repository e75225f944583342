/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient report: a page about one run, or about several beside each other,
 * from what train --log-json has written.
 * Test: tests/e2e/report.sh
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/report/report_page.h"
#include "client/report/report_read.h"
#include "common/base/durable.h"
#include "common/base/mem.h"
#include "common/base/new_file.h"

#define PROGRAM "gpclient report"

struct settings {
	const char *out;
};

static const struct gp_opt rows[] = {
	{.name = "out",
	 .type = GP_OPT_TEXT,
	 .offset = offsetof(struct settings, out),
	 .value = "FILE",
	 .initial = "report.html",
	 .help = "write the page there, or to standard output where FILE is -; -o FILE is the same"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "LOG... [-o FILE]",
	.about = "Makes a page from logs that train --log-json has written: loss and accuracy against steps, bytes and "
		 "time;\n"
		 "what bounded the steps; one step as a chart of all its stages; the link; what codecs lose; values. "
		 "Several\n"
		 "runs are shown beside each other. The page is one file, which needs no other, and no network.",
	.examples = "  gpclient report run.jsonl -o report.html\n"
		    "  gpclient report raw.jsonl uniform8.jsonl sortquant.jsonl -o codecs.html\n",
	.positional = "LOG...",
	.opt = rows,
	.count = sizeof rows / sizeof rows[0],
};

struct making {
	struct settings set;
	struct gp_report_run *run;
	int runs;
};

/* The name without its folders, unless another log has the same. */
static const char *name_of(const struct gp_options_result *r, int n)
{
	const char *path = r->positional[n], *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;
	for (int i = 0; i < r->positionals; i++) {
		const char *other = strrchr(r->positional[i], '/');
		if (i != n && strcmp(other && other[1] ? other + 1 : r->positional[i], name) == 0)
			return path;
	}
	return name;
}

static enum gp_status read_logs(struct making *m, const struct gp_options_result *r, struct gp_err *err)
{
	for (; m->runs < r->positionals; m->runs++) {
		struct gp_report_run *run = &m->run[m->runs];
		GP_TRY(gp_report_run_init(run, name_of(r, m->runs), err));
		const enum gp_status status = gp_report_read(r->positional[m->runs], run, err);
		if (status != GP_OK) {
			gp_report_run_deinit(run);
			return status;
		}
		for (int i = 0; i < run->notices; i++)
			fprintf(stderr, PROGRAM ": %s: %s\n", r->positional[m->runs], run->notice[i]);
	}
	return GP_OK;
}

static bool is_standard_output(const char *path)
{
	return strcmp(path, "-") == 0;
}

/* A log that was given as the page's name by mistake is not written over. */
static enum gp_status check_out(const struct making *m, const struct gp_options_result *r, struct gp_err *err)
{
	struct stat out, log;
	if (!*m->set.out)
		GP_FAIL(err, GP_USAGE, "--out needs the name of a file");
	for (int i = 0; i < r->positionals; i++)
		if (stat(m->set.out, &out) == 0 && stat(r->positional[i], &log) == 0 && out.st_dev == log.st_dev &&
		    out.st_ino == log.st_ino)
			GP_FAIL(err, GP_USAGE,
				"--out: %s is one of the logs, and would be written over: give another name",
				m->set.out);
	return GP_OK;
}

/* A pipe or a device, which is written to as it is. */
static bool is_no_file(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static enum gp_status write_to(int fd, const struct making *m, const struct gp_html *h, struct gp_err *err)
{
	return gp_write_all(fd, h->text, h->length, m->set.out, err);
}

static enum gp_status write_page(const struct making *m, const struct gp_html *h, struct gp_err *err)
{
	struct gp_new_file f;
	if (is_standard_output(m->set.out))
		return write_to(STDOUT_FILENO, m, h, err);
	if (!is_no_file(m->set.out)) {
		if (gp_new_file_begin(&f, m->set.out, err) != GP_OK)
			return gp_err_prefix(err, "--out");
		return gp_new_file_end(&f, write_to(f.fd, m, h, err), err);
	}
	const int fd = open(m->set.out, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		GP_FAIL(err, GP_INVALID, "--out: cannot write to %s: %s", m->set.out, strerror(errno));
	const enum gp_status status = write_to(fd, m, h, err);
	close(fd);
	return status;
}

static enum gp_status make_page(struct making *m, const struct gp_options_result *r, struct gp_err *err)
{
	struct gp_html h = {0};
	GP_TRY(read_logs(m, r, err));
	GP_TRY(check_out(m, r, err));
	enum gp_status status = gp_report_page(&h, m->run, m->runs, err);
	if (status == GP_OK)
		status = write_page(m, &h, err);
	if (status == GP_OK && !is_standard_output(m->set.out))
		printf("%s: %zu bytes, %d %s\n", m->set.out, h.length, m->runs, m->runs == 1 ? "run" : "runs");
	gp_html_deinit(&h);
	return status;
}

static enum gp_status run(struct making *m, int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	GP_TRY(gp_options_parse(&table, argc, argv, &m->set, r, err));
	if (r->help)
		return GP_OK;
	if (r->positionals == 0)
		GP_FAIL(err, GP_USAGE,
			"which log? Give what train --log-json has written, as in '" PROGRAM
			" run.jsonl -o report.html'");
	if (r->positionals > GP_REPORT_RUNS_MAX)
		GP_FAIL(err, GP_USAGE, "%d logs are more than a page has room for: give %d at most", r->positionals,
			GP_REPORT_RUNS_MAX);
	GP_TRY(gp_alloc_array((void **)&m->run, (size_t)r->positionals, sizeof *m->run, err));
	return make_page(m, r, err);
}

/* -o is --out: the one short option that people expect. */
static char **with_long_option(int argc, char **argv)
{
	static char out[] = "--out";
	char **words = gp_calloc((size_t)argc + 1, sizeof *words);
	for (int i = 0; words && i < argc; i++)
		words[i] = strcmp(argv[i], "-o") == 0 ? out : argv[i];
	return words;
}

int gp_cmd_report(int argc, char **argv)
{
	struct making m = {.runs = 0};
	struct gp_options_result r = {0};
	struct gp_err err = {0};
	char **words = with_long_option(argc, argv);
	const enum gp_status status = words ? run(&m, argc, words, &r, &err)
					    : gp_err_set(&err, GP_NOMEM, 0, __FILE__, __LINE__, "out of memory");
	for (int i = 0; i < m.runs; i++)
		gp_report_run_deinit(&m.run[i]);
	gp_free(m.run);
	gp_free(words);
	gp_options_free(&r);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	return gp_status_exit(status);
}
