/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs on the wire (common/wire/graph_msg.h): every part of every model comes
 * back equal, and messages that lie are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/fault.h"
#include "common/wire/graph_msg.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_shape.h"
#include "common/graph/graph_part.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/op.h"

#define NO_LIMIT UINT64_MAX

static struct gp_graph *build(const char *spec)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	if (gp_model_build(spec, NULL, &g, &err) != GP_OK)
		fail_msg("%s: %s", spec, err.text);
	return g;
}

static size_t pack(const struct gp_graph *g, uint8_t **bytes)
{
	struct gp_err err = {0};
	Gpsplit__Graph *m = NULL;
	assert_int_equal(gp_graph_to_msg(g, &m, &err), GP_OK);
	size_t len = gpsplit__graph__get_packed_size(m);
	*bytes = malloc(len);
	assert_non_null(*bytes);
	assert_int_equal(gpsplit__graph__pack(m, *bytes), len);
	gp_graph_msg_free(m);
	return len;
}

static struct gp_graph *unpack(const uint8_t *bytes, size_t len)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	Gpsplit__Graph *m = gpsplit__graph__unpack(NULL, len, bytes);
	assert_non_null(m);
	if (gp_graph_from_msg(m, NO_LIMIT, &g, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_true(gp_graph_bytes(g) <= gp_graph_msg_most_bytes(len));
	gpsplit__graph__free_unpacked(m, NULL);
	return g;
}

static void expect_equal(const struct gp_graph *a, const struct gp_graph *b)
{
	assert_string_equal(a->name, b->name);
	assert_int_equal(a->nodes, b->nodes);
	assert_int_equal(a->params, b->params);
	assert_true(a->macs == b->macs && a->param_elements == b->param_elements &&
		    a->trained_elements == b->trained_elements);
	for (int i = 0; i < a->nodes; i++) {
		const struct gp_node *x = &a->node[i], *y = &b->node[i];
		assert_string_equal(x->name, y->name);
		assert_true(x->op == y->op && x->inputs == y->inputs && x->outputs == y->outputs);
		assert_memory_equal(x->in, y->in, sizeof x->in);
		assert_memory_equal(x->attr, y->attr, sizeof x->attr);
		assert_true(gp_shape_equal(&x->shape, &y->shape) && x->macs == y->macs);
		assert_true(x->first_param == y->first_param && x->params == y->params);
	}
	assert_true(a->values == b->values && a->inputs == b->inputs && a->outputs == b->outputs);
	for (int i = 0; i < a->values; i++) {
		const struct gp_graph_value *x = &a->value[i], *y = &b->value[i];
		assert_true(gp_type_equal(&x->type, &y->type) && x->node == y->node && x->output == y->output);
	}
	for (int i = 0; i < a->outputs; i++)
		assert_int_equal(a->output[i].value, b->output[i].value);
	for (int i = 0; i < a->params; i++) {
		const struct gp_param *x = &a->param[i], *y = &b->param[i];
		assert_string_equal(x->name, y->name);
		assert_true(x->node == y->node && x->role == y->role && x->count == y->count);
		assert_true(gp_shape_equal(&x->shape, &y->shape));
		assert_true(x->init == y->init && x->init_scale == y->init_scale);
		assert_true(x->trained == y->trained && x->decay == y->decay);
	}
}

static void check_round_trip(const struct gp_graph *g)
{
	uint8_t *first, *second;
	size_t len = pack(g, &first);
	struct gp_graph *back = unpack(first, len);
	expect_equal(g, back);
	assert_int_equal(back->blocks, 1);
	assert_string_equal(back->block[0].name, "body");
	assert_int_equal(pack(back, &second), len);
	assert_memory_equal(first, second, len);
	gp_graph_free(back);
	free(first);
	free(second);
}

static void every_part_of_every_model_comes_back_equal(void **state)
{
	(void)state;
	static const char *const specs[] = {"cnn", "mobilenetv2:stem=cifar,width=0.5", "resnet20:cuts=fine"};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_graph *g = build(specs[i]);
		for (int from = 0; from < g->blocks; from++) {
			for (int to = from + 1; to <= g->blocks; to++) {
				struct gp_err err = {0};
				struct gp_graph *part = NULL;
				assert_int_equal(gp_graph_part(g, from, to, &part, &err), GP_OK);
				check_round_trip(part);
				gp_graph_free(part);
			}
		}
		gp_graph_free(g);
	}
}

