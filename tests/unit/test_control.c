/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages (common/wire/control.h): unpacking within bounded memory, and
 * without any in the steady state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire/control.h"

static struct gp_span pack(const Gpsplit__Control *m, uint8_t *bytes)
{
	return (struct gp_span){bytes, gpsplit__control__pack(m, bytes)};
}

static struct gp_span pack_commit(uint64_t step, float lr, uint8_t *bytes)
{
	Gpsplit__Commit body = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	body.step = step;
	body.lr = lr;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &body;
	return pack(&m, bytes);
}

static void commits_unpack_without_touching_the_heap(void **state)
{
	(void)state;
	struct gp_control_arena a;
	struct gp_err err;
	uint8_t bytes[64];
	const Gpsplit__Control *m;
	gp_control_arena_init(&a, 1 << 20);
	assert_int_equal(gp_control_unpack(&a, pack_commit(0, 0.25f, bytes), &m, &err), GP_OK); /* takes the block */
	uint64_t before = gp_mem_calls();
	for (uint64_t step = 0; step < 10000; step++) {
		assert_int_equal(gp_control_unpack(&a, pack_commit(step, 0.25f, bytes), &m, &err), GP_OK);
		assert_int_equal(m->commit->step, step);
		assert_true(m->commit->lr == 0.25f);
	}
	assert_int_equal(gp_mem_calls(), before);
	gp_control_arena_deinit(&a);
}

static void bytes_that_are_no_control_are_refused(void **state)
{
	(void)state;
	struct gp_control_arena a;
	struct gp_err err;
	const Gpsplit__Control *m;
	gp_control_arena_init(&a, 1 << 20);
	assert_int_equal(gp_control_unpack(&a, (struct gp_span){NULL, 0}, &m, &err), GP_PROTO);
	assert_int_equal(
		gp_control_unpack(&a, (struct gp_span){(const uint8_t *)"\x0a\xff\xff\xff\xff\x0f", 6}, &m, &err),
		GP_PROTO);
	gp_control_arena_deinit(&a);
}

/* Control.open.graph with so many nodes of the same bytes. */
static struct gp_span pack_nodes(int nodes, const char *node, uint8_t *bytes)
{
	Gpsplit__Graph graph = GPSPLIT__GRAPH__INIT;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	Gpsplit__Node one = GPSPLIT__NODE__INIT;
	uint32_t in[1] = {7};
	one.name = (char *)node;
	one.op = node[0] ? 4 : 0;
	one.in = in;
	one.n_in = node[0] ? 1 : 0;
	graph.n_node = (size_t)nodes;
	graph.node = gp_calloc((size_t)nodes, sizeof *graph.node);
	for (int i = 0; i < nodes; i++)
		graph.node[i] = &one;
	open.graph = &graph;
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	struct gp_span span = pack(&m, bytes);
	gp_free(graph.node);
	return span;
}

/* Two bytes on the wire become a Node of some hundred in memory: what a message may take goes by what it weighs. */
static void an_amplifying_message_meets_the_ceiling(void **state)
{
	(void)state;
	enum { NODES = 100000 };
	struct gp_control_arena a;
	struct gp_err err;
	const Gpsplit__Control *m;
	uint8_t *bytes = gp_calloc(NODES, 64);
	struct gp_span bomb = pack_nodes(NODES, "", bytes);
	assert_true(bomb.len < 3 * NODES);
	gp_control_arena_init(&a, 64 << 20);
	assert_int_equal(gp_control_unpack(&a, bomb, &m, &err), GP_NOMEM);
	assert_true(a.spilled <= 25 * bomb.len);
	gp_control_arena_deinit(&a);
	gp_free(bytes);
}

static void a_message_of_many_small_nodes_fits(void **state)
{
	(void)state;
	enum { NODES = 4096 };
	struct gp_control_arena a;
	struct gp_err err;
	const Gpsplit__Control *m;
	uint8_t *bytes = gp_calloc(NODES, 64);
	struct gp_span relus = pack_nodes(NODES, "layer1.0", bytes);
	gp_control_arena_init(&a, 16 << 20);
	assert_int_equal(gp_control_unpack(&a, relus, &m, &err), GP_OK);
	assert_int_equal(m->open->graph->n_node, NODES);
	gp_control_arena_deinit(&a);
	gp_control_arena_init(&a, 1 << 16); /* the ceiling of all messages */
	assert_int_equal(gp_control_unpack(&a, relus, &m, &err), GP_NOMEM);
	gp_control_arena_deinit(&a);
	gp_free(bytes);
}

/* GRAD_SQUARES of a large body, in every step. */
static void a_message_of_the_reserved_size_unpacks_without_touching_the_heap(void **state)
{
	(void)state;
	enum { SUMS = 10000 };
	Gpsplit__GradSquares squares = GPSPLIT__GRAD_SQUARES__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	struct gp_control_arena a;
	struct gp_err err;
	const Gpsplit__Control *out;
	uint8_t *bytes = gp_calloc(GP_CONTROL_SQUARES_BYTES(SUMS), 1);
	squares.step = UINT64_MAX;
	squares.n_sum = SUMS;
	squares.sum = gp_calloc(SUMS, sizeof *squares.sum);
	m.body_case = GPSPLIT__CONTROL__BODY_GRAD_SQUARES;
	m.grad_squares = &squares;
	struct gp_span span = pack(&m, bytes);
	assert_true(span.len <= GP_CONTROL_SQUARES_BYTES(SUMS));
	gp_control_arena_init(&a, 1 << 20);
	assert_int_equal(gp_control_arena_reserve(&a, GP_CONTROL_SQUARES_BYTES(SUMS), &err), GP_OK);
	uint64_t before = gp_mem_calls();
	for (int i = 0; i < 3; i++)
		assert_int_equal(gp_control_unpack(&a, span, &out, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), before);
	gp_control_arena_deinit(&a);
	gp_free(squares.sum);
	gp_free(bytes);
}

static void texts_of_a_peer_are_made_printable(void **state)
{
	(void)state;
	char out[8];
	assert_string_equal(gp_text_sanitize("a\n\x1b[2Jb", out, sizeof out), "a??[2Jb");
	assert_string_equal(gp_text_sanitize("longer than it", out, sizeof out), "longer ");
	assert_string_equal(gp_text_sanitize(NULL, out, sizeof out), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commits_unpack_without_touching_the_heap),
		cmocka_unit_test(bytes_that_are_no_control_are_refused),
		cmocka_unit_test(an_amplifying_message_meets_the_ceiling),
		cmocka_unit_test(a_message_of_many_small_nodes_fits),
		cmocka_unit_test(a_message_of_the_reserved_size_unpacks_without_touching_the_heap),
		cmocka_unit_test(texts_of_a_peer_are_made_printable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
