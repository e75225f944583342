/* SPDX-License-Identifier: Apache-2.0
 *
 * See privacy_inputs.h. Test: tests/unit/test_privacy_meter.c
 */
#include "client/privacy/privacy_inputs.h"

#include <math.h>
#include <string.h>

#include "client/privacy/distance_correlation.h"
#include "common/base/mem.h"

static int find_tensor(const struct gp_batch *batch, const char *name)
{
	for (int i = 0; i < batch->tensors; i++)
		if (strcmp(batch->info[i].name, name) == 0 && batch->info[i].type.dtype == GP_I32)
			return i;
	return -1;
}

/* --- texts ------------------------------------------------------------------------------------------------------- */

/* The token ids of each sample, sorted. */
struct texts {
	int32_t *id;
	size_t most; /* positions of a sample */
	size_t *count;
};

static size_t tokens_of(const struct gp_batch *batch, int sample, size_t positions)
{
	const int length = find_tensor(batch, "length"), mask = find_tensor(batch, "mask");
	size_t count = positions;
	if (length >= 0) {
		const int32_t n = ((const int32_t *)batch->data[length])[sample];
		count = n < 0 ? 0 : (size_t)n;
	} else if (mask >= 0 && gp_shape_elements(&batch->info[mask].type.shape) == positions) {
		const int32_t *m = (const int32_t *)batch->data[mask] + (size_t)sample * positions;
		while (count > 0 && m[count - 1] == 0)
			count--;
	}
	return count < positions ? count : positions;
}

static int compare_ids(const void *a, const void *b)
{
	const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return (x > y) - (x < y);
}

static void sort_texts(const struct gp_batch *batch, int tokens, int n, struct texts *t)
{
	for (int i = 0; i < n; i++) {
		int32_t *to = t->id + (size_t)i * t->most;
		t->count[i] = tokens_of(batch, i, t->most);
		memcpy(to, (const int32_t *)batch->data[tokens] + (size_t)i * t->most, t->count[i] * sizeof *to);
		qsort(to, t->count[i], sizeof *to, compare_ids);
	}
}

/* How often the first of `count` sorted ids stands there. */
static size_t run_of(const int32_t *id, size_t count)
{
	size_t n = 0;
	while (n < count && id[n] == id[0])
		n++;
	return n;
}

/* Squared distance of the counts. */
static double count_distance(const struct texts *t, int a, int b)
{
	const int32_t *x = t->id + (size_t)a * t->most, *y = t->id + (size_t)b * t->most;
	const int32_t *const x_end = x + t->count[a], *const y_end = y + t->count[b];
	double sum = 0;
	while (x < x_end || y < y_end) {
		const bool of_x = x < x_end && (y == y_end || *x <= *y), of_y = y < y_end && (x == x_end || *y <= *x);
		const size_t nx = of_x ? run_of(x, (size_t)(x_end - x)) : 0;
		const size_t ny = of_y ? run_of(y, (size_t)(y_end - y)) : 0;
		const double wrong = (double)nx - (double)ny;
		sum += wrong * wrong;
		x += nx;
		y += ny;
	}
	return sum;
}

static enum gp_status add_texts(const struct gp_batch *batch, int tokens, int n, double *d, struct gp_err *err)
{
	struct texts t = {.most = (size_t)gp_shape_elements(&batch->info[tokens].type.shape)};
	t.id = gp_calloc((size_t)n, t.most * sizeof *t.id);
	t.count = gp_calloc((size_t)n, sizeof *t.count);
	if (t.id && t.count) {
		sort_texts(batch, tokens, n, &t);
		for (int i = 0; i < n; i++)
			for (int j = 0; j < n; j++)
				d[i * n + j] += i == j ? 0 : count_distance(&t, i, j);
	}
	const bool done = t.id && t.count;
	gp_free(t.id);
	gp_free(t.count);
	if (!done)
		GP_FAIL(err, GP_NOMEM, "out of memory for the tokens of %d texts", n);
	return GP_OK;
}

/* --- all --------------------------------------------------------------------------------------------------------- */

enum gp_status gp_privacy_input_distances(const struct gp_batch *batch, int n, double *d, struct gp_err *err)
{
	const int tokens = find_tensor(batch, "tokens");
	memset(d, 0, (size_t)n * (size_t)n * sizeof *d);
	for (int i = 0; i < batch->tensors; i++)
		if (batch->info[i].type.dtype == GP_F32)
			gp_distance_add(batch->data[i], n, gp_shape_elements(&batch->info[i].type.shape), d);
	if (tokens >= 0)
		GP_TRY(add_texts(batch, tokens, n, d, err));
	gp_distance_roots(d, n);
	return GP_OK;
}

static double label_distance(const struct gp_batch *batch, int a, int b)
{
	if (batch->label_info.type.dtype == GP_I32)
		return ((const int32_t *)batch->label)[a] != ((const int32_t *)batch->label)[b];
	return fabs((double)((const float *)batch->label)[a] - (double)((const float *)batch->label)[b]);
}

bool gp_privacy_label_distances(const struct gp_batch *batch, int n, double *d)
{
	if (batch->label_info.type.shape.ndim != 0)
		return false;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++)
			d[i * n + j] = label_distance(batch, i, j);
	return true;
}
