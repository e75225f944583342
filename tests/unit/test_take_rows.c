/* SPDX-License-Identifier: Apache-2.0
 *
 * The op take_rows (common/graph/ops/op_take_rows.h): what it refuses, what it
 * makes of sequences, chunks with fewer positions, numbers that are none, and sums
 * of rows that are taken several times, bit for bit the same on any number of
 * threads. Beside PyTorch: test_cpu_ops.c. On every device of this build.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_take_rows.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

enum { POSITIONS = 20, FEATURES = 70, TAKEN = 9, SAMPLES = 33, SHORT = 8 };

static struct gp_type type_of(enum gp_dtype dtype, int ndim, int64_t a, int64_t b)
{
	return (struct gp_type){dtype, {.ndim = ndim, .dim = {a, b}}};
}

/* --- the graph ---------------------------------------------------------------------------------------------------- */

/* Sequences where asked for; the last value is that of take_rows. */
static struct gp_graph *graph_of(const struct gp_type *x, const struct gp_type *numbers, bool sequence, int *last)
{
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	assert_int_equal(gp_graph_add_input(g, "x", x, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "numbers", numbers, &err), 1);
	if (sequence)
		gp_graph_mark_sequence(g, 0);
	OK(gp_graph_begin_block(g, "b", &err));
	*last = gp_graph_take_rows(g, "rows", 0, 1, &err);
	return g;
}

