/* SPDX-License-Identifier: Apache-2.0
 *
 * The privacy meter: which steps are due, chunks put in their order and once more, tensors of
 * two steps at a time, and distances of inputs and labels.
 */
#include <math.h>
#include <string.h>

#include "client/privacy/privacy_inputs.h"
#include "client/privacy/privacy_meter.h"
#include "tests/unit/ok.h"
#include "tests/unit/picture_batch.h"

enum { N = 8, EACH = 5, CHUNK = 4 };

struct rig {
	float images[N * EACH];
	int32_t labels[N];
	struct gp_batch batch;
	struct gp_privacy_meter *meter;
};

static void rig_init(struct rig *r, uint64_t every)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {EACH}};
	for (int i = 0; i < N * EACH; i++)
		r->images[i] = sinf((float)(i * i) * 0.37f);
	for (int i = 0; i < N; i++)
		r->labels[i] = i % 3;
	r->batch = picture_batch(r->images, &sample, r->labels, NULL, N);
	OK(gp_privacy_meter_new(every, &r->meter, &err));
	gp_privacy_set_size(r->meter, N, EACH);
}

static void put(struct rig *r, uint64_t done, enum gp_direction d, int chunk, const float *x)
{
	const struct gp_privacy_tensor t = {.done = done,
					    .direction = d,
					    .first = chunk * CHUNK,
					    .samples = CHUNK,
					    .each = EACH,
					    .room = EACH,
					    .x = x + chunk * CHUNK * EACH};
	OK(gp_privacy_put(r->meter, &t, &err));
}

static struct gp_privacy_report measure(struct rig *r, uint64_t done)
{
	struct gp_privacy_report report;
	OK(gp_privacy_measure(r->meter, done, &r->batch, &report, &err));
	return report;
}

static bool is_one(double x)
{
	return fabs(x - 1) < 1e-6;
}

static void every_kth_step_is_due(void **state)
{
	struct rig r;
	(void)state;
	rig_init(&r, 3);
	assert_false(gp_privacy_due(r.meter, 0) || gp_privacy_due(r.meter, 1));
	assert_true(gp_privacy_due(r.meter, 2) && gp_privacy_due(r.meter, 5));
	assert_false(gp_privacy_due(NULL, 2));
	gp_privacy_meter_free(r.meter);
}

/* As where a server begins anew with smaller ranks, and the engine makes its flows anew: a tensor that has kept its
 * size has room for as many samples as before. */
static void the_first_size_holds(void **state)
{
	struct rig r;
	(void)state;
	rig_init(&r, 1);
	gp_privacy_meter_free(r.meter);
	OK(gp_privacy_meter_new(1, &r.meter, &err));
	gp_privacy_set_size(r.meter, N, UINT64_C(1) << 24); /* room for CHUNK samples */
	put(&r, 0, GP_ACT_UP, 0, r.images);
	gp_privacy_set_size(r.meter, N, EACH);
	put(&r, 2, GP_ACT_UP, 0, r.images); /* to where the tensor of step 0 was */
	put(&r, 2, GP_ACT_UP, 1, r.images);
	const struct gp_privacy_report report = measure(&r, 2);
	assert_int_equal(report.samples, CHUNK);
	assert_true(is_one(report.of[GP_ACT_UP].inputs.corrected));
	gp_privacy_meter_free(r.meter);
}

static void inputs_that_cross_as_they_are_have_correlation_1(void **state)
{
	struct rig r;
	(void)state;
	rig_init(&r, 1);
	put(&r, 0, GP_ACT_UP, 0, r.images);
	put(&r, 0, GP_ACT_UP, 1, r.images);
	put(&r, 0, GP_GRAD_UP, 0, r.images); /* its second chunk is missing */
	const struct gp_privacy_report report = measure(&r, 0);
	assert_int_equal(report.step, 1);
	assert_int_equal(report.samples, N);
	assert_true(report.of[GP_ACT_UP].there && is_one(report.of[GP_ACT_UP].inputs.corrected));
	assert_true(report.labels && report.of[GP_ACT_UP].labels.plain < 0.99);
	assert_false(report.of[GP_GRAD_UP].there || report.of[GP_ACT_DOWN].there);
	gp_privacy_meter_free(r.meter);
}

/* As when a link breaks and a step is taken back. */
static void a_step_that_begins_anew_is_put_anew(void **state)
{
	struct rig r;
	float other[N * EACH];
	(void)state;
	rig_init(&r, 1);
	for (int i = 0; i < N * EACH; i++)
		other[i] = (float)(i % 7);
	put(&r, 4, GP_ACT_UP, 0, other);
	put(&r, 4, GP_ACT_UP, 1, other);
	put(&r, 4, GP_ACT_UP, 0, r.images);
	assert_false(measure(&r, 4).of[GP_ACT_UP].there); /* half of it is old */
	put(&r, 4, GP_ACT_UP, 1, r.images);
	assert_true(is_one(measure(&r, 4).of[GP_ACT_UP].inputs.corrected));
	gp_privacy_meter_free(r.meter);
}

