/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_values.h. Test: tests/unit/test_data_texts.c
 */
#include "client/data/text_values.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "common/base/mem.h"

bool gp_text_value_parse(struct gp_text label, const struct gp_value_range *range, float *out, char why[GP_VALUE_WHY])
{
	const struct gp_value_form form = {
		.type = GP_VALUE_REAL, .min = range ? range->least : 0, .max = range ? range->most : 0};
	union gp_value v;
	if (!gp_value_parse(&form, label, &v, why))
		return false;
	if (!(fabs(v.real) <= (double)FLT_MAX)) {
		snprintf(why, GP_VALUE_WHY, "%g is too large for a float", v.real);
		return false;
	}
	*out = (float)v.real;
	return true;
}

enum gp_status gp_text_values_read(const struct gp_table *table, const char *path, const struct gp_value_range *range,
				   float **out, struct gp_err *err)
{
	char why[GP_VALUE_WHY];
	void *memory;
	GP_TRY(gp_alloc_array(&memory, table->rows, sizeof(float), err));
	float *value = memory;
	for (uint32_t i = 0; i < table->rows; i++) {
		if (gp_text_value_parse(table->row[i].label, range, &value[i], why))
			continue;
		gp_free(value);
		GP_FAIL(err, GP_INVALID, "%s:%u: the value to predict: %s", path, table->row[i].line, why);
	}
	*out = value;
	return GP_OK;
}
