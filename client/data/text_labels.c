/* SPDX-License-Identifier: Apache-2.0
 *
 * See text_labels.h. Test: tests/unit/test_data_texts.c
 */
#include "client/data/text_labels.h"

#include <string.h>

#include "client/text/utf8.h"
#include "common/base/value.h"

static bool as_number(struct gp_text t, int64_t *out)
{
	char copy[24];
	return gp_text_copy(t, copy, sizeof copy) && gp_parse_i64(copy, out);
}

/* As numbers where both are, else numbers before words and words by their bytes. */
int gp_text_labels_compare(struct gp_text a, struct gp_text b)
{
	int64_t x, y;
	const bool first = as_number(a, &x), second = as_number(b, &y);
	if (first && second && x != y)
		return x < y ? -1 : 1;
	if (first != second)
		return first ? -1 : 1;
	const int c = memcmp(a.at, b.at, a.len < b.len ? a.len : b.len);
	return c ? c : (a.len > b.len) - (a.len < b.len);
}

int gp_text_labels_find(const struct gp_text_labels *l, struct gp_text name, bool *there)
{
	int low = 0, high = l->count;
	while (low < high) {
		const int middle = (low + high) / 2;
		if (gp_text_labels_compare(l->name[middle], name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*there = low < l->count && gp_text_labels_compare(l->name[low], name) == 0;
	return low;
}

bool gp_text_labels_add(struct gp_text_labels *l, struct gp_text name)
{
	bool there;
	const int at = gp_text_labels_find(l, name, &there);
	if (there)
		return true;
	if (l->count == GP_TEXT_LABELS_MOST)
		return false;
	memmove(l->name + at + 1, l->name + at, (size_t)(l->count - at) * sizeof *l->name);
	l->name[at] = name;
	l->count++;
	return true;
}

enum gp_status gp_text_labels_collect(struct gp_text_labels *l, const struct gp_table *table, const char *path,
				      struct gp_err *err)
{
	for (uint32_t i = 0; i < table->rows; i++) {
		const struct gp_table_row *row = &table->row[i];
		if (!gp_utf8_is(row->label))
			GP_FAIL(err, GP_INVALID, "%s:%u: the label is not UTF-8", path, row->line);
		if (!gp_text_labels_add(l, row->label))
			GP_FAIL(err, GP_INVALID, "%s:%u: more than %d different labels: is this the column of labels?",
				path, row->line, GP_TEXT_LABELS_MOST);
	}
	return GP_OK;
}
