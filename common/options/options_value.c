/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, the values: storing what common/base/value.h read in a settings
 * struct, with a message that names the flag or the line of the file. Knows
 * neither argv nor files (options.c). Test: tests/unit/test_options.c
 */
#include "common/options/options_internal.h"

const char *gp_opt_place(const struct gp_opt_source *from, const char *name, char *text)
{
	if (from->file)
		snprintf(text, GP_OPT_PLACE, "%.80s:%d: %s", from->file, from->line, name);
	else
		snprintf(text, GP_OPT_PLACE, "--%s", name);
	return text;
}

enum gp_status gp_opt_code(const struct gp_opt_source *from)
{
	return from->file ? GP_INVALID : GP_USAGE;
}

static struct gp_value_form form_of(const struct gp_opt *o)
{
	return (struct gp_value_form){.type = (enum gp_value_type)o->type,
				      .min = o->min,
				      .max = o->max,
				      .below_max = o->below_max,
				      .choices = o->choices};
}

const char *gp_opt_range_text(const struct gp_opt *o, char text[GP_VALUE_WHY])
{
	const struct gp_value_form form = form_of(o);
	text[0] = '\0';
	return o->type == GP_OPT_CHOICE ? text : gp_value_range(&form, text);
}

enum gp_status gp_opt_store(const struct gp_opt *o, const char *text, const struct gp_opt_source *from, void *settings,
			    struct gp_options_result *r, struct gp_err *err)
{
	void *field = (char *)settings + o->offset;
	const struct gp_value_form form = form_of(o);
	static const struct gp_value_form yes_or_no = {.type = GP_VALUE_BOOL};
	union gp_value v;
	char place[GP_OPT_PLACE], why[GP_VALUE_WHY];
	if (o->type == GP_OPT_TEXT)
		return gp_opt_copy(r, text, field, err);
	if (o->bare && gp_value_parse(&yes_or_no, gp_text_of(text), &v, why)) {
		*(int *)field = v.yes;
		return GP_OK;
	}
	if (!gp_value_parse(&form, gp_text_of(text), &v, why))
		GP_FAIL(err, gp_opt_code(from), "%s: %s", gp_opt_place(from, o->name, place), why);
	if (o->type == GP_OPT_FLAG)
		*(bool *)field = v.yes;
	else if (o->type == GP_OPT_CHOICE)
		*(int *)field = v.choice;
	else if (o->type == GP_OPT_INT || o->type == GP_OPT_SIZE)
		*(int64_t *)field = v.whole;
	else
		*(double *)field = v.real;
	return GP_OK;
}