/* One of every op that the models above do not have. */
static void every_attribute_survives(void **state)
{
	(void)state;
	struct gp_err err = {0};
	int x;
	struct gp_graph *g = gp_graph_new("odd", &(struct gp_shape){.ndim = 3, .dim = {9, 11, 6}}, &err);
	assert_int_equal(gp_graph_begin_block(g, "body", &err), GP_OK);
	struct gp_node conv = {.op = GP_OP_CONV2D, .name = "conv", .inputs = 1, .in = {0}};
	gp_set_conv_attr(&conv, (struct gp_conv_attr){4, 3, 5, 2, 1, 0, 1, 2, 3, 0, 0, 2, true});
	assert_int_equal(gp_graph_add(g, &conv, &x, &err), GP_OK);
	struct gp_node up = {.op = GP_OP_CONV2D_TRANSPOSE, .name = "up", .inputs = 1, .in = {x}};
	gp_set_conv_attr(&up, (struct gp_conv_attr){6, 3, 4, 3, 2, 1, 0, 0, 1, 2, 1, 2, false});
	assert_int_equal(gp_graph_add(g, &up, &x, &err), GP_OK);
	struct gp_node pool = {.op = GP_OP_AVG_POOL, .name = "pool", .inputs = 1, .in = {x}};
	gp_set_pool_attr(&pool, (struct gp_pool_attr){2, 3, 1, 2, 0, 1, 2, 0, false});
	assert_int_equal(gp_graph_add(g, &pool, &x, &err), GP_OK);
	x = gp_graph_batch_norm(g, "bn", x, 1e-3f, 0.25f, &err);
	x = gp_graph_shortcut_pad(g, "shortcut", x, 3, 1, 2, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	x = gp_graph_dropout(g, "drop", x, 0.375f, &err);
	x = gp_graph_linear(g, "fc", x, 7, false, &err);
	assert_true(x > 0);
	g->param[0].decay = false;
	assert_int_equal(gp_graph_freeze(g, "fc.*"), 1);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	check_round_trip(g);
	gp_graph_free(g);
}

/* Several inputs, an i32 one among them, and several outputs, one of a node that has three. */
static void inputs_and_outputs_of_any_number_and_type_come_back_equal(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new_empty("ports", &err);
	const int tokens = gp_graph_add_input(g, "tokens", &(struct gp_type){GP_I32, {.ndim = 1, .dim = {5}}}, &err);
	const int mask = gp_graph_add_input(g, "mask", &(struct gp_type){GP_I32, {.ndim = 1, .dim = {5}}}, &err);
	const int more = gp_graph_add_input(g, "more", &(struct gp_type){GP_F32, {.ndim = 1, .dim = {6}}}, &err);
	assert_int_equal(gp_graph_begin_block(g, "body", &err), GP_OK);
	int x = gp_graph_embedding(g, "words", tokens, 11, 6, &err);
	x = gp_graph_masked_mean(g, "mean", x, mask, &err);
	const int joined = gp_graph_concat(g, "join", 3, (const int[]){x, more, x}, &err);
	const int parts = gp_graph_split(g, "parts", joined, 3, &err);
	x = gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, "sum", 3, (const int[]){parts, parts + 1, more},
			    &err);
	assert_true(x > 0);
	assert_int_equal(gp_graph_set_outputs(g, 2, (const int[]){parts + 2, x}, &err), GP_OK);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	assert_string_equal(g->output[0].name, "parts.2");
	check_round_trip(g);
	gp_graph_free(g);
}

/* --- lies ------------------------------------------------------------------------------------------------------- */

