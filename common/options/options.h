/* SPDX-License-Identifier: Apache-2.0
 *
 * Options: one table per command yields command-line parsing, --help, config
 * file keys and defaults. "--key value", "--key=value"; config files hold
 * "key = value" lines with '#' comments and the same names without dashes;
 * the command line wins.
 *
 * Threads: the main thread. Test: tests/unit/test_options.c; fuzz: fuzz_options.c
 */
#ifndef GP_OPTIONS_H
#define GP_OPTIONS_H

#include "common/base/status.h"
#include "common/base/value.h"

/* Each is read as the value of the same name in value.h, into a field of the type given here. */
enum gp_opt_type {
	GP_OPT_FLAG = GP_VALUE_BOOL,     /* bool: --json, --no-json */
	GP_OPT_INT = GP_VALUE_INT,       /* int64_t with min..max */
	GP_OPT_REAL = GP_VALUE_REAL,     /* double with min..max */
	GP_OPT_TEXT = GP_VALUE_TEXT,     /* const char * (owned by the gp_options_result) */
	GP_OPT_CHOICE = GP_VALUE_CHOICE, /* int: index into `choices` ("sgd|adam|adamw") */
	GP_OPT_SIZE = GP_VALUE_SIZE,     /* int64_t bytes */
	GP_OPT_RATE = GP_VALUE_RATE,     /* double bits/s */
	GP_OPT_TIME = GP_VALUE_TIME,     /* double seconds */
};

struct gp_opt {
	const char *name; /* "batch" */
	/* (optional) gp_opt_join takes all that is 0 or NULL here from the row of this name there, but for `group`; type
	 * always. A field of its own has an offset that is not 0. */
	const struct gp_opt_rows *like;
	enum gp_opt_type type;
	size_t offset;       /* of the field in the command's settings struct */
	const char *value;   /* placeholder in --help: "N"; NULL for flags */
	const char *initial; /* default as text, as a user would type it; NULL: zero / NULL */
	const char *help;    /* one line */
	double min, max;     /* INT, REAL, SIZE, RATE, TIME; ignored when both are 0 */
	bool below_max;      /* max itself is out of range */
	const char *choices; /* CHOICE */
	bool bare;           /* CHOICE whose choices begin with "no|yes": a value is optional, and only as --name=VALUE;
				--name alone says yes, --no-name says no, and so do all words of a FLAG */
	const char *group;   /* heading in --help; NULL: same as the one before */
};

struct gp_opt_table {
	const char *command;    /* "gpclient train" */
	const char *synopsis;   /* "--server HOST:PORT --model NAME --data NAME ..." */
	const char *about;      /* a few lines */
	const char *examples;   /* lines shown at the end; may be NULL */
	const char *positional; /* "HOST:PORT" or NULL when none are taken */
	int positional_max;     /* 0 with `positional`: any number */
	const struct gp_opt *opt;
	int count;
};

#define GP_OPT_MAX 128

/* Rows that several tables share. */
struct gp_opt_rows {
	const struct gp_opt *opt;
	int count;
};
#define GP_OPT_ROWS(array)                                                                                             \
	{                                                                                                              \
		array, sizeof array / sizeof array[0]                                                                  \
	}
/* Copies the parts one after another into out[GP_OPT_MAX]; returns the number of rows. */
int gp_opt_join(const struct gp_opt_rows *parts, int count, struct gp_opt *out);

/* Keeps the memory behind TEXT fields and positionals. */
struct gp_options_result {
	bool help; /* --help or GP_OPTIONS_ROWS was given and printed on stdout: exit 0 */
	int positionals;
	const char **positional;
	bool given[GP_OPT_MAX]; /* by the option's row: the user set it */
	char **owned;
	int owned_count;
};

/*
 * Fills `settings` with defaults, then --config FILE (if the table has an option "config"), then argv (from argv[0]:
 * the first argument after the command). GP_USAGE names the flag, what was wrong and the nearest known flag; GP_INVALID for
 * a config file's line ("FILE:12: ..."). On failure `r` holds nothing and TEXT fields are NULL.
 */
enum gp_status gp_options_parse(const struct gp_opt_table *t, int argc, char **argv, void *settings,
				struct gp_options_result *r, struct gp_err *err);
/* The same for a command whose rows are those of `parts`, one after another (gp_opt_join). */
enum gp_status gp_options_parse_parts(const struct gp_opt_table *t, const struct gp_opt_rows *parts, int count,
				      int argc, char **argv, void *settings, struct gp_options_result *r,
				      struct gp_err *err);
void gp_options_free(struct gp_options_result *r);
bool gp_options_given(const struct gp_opt_table *t, const struct gp_options_result *r, const char *name);
/* The value that option `name` has in `settings`, as text that parses to the same; of a FLAG "true" or "false". */
void gp_options_text(const struct gp_opt_table *t, const void *settings, const char *name, char *text, size_t size);
void gp_options_print_help(const struct gp_opt_table *t, FILE *to);

#define GP_OPTIONS_ROWS "--help=rows"
/*
 * What GP_OPTIONS_ROWS prints in place of --help, for programs that make manual pages and completions of it
 * (deploy/man/pages.awk): lines of fields with tabs between, the first of which says what the line is:
 *   command NAME SYNOPSIS, about LINE, positional NAME MOST, group NAME, example LINE,
 *   option NAME KIND CHOICES FLAG HELP (KIND: flag, value or optional; CHOICES with "|" between), command-of PROGRAM NAME SUMMARY
 */
void gp_options_print_rows(const struct gp_opt_table *t, FILE *to);
/* One line of the last kind. */
void gp_options_print_command(const char *program, const char *name, const char *summary, FILE *to);

#endif
