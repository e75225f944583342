/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_values.h. Test: tests/unit/test_data_texts.c
 */
#include "client/data/text_values.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/value.h"

enum gp_status gp_text_values_read(const struct gp_table *table, const char *path, const struct gp_value_range *range,
				   float **out, struct gp_err *err)
{
	const struct gp_value_form form = {
		.type = GP_VALUE_REAL, .min = range ? range->least : 0, .max = range ? range->most : 0};
	char why[GP_VALUE_WHY];
	void *memory;
	GP_TRY(gp_alloc_array(&memory, table->rows, sizeof(float), err));
	float *value = memory;
	for (uint32_t i = 0; i < table->rows; i++) {
		union gp_value v;
		bool fits = gp_value_parse(&form, table->row[i].label, &v, why);
		if (fits && !(fabs(v.real) <= (double)FLT_MAX)) {
			snprintf(why, sizeof why, "%g is too large for a float", v.real);
			fits = false;
		}
		if (!fits) {
			gp_free(value);
			GP_FAIL(err, GP_INVALID, "%s:%u: the value to predict: %s", path, table->row[i].line, why);
		}
		value[i] = (float)v.real;
	}
	*out = value;
	return GP_OK;
}