static struct gp_graph *source;
static Gpsplit__Graph *msg; /* of mobilenetv2's body, to be changed by a test */

static int make_msg(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *whole = build("mobilenetv2:stem=cifar");
	if (gp_graph_part(whole, 1, 19, &source, &err) != GP_OK || gp_graph_to_msg(source, &msg, &err) != GP_OK)
		return -1;
	gp_graph_free(whole);
	return 0;
}

static int free_msg(void **state)
{
	(void)state;
	gp_graph_msg_free(msg);
	gp_graph_free(source);
	return 0;
}

static void expect_refused(enum gp_status code, const char *words)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	assert_int_equal(gp_graph_from_msg(msg, NO_LIMIT, &g, &err), code);
	assert_null(g);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void node_that_lies_is_refused(void **state)
{
	(void)state;
	char long_name[300];
	memset(long_name, 'x', sizeof long_name);
	long_name[sizeof long_name - 1] = '\0';
	Gpsplit__Node *n = msg->node[0], *last = msg->node[msg->n_node - 1], good = *n;
	assert_int_equal(n->op, GP_OP_CONV2D);
#define REFUSED(field, wrong, words)                                                                                   \
	do {                                                                                                           \
		n->field = wrong;                                                                                      \
		expect_refused(GP_INVALID, words);                                                                     \
		n->field = good.field;                                                                                 \
	} while (0)
	REFUSED(op, GP_OP_INPUT, "is not one a node may have");
	REFUSED(op, GP_OP_COUNT, "is not one a node may have");
	REFUSED(op, UINT32_MAX, "is not one a node may have");
	REFUSED(op, GP_OP_LINEAR, "13 attributes; linear has 2");
	REFUSED(op, GP_OP_RELU, "13 attributes; relu has 0");
	REFUSED(n_attr, 12, "12 attributes; conv2d has 13");
	REFUSED(n_attr, 0, "0 attributes");
	REFUSED(name, (char *)"../../etc/passwd", "name");
	REFUSED(name, (char *)"", "name");
	REFUSED(name, long_name, "name");
	REFUSED(name, last->name, "same name");
	REFUSED(n_in, 0, "0 inputs; conv2d takes 1");
	REFUSED(n_in, 65, "at most 64");
	REFUSED(n_init, 2, "1 parameters but 2");
#undef REFUSED
	uint32_t self = 1, huge = UINT32_MAX;
	n->in = &self;
	expect_refused(GP_INVALID, "earlier node");
	n->in = &huge;
	expect_refused(GP_INVALID, "earlier node");
	n->in = good.in;
	struct gp_err err;
	struct gp_graph *g;
	assert_int_equal(gp_graph_from_msg(msg, NO_LIMIT, &g, &err), GP_OK); /* all is as before */
	gp_graph_free(g);
}

static void attribute_that_does_not_fit_is_refused(void **state)
{
	(void)state;
	uint32_t *const fields = msg->node[0]->attr; /* of a convolution: PROTOCOL.md section 8 */
	static const uint32_t wrong[] = {UINT32_MAX, (uint32_t)INT32_MAX + 1, INT32_MAX};
	for (size_t i = 0; i < 13; i++) {
		uint32_t good = fields[i];
		for (size_t k = 0; k < 3; k++) {
			fields[i] = wrong[k];
			expect_refused(GP_INVALID, "node 1 (conv2d");
		}
		fields[i] = good;
	}
	msg->node[0]->init[0]->kind = GP_INIT_KINDS;
	expect_refused(GP_INVALID, "starting value");
	msg->node[0]->init[0]->kind = GP_INIT_NORMAL;
	msg->node[0]->init[0]->scale = NAN;
	expect_refused(GP_INVALID, "starting value");
}

