/* SPDX-License-Identifier: Apache-2.0
 *
 * Control messages (common/control.h): unpacking within bounded memory, and
 * without any in the steady state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/control.h"

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
	assert_int_equal(gp_control_arena_init(&a, 1 << 20, &err), GP_OK);
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
	assert_int_equal(gp_control_arena_init(&a, 1 << 20, &err), GP_OK);
	assert_int_equal(gp_control_unpack(&a, (struct gp_span){NULL, 0}, &m, &err), GP_PROTO);
	assert_int_equal(
		gp_control_unpack(&a, (struct gp_span){(const uint8_t *)"\x0a\xff\xff\xff\xff\x0f", 6}, &m, &err),
		GP_PROTO);
	gp_control_arena_deinit(&a);
}

/* Two bytes on the wire become a Node of some hundred in memory: the arena's ceiling holds. */
static void an_amplifying_message_meets_the_ceiling(void **state)
{
	(void)state;
	struct gp_control_arena a;
	struct gp_err err;
	enum { NODES = 100000 };
	const Gpsplit__Control *m;
	size_t graph = 2 * NODES, open = graph + 8;
	uint8_t *bytes = gp_calloc(open + 16, 1);
	uint8_t *p = bytes;
	*p++ = 3 << 3 | 2; /* Control.open */
	size_t open_len = graph + 4;
	for (int i = 0; i < 2; i++, open_len >>= 7)
		*p++ = (uint8_t)(open_len | 0x80);
	*p++ = (uint8_t)open_len;
	*p++ = 1 << 3 | 2; /* Open.graph */
	size_t graph_len = graph;
	for (int i = 0; i < 2; i++, graph_len >>= 7)
		*p++ = (uint8_t)(graph_len | 0x80);
	*p++ = (uint8_t)graph_len;
	for (int i = 0; i < NODES; i++) {
		*p++ = 3 << 3 | 2; /* Graph.node, empty */
		*p++ = 0;
	}
	struct gp_span span = {bytes, (size_t)(p - bytes)};
	assert_int_equal(gp_control_arena_init(&a, 1 << 20, &err), GP_OK);
	assert_int_equal(gp_control_unpack(&a, span, &m, &err), GP_NOMEM);
	gp_control_arena_deinit(&a);
	assert_int_equal(gp_control_arena_init(&a, 64 << 20, &err), GP_OK);
	assert_int_equal(gp_control_unpack(&a, span, &m, &err), GP_OK);
	assert_int_equal(m->open->graph->n_node, NODES);
	gp_control_arena_deinit(&a);
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
		cmocka_unit_test(texts_of_a_peer_are_made_printable),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