static void the_next_step_may_begin_before_one_is_measured(void **state)
{
	struct rig r;
	float other[N * EACH];
	(void)state;
	rig_init(&r, 1);
	for (int i = 0; i < N * EACH; i++)
		other[i] = (float)(i % 7);
	for (int c = 0; c < 2; c++)
		put(&r, 0, GP_ACT_UP, c, r.images);
	put(&r, 1, GP_ACT_UP, 0, other);
	assert_true(is_one(measure(&r, 0).of[GP_ACT_UP].inputs.corrected));
	put(&r, 1, GP_ACT_UP, 1, other);
	const struct gp_privacy_report report = measure(&r, 1);
	assert_true(report.of[GP_ACT_UP].there && !is_one(report.of[GP_ACT_UP].inputs.corrected));
	assert_false(measure(&r, 2).of[GP_ACT_UP].there); /* nothing was put */
	gp_privacy_meter_free(r.meter);
}

/* Positions that a chunk does not have count as zeros. */
static void shorter_chunks_are_filled_up(void **state)
{
	struct rig r;
	float prefix[N * 2];
	(void)state;
	rig_init(&r, 1);
	for (int i = 0; i < N; i++) {
		memcpy(prefix + 2 * i, r.images + EACH * i, 2 * sizeof *prefix);
		memset(r.images + EACH * i + 2, 0, (EACH - 2) * sizeof *prefix);
	}
	const struct gp_privacy_tensor t = {
		.direction = GP_ACT_DOWN, .samples = N, .each = 2, .room = EACH, .x = prefix};
	OK(gp_privacy_put(r.meter, &t, &err));
	assert_true(is_one(measure(&r, 0).of[GP_ACT_DOWN].inputs.corrected));
	gp_privacy_meter_free(r.meter);
}

/* Gradients of the loss with respect to scores differ by class alone when all scores are equal. */
static void labels_that_cross_have_correlation_1(void **state)
{
	struct rig r;
	float one_hot[N * EACH] = {0};
	(void)state;
	rig_init(&r, 1);
	for (int i = 0; i < N; i++)
		one_hot[i * EACH + r.labels[i]] = -1;
	for (int c = 0; c < 2; c++)
		put(&r, 0, GP_GRAD_UP, c, one_hot);
	const struct gp_privacy_report report = measure(&r, 0);
	assert_true(is_one(report.of[GP_GRAD_UP].labels.corrected));
	assert_true(report.of[GP_GRAD_UP].inputs.corrected < 0.9);
	gp_privacy_meter_free(r.meter);
}

/* --- texts ------------------------------------------------------------------------------------------------------- */

static void texts_are_compared_by_the_counts_of_their_tokens(void **state)
{
	int32_t tokens[4 * 5] = {7, 7, 3, 9, 1, /**/ 3, 7, 7, 1, 1, /**/ 5, 5, 5, 0, 0, /**/ 1, 2, 3, 4, 5};
	int32_t length[4] = {3, 3, 2, 0};
	float values[4] = {0.5f, 2, 0.5f, -1};
	const struct gp_tensor_info info[] = {{.name = "tokens", .type = {GP_I32, {.ndim = 1, .dim = {5}}}},
					      {.name = "length", .type = {GP_I32, {.ndim = 1, .dim = {1}}}}};
	struct gp_batch b = {.tensors = 2,
			     .info = info,
			     .data = {tokens, length},
			     .label_info = {.name = "label", .type = {.dtype = GP_F32}},
			     .label = values,
			     .valid = 4,
			     .room = 4};
	double d[16];
	(void)state;
	OK(gp_privacy_input_distances(&b, 4, d, &err));
	assert_true(d[0 * 4 + 1] == 0);                           /* the same tokens in another order */
	assert_true(fabs(d[0 * 4 + 2] - sqrt(4 + 1 + 4)) < 1e-9); /* 7 twice, 3 once; 5 twice */
	assert_true(fabs(d[2 * 4 + 3] - 2) < 1e-9);               /* one without tokens */
	assert_true(gp_privacy_label_distances(&b, 4, d));
	assert_true(d[0 * 4 + 1] == 1.5 && d[0 * 4 + 2] == 0 && d[1 * 4 + 3] == 3);
	b.label_info.type = (struct gp_type){GP_I32, {.ndim = 1, .dim = {2}}};
	assert_false(gp_privacy_label_distances(&b, 4, d));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kth_step_is_due),
		cmocka_unit_test(the_first_size_holds),
		cmocka_unit_test(inputs_that_cross_as_they_are_have_correlation_1),
		cmocka_unit_test(a_step_that_begins_anew_is_put_anew),
		cmocka_unit_test(the_next_step_may_begin_before_one_is_measured),
		cmocka_unit_test(shorter_chunks_are_filled_up),
		cmocka_unit_test(labels_that_cross_have_correlation_1),
		cmocka_unit_test(texts_are_compared_by_the_counts_of_their_tokens),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