static void graph_that_lies_is_refused(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *g = NULL;
	Gpsplit__Input *in = msg->input[0];
	int64_t *input = in->shape;
	size_t nodes = msg->n_node;
	for (size_t dims = 0; dims < 6; dims++) {
		if (dims != 3) {
			in->n_shape = dims;
			assert_int_equal(gp_graph_from_msg(msg, NO_LIMIT, &g, &err), GP_INVALID);
		}
	}
	in->n_shape = 3;
	in->dtype = GP_DTYPES;
	expect_refused(GP_INVALID, "element type");
	in->dtype = GP_I32;
	expect_refused(GP_INVALID, "must be f32, not i32");
	in->dtype = GP_F32;
	msg->n_input = 0;
	expect_refused(GP_INVALID, "0 inputs");
	msg->n_input = GP_GRAPH_MAX_PORTS + 1;
	expect_refused(GP_INVALID, "65 inputs");
	msg->n_input = 1;
	const uint32_t output = msg->output[0];
	msg->output[0] = 0;
	expect_refused(GP_INVALID, "which no node makes");
	msg->output[0] = UINT32_MAX;
	expect_refused(GP_INVALID, "which no node makes");
	msg->output[0] = output;
	msg->n_output = 0;
	expect_refused(GP_INVALID, "0 outputs");
	msg->n_output = GP_GRAPH_MAX_PORTS + 1;
	expect_refused(GP_INVALID, "65 outputs");
	msg->n_output = 1;
	int64_t good = input[0];
	input[0] = INT64_MAX;
	expect_refused(GP_INVALID, "elements");
	input[0] = -1;
	expect_refused(GP_INVALID, "-1");
	input[0] = good;
	msg->n_node = 0;
	expect_refused(GP_INVALID, "which no node makes");
	msg->n_node = GP_GRAPH_MAX_NODES;
	expect_refused(GP_INVALID, "at most 4095");
	msg->n_node = nodes;
	msg->name = (char *)"a\nb";
	expect_refused(GP_INVALID, "name");
}

/* It would be trained, and could not be fetched. */
static void parameter_larger_than_a_frame_is_refused(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *made = gp_graph_new_empty("table", &err), *g = NULL;
	Gpsplit__Graph *m;
	const int tokens = gp_graph_add_input(made, "tokens", &(struct gp_type){GP_I32, {.ndim = 1, .dim = {4}}}, &err);
	assert_int_equal(gp_graph_begin_block(made, "body", &err), GP_OK);
	const int rows = gp_graph_embedding(made, "table", tokens, (1 << 22) + 1, 64, &err);
	assert_int_equal(gp_graph_set_outputs(made, 1, &rows, &err), GP_OK);
	assert_int_equal(gp_graph_finish(made, &err), GP_OK);
	assert_int_equal(gp_graph_to_msg(made, &m, &err), GP_OK);
	assert_int_equal(gp_graph_from_msg(m, NO_LIMIT, &g, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "table.weight has 268435520 elements; at most 268435456"));
	gp_graph_msg_free(m);
	gp_graph_free(made);
}

static void parameter_limit_holds(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *g = NULL;
	assert_int_equal(gp_graph_from_msg(msg, source->param_elements - 1, &g, &err), GP_NOMEM);
	assert_null(g);
	assert_int_equal(gp_graph_from_msg(msg, source->param_elements, &g, &err), GP_OK);
	gp_graph_free(g);
}

#ifdef GP_FAULTS
static void failed_allocation_is_an_error_not_a_crash(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *g = NULL;
	Gpsplit__Graph *m = NULL;
	for (uint64_t nth = 1; nth <= 5; nth++) {
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		assert_int_equal(gp_graph_to_msg(source, &m, &err), GP_NOMEM);
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		assert_int_equal(gp_graph_from_msg(msg, NO_LIMIT, &g, &err), GP_NOMEM);
	}
	gp_fault_arm(GP_FAULT_ALLOC, 0);
	assert_true(!g && !m);
}
#endif

static uint64_t hash_of(const char *spec)
{
	struct gp_err err;
	struct gp_graph *g = build(spec);
	uint64_t hash = 0;
	assert_int_equal(gp_graph_hash(g, &hash, &err), GP_OK);
	gp_graph_free(g);
	return hash;
}

