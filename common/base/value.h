/* SPDX-License-Identifier: Apache-2.0
 *
 * Values that a user or a peer wrote: yes or no, numbers, sizes, rates, times,
 * one of several words. Every flag, key of a configuration file and key of a
 * spec is read here, so that each is written the same way everywhere and is
 * refused in the same words. The whole text must be used. Nothing here
 * allocates.
 *
 * Threads: any. Test: tests/unit/test_value.c
 */
#ifndef GP_VALUE_H
#define GP_VALUE_H

#include <stdint.h>

#include "common/base/text.h"

enum gp_value_type {
	GP_VALUE_BOOL,    /* "yes" "no", "on" "off", "true" "false", "1" "0" */
	GP_VALUE_INT,     /* int64_t */
	GP_VALUE_REAL,    /* finite double */
	GP_VALUE_TEXT,    /* as it is */
	GP_VALUE_CHOICE,  /* index into `choices` */
	GP_VALUE_SIZE,    /* int64_t bytes: "64", "64k", "2M", "1G" (powers of 1024) */
	GP_VALUE_RATE,    /* double bits/s: "100mbit", "1gbit", "12.5MB" */
	GP_VALUE_TIME,    /* double seconds: "20ms", "1.5s", "2m"; a bare number is seconds */
	GP_VALUE_DECIMAL, /* double: digits and at most `decimals` behind a point, nine in all, no sign. Printed by
			   * gp_decimal_text it parses to the same double. */
};

/* What a value must be. */
struct gp_value_form {
	enum gp_value_type type;
	double min, max;     /* of numbers; ignored when both are 0 */
	bool below_max;      /* max itself is out of range */
	bool or_zero;        /* 0 is allowed besides min..max; not with below_max or an open end */
	int decimals;        /* DECIMAL: 0 to 6; 0: whole numbers */
	const char *choices; /* CHOICE: "sgd|adam|adamw" */
};

union gp_value {
	bool yes;            /* BOOL */
	int64_t whole;       /* INT, SIZE */
	double real;         /* REAL, RATE, TIME, DECIMAL */
	int choice;          /* CHOICE */
	struct gp_text text; /* TEXT: borrowed */
};

#define GP_VALUE_WHY 192
/* False, with `out` untouched: `why` says what is wrong as it follows a place and a colon: "'many' is not a whole number
 * (1..64)", "70 is out of range (1..64)". Control characters in it are '?'. */
bool gp_value_parse(const struct gp_value_form *form, struct gp_text text, union gp_value *out, char why[GP_VALUE_WHY]);
/* What is allowed, in the value's own unit: "1..64", "0 or 2..8", "at least 1", "sgd|adam"; "" when anything is. Returns
 * `text`. */
const char *gp_value_range(const struct gp_value_form *form, char text[GP_VALUE_WHY]);
/* The shortest text of a DECIMAL with that many decimals. Returns `text`. */
const char *gp_decimal_text(double value, int decimals, char text[GP_SHOWN]);

/* The same for one type, without a range. */
bool gp_parse_i64(const char *text, int64_t *out);
bool gp_parse_real(const char *text, double *out);
bool gp_parse_size(const char *text, int64_t *out);
bool gp_parse_rate(const char *text, double *out);
bool gp_parse_time(const char *text, double *out);

#endif