static struct gp_graph *rows_of(int positions, bool sequence)
{
	const struct gp_type x = type_of(GP_F32, 2, positions, FEATURES), numbers = type_of(GP_I32, 1, TAKEN, 0);
	int last;
	struct gp_graph *g = graph_of(&x, &numbers, sequence, &last);
	assert_true(last > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void rows_have_the_shape_of_their_numbers(void **state)
{
	(void)state;
	struct gp_graph *g = rows_of(POSITIONS, false);
	const struct gp_shape *out = gp_graph_output_shape(g);
	assert_true(out->ndim == 2 && out->dim[0] == TAKEN && out->dim[1] == FEATURES);
	gp_graph_free(g);
}

static void other_types_and_shapes_are_refused(void **state)
{
	(void)state;
	const struct {
		struct gp_type x, numbers;
		const char *part;
	} cases[] = {
		{type_of(GP_I32, 2, 5, 6), type_of(GP_I32, 1, 3, 0), "f32"},
		{type_of(GP_F32, 2, 5, 6), type_of(GP_F32, 1, 3, 0), "i32"},
		{type_of(GP_F32, 1, 5, 0), type_of(GP_I32, 1, 3, 0), "take_rows takes (S,F) and positions (P)"},
		{type_of(GP_F32, 2, 5, 6), type_of(GP_I32, 2, 3, 2), "take_rows takes (S,F) and positions (P)"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int last;
		struct gp_graph *g = graph_of(&cases[i].x, &cases[i].numbers, false, &last);
		assert_int_equal(last, -1);
		assert_int_equal(err.code, GP_INVALID);
		if (!strstr(err.text, cases[i].part))
			fail_msg("'%s' has no '%s'", err.text, cases[i].part);
		gp_graph_free(g);
	}
}

static void rows_end_a_sequence_whose_numbers_are_none(void **state)
{
	(void)state;
	struct gp_graph *g = rows_of(POSITIONS, true);
	assert_int_equal(gp_graph_sequence(g), POSITIONS);
	assert_false(g->value[g->output[0].value].sequence);
	gp_graph_free(g);
	const struct gp_type x = type_of(GP_F32, 2, POSITIONS, FEATURES), numbers = type_of(GP_I32, 1, POSITIONS, 0);
	int last;
	g = gp_graph_new_empty("g", &err);
	gp_graph_mark_sequence(g, gp_graph_add_input(g, "x", &x, &err));
	gp_graph_mark_sequence(g, gp_graph_add_input(g, "numbers", &numbers, &err));
	OK(gp_graph_begin_block(g, "b", &err));
	last = gp_graph_take_rows(g, "rows", 0, 1, &err);
	assert_true(last > 0);
	OK(gp_graph_finish(g, &err));
	assert_int_equal(gp_graph_sequence(g), 0);
	gp_graph_free(g);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static const struct place {
	const char *device;
	int threads;
} places[] = {{"cpu", 1}, {"cpu", 2}, {"cpu", 3}, {"cuda-emulated", 1}, {"cuda", 1}};
enum { PLACES = sizeof places / sizeof places[0] };

struct bed {
	struct gp_graph *graph;
	struct gp_device *device;
	struct gp_plan *plan;
};

/* False: this build has no such device. */
static bool open_bed(struct bed *b, const struct place *place, int positions, bool sequence)
{
	if (gp_device_open(place->device, place->threads, &b->device, &err) != GP_OK)
		return false;
	b->graph = rows_of(positions, sequence);
	const struct gp_plan_spec spec = {
		.graph = b->graph, .batch = SAMPLES, .slots = 1, .train = true, .grad_inputs = 1};
	OK(b->device->ops->plan_new(b->device, &spec, &b->plan, &err));
	return true;
}

static void close_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->device->ops->close(b->device);
	gp_graph_free(b->graph);
}

static void *buffer(const struct bed *b, enum gp_plan_buf which, int index)
{
	void *at = b->plan->ops->buffer(b->plan, 0, which, index);
	assert_non_null(at);
	return at;
}

static float number_at(uint64_t of, int64_t i)
{
	return gp_rng_normal(5, of, (uint64_t)i);
}

static const int32_t strange[] = {-1, INT32_MIN, INT32_MAX, POSITIONS};

/* Some several times in a sample, some none. */
static int32_t row_at(int64_t i)
{
	const uint32_t word = gp_rng_u32(6, 0, (uint64_t)i);
	return word % 5 == 0 ? strange[word / 5 % 4] : (int32_t)(word % (POSITIONS / 2));
}

static void fill(const struct bed *b, int positions)
{
	float *x = buffer(b, GP_BUF_INPUT, 0), *dout = buffer(b, GP_BUF_GRAD_OUTPUT, 0);
	int32_t *row = buffer(b, GP_BUF_INPUT, 1);
	for (int64_t i = 0; i < (int64_t)SAMPLES * positions * FEATURES; i++)
		x[i] = number_at(1, i);
	for (int64_t i = 0; i < SAMPLES * TAKEN; i++)
		row[i] = row_at(i);
	for (int64_t i = 0; i < SAMPLES * TAKEN * FEATURES; i++)
		dout[i] = number_at(2, i);
}

/* What a chunk with so many positions gives, by the definition; sums in the order of the numbers. */
static void check(const struct bed *b, int positions)
{
	const float *out = buffer(b, GP_BUF_OUTPUT, 0), *dx = buffer(b, GP_BUF_GRAD_INPUT, 0);
	float *want = gp_calloc((size_t)SAMPLES * POSITIONS * FEATURES, sizeof *want);
	assert_non_null(want);
	for (int64_t i = 0; i < SAMPLES * TAKEN; i++) {
		const int32_t row = row_at(i);
		const bool there = row >= 0 && row < positions;
		const int64_t at = (i / TAKEN * positions + row) * FEATURES;
		for (int64_t f = 0; f < FEATURES; f++) {
			assert_true(out[i * FEATURES + f] == (there ? number_at(1, at + f) : 0.0f));
			if (there)
				want[at + f] += number_at(2, i * FEATURES + f);
		}
	}
	for (int64_t i = 0; i < (int64_t)SAMPLES * positions * FEATURES; i++)
		assert_true(dx[i] == want[i]);
	gp_free(want);
}

static void run(const struct bed *b, int positions)
{
	fill(b, positions);
	OK(b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	OK(b->plan->ops->backward(b->plan, 0, &err));
	check(b, positions);
}

/* The second time over what the first has left. */
static void rows_are_taken_and_given_back_in_order(void **state)
{
	(void)state;
	for (int i = 0; i < PLACES; i++) {
		struct bed b;
		if (!open_bed(&b, &places[i], POSITIONS, false))
			continue;
		run(&b, POSITIONS);
		run(&b, POSITIONS);
		close_bed(&b);
	}
}

/* There, numbers beyond the chunk's positions are none, whatever the graph has. */
static void a_short_chunk_has_only_its_own_positions(void **state)
{
	(void)state;
	for (int i = 0; i < PLACES; i++) {
		struct bed b;
		if (!open_bed(&b, &places[i], POSITIONS, true))
			continue;
		run(&b, POSITIONS);
		if (b.plan->ops->set_length) {
			b.plan->ops->set_length(b.plan, 0, SHORT);
			run(&b, SHORT);
			b.plan->ops->set_length(b.plan, 0, 0);
			run(&b, POSITIONS);
		}
		close_bed(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_have_the_shape_of_their_numbers),
		cmocka_unit_test(other_types_and_shapes_are_refused),
		cmocka_unit_test(rows_end_a_sequence_whose_numbers_are_none),
		cmocka_unit_test(rows_are_taken_and_given_back_in_order),
		cmocka_unit_test(a_short_chunk_has_only_its_own_positions),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