static void hash_is_that_of_the_graph_alone(void **state)
{
	(void)state;
	assert_true(hash_of("cnn") == hash_of("cnn"));
	assert_true(hash_of("mobilenetv2:width=0.5") != hash_of("mobilenetv2:width=0.35"));
}

static struct gp_graph *norm_graph(struct gp_bn_attr how)
{
	struct gp_err err;
	const struct gp_shape sample = {.ndim = 1, .dim = {8}};
	struct gp_graph *g = gp_graph_new("norm", &sample, &err);
	assert_non_null(g);
	assert_int_equal(gp_graph_begin_block(g, "body", &err), GP_OK);
	assert_true(gp_graph_batch_norm(g, "bn", 0, 1e-5f, 0.1f, &err) > 0);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	assert_int_equal(gp_graph_set_batch_norm(g, &how, &err), 1);
	return g;
}

/* As an older peer writes and reads it: in mode chunk there are two attributes and no others. */
static void attributes_of_a_batch_norm_are_there_as_far_as_they_say_something(void **state)
{
	(void)state;
	static const struct {
		struct gp_bn_attr how;
		size_t attrs;
	} cases[] = {
		{{.mode = GP_BN_CHUNK}, 2},
		{{.mode = GP_BN_DEFERRED}, 3},
		{{.mode = GP_BN_RUNNING}, 3},
		{{.mode = GP_BN_RENORM, .r_max = 3.0f}, 4},
		{{.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = 5.0f}, 5},
		{{.mode = GP_BN_RENORM, .r_max = 3.0f, .warmup = 7}, 6},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_err err;
		struct gp_graph *g = norm_graph(cases[i].how), *back;
		Gpsplit__Graph *m;
		assert_int_equal(gp_graph_to_msg(g, &m, &err), GP_OK);
		assert_int_equal(m->node[0]->n_attr, cases[i].attrs);
		assert_int_equal(gp_graph_from_msg(m, NO_LIMIT, &back, &err), GP_OK);
		assert_memory_equal(g->node[1].attr, back->node[1].attr, sizeof g->node[1].attr);
		m->node[0]->n_attr = 1;
		assert_int_equal(gp_graph_from_msg(m, NO_LIMIT, &back, &err), GP_INVALID);
		assert_non_null(strstr(err.text, "1 attributes; batch_norm has 2 to 6"));
		gp_graph_free(back);
		gp_graph_msg_free(m);
		gp_graph_free(g);
	}
}

static void modes_of_batch_norm_make_other_graphs(void **state)
{
	(void)state;
	uint64_t hash[3];
	for (int mode = 0; mode < 3; mode++) {
		struct gp_err err;
		struct gp_graph *g = norm_graph((struct gp_bn_attr){.mode = mode});
		assert_int_equal(gp_graph_hash(g, &hash[mode], &err), GP_OK);
		gp_graph_free(g);
	}
	assert_true(hash[0] != hash[1] && hash[1] != hash[2] && hash[0] != hash[2]);
}

#define WITH_MSG(test) cmocka_unit_test_setup_teardown(test, make_msg, free_msg)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_part_of_every_model_comes_back_equal),
		cmocka_unit_test(every_attribute_survives),
		cmocka_unit_test(inputs_and_outputs_of_any_number_and_type_come_back_equal),
		cmocka_unit_test(hash_is_that_of_the_graph_alone),
		cmocka_unit_test(attributes_of_a_batch_norm_are_there_as_far_as_they_say_something),
		cmocka_unit_test(modes_of_batch_norm_make_other_graphs),
		WITH_MSG(node_that_lies_is_refused),
		WITH_MSG(attribute_that_does_not_fit_is_refused),
		WITH_MSG(graph_that_lies_is_refused),
		cmocka_unit_test(parameter_larger_than_a_frame_is_refused),
		WITH_MSG(parameter_limit_holds),
#ifdef GP_FAULTS
		WITH_MSG(failed_allocation_is_an_error_not_a_crash),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
