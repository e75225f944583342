/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient model`: figures of client/costs/model_view.h against known ones, and the
 * exit statuses of client/commands/commands.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>

#include "client/commands/commands.h"
#include "client/job/freeze.h"
#include "client/costs/model_view.h"
#include "client/models/models.h"
#include "common/graph/graph_part.h"

static struct gp_graph *graph;
static struct gp_model_view view;

/* MobileNetV2 as in the paper, stem and classifier on the client. */
static int setup(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_cut cut;
	return gp_model_build("mobilenetv2", NULL, &graph, &err) || gp_cut_parse(graph, "1:-1", &cut, &err) ||
	       gp_model_view_init(&view, "mobilenetv2", graph, &cut, 60, 8, &err);
}

static int teardown(void **state)
{
	(void)state;
	gp_model_view_deinit(&view);
	gp_graph_free(graph);
	return 0;
}

static json_t *view_json(const struct gp_model_view *v)
{
	struct gp_err err;
	json_error_t json_err;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	assert_non_null(f);
	assert_int_equal(gp_model_view_json(v, f, &err), GP_OK);
	fclose(f);
	json_t *root = json_loadb(text, len, 0, &json_err);
	assert_non_null(root);
	free(text);
	return root;
}

static json_int_t number(json_t *root, const char *a, const char *b, const char *c)
{
	json_t *v = json_object_get(json_object_get(json_object_get(root, a), b), c);
	assert_true(json_is_integer(v));
	return json_integer_value(v);
}

static uint64_t macs(const struct gp_view_sum *s)
{
	return s->costs.pass[GP_PASS_FORWARD].macs[GP_COUNT_TRUE];
}

static void parts_add_up_to_the_known_totals(void **state)
{
	(void)state;
	const struct gp_view_sum *p = view.part, *total = &p[GP_VIEW_TOTAL];
	assert_true(total->parameters == 3504872 && total->statistics == 34112 && macs(total) == 300774272);
	assert_true(p[0].parameters + p[1].parameters + p[2].parameters == total->parameters);
	assert_true(p[0].statistics + p[1].statistics + p[2].statistics == total->statistics);
	assert_true(macs(&p[0]) + macs(&p[1]) + macs(&p[2]) == macs(total));
	assert_int_equal(p[0].layers + p[1].layers + p[2].layers, total->layers);
	assert_true(p[GP_VIEW_HEAD].parameters == 32 * 27 + 64);
	assert_true(p[GP_VIEW_TAIL].parameters == 1281000);
}

static void tensors_at_the_cuts_have_the_right_bytes(void **state)
{
	(void)state;
	json_t *root = view_json(&view);
	static const char *const up[] = {"act_up", "grad_down"}, *const down[] = {"act_down", "grad_up"};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(number(root, "tensors", up[i], "cut"), 1);
		assert_int_equal(number(root, "tensors", up[i], "sample_bytes"), 32 * 112 * 112 * 4);
		assert_int_equal(number(root, "tensors", up[i], "batch_bytes"), 60 * 32 * 112 * 112 * 4);
		assert_int_equal(number(root, "tensors", up[i], "chunk_bytes"), 8 * 32 * 112 * 112 * 4);
		assert_int_equal(number(root, "tensors", down[i], "cut"), 20);
		assert_int_equal(number(root, "tensors", down[i], "batch_bytes"), 60 * 1280 * 4);
	}
	json_t *shape = json_object_get(json_object_get(json_object_get(root, "tensors"), "act_up"), "shape");
	assert_int_equal(json_integer_value(json_array_get(shape, 0)), 32); /* channels first */
	assert_int_equal(number(root, "parts", "total", "macs"), 300774272);
	json_t *blocks = json_object_get(root, "blocks");
	assert_int_equal(json_array_size(blocks), 21);
	assert_string_equal(json_string_value(json_object_get(json_array_get(blocks, 19), "part")), "body");
	json_decref(root);
}

/* Every tensor of one list, "mask i32 data 0 128, ..." : name, type, kind, whether a gradient comes back, shape. */
static const char *tensors_of(json_t *list)
{
	static char text[500];
	text[0] = '\0';
	size_t i;
	json_t *t;
	json_array_foreach(list, i, t)
	{
		const char *name, *dtype, *kind;
		int gradient, first;
		assert_int_equal(json_unpack(t, "{s:s, s:s, s:s, s:b, s:[i]}", "name", &name, "dtype", &dtype, "kind",
					     &kind, "gradient", &gradient, "shape", &first),
				 0);
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %s %s %d %d", i ? ", " : "", name,
			 dtype, kind, gradient, first);
	}
	return text;
}

static void expect_list(json_t *root, const char *direction, const char *want)
{
	json_t *d = json_object_get(json_object_get(root, "tensors"), direction);
	assert_string_equal(tensors_of(json_object_get(d, "tensors")), want);
}

static void expect_fasttext(const char *cut_text, const char *frozen, const char *up, const char *down,
			    const char *grad_up, const char *grad_down, const char *stays)
{
	struct gp_err err;
	struct gp_model_view v;
	struct gp_graph *g;
	struct gp_cut cut;
	int count;
	assert_int_equal(gp_model_build("fasttext:tokens=7,hidden=5", NULL, &g, &err), GP_OK);
	assert_int_equal(gp_cut_parse(g, cut_text, &cut, &err), GP_OK);
	if (frozen)
		assert_int_equal(gp_freeze(g, &cut, frozen, &count, &err), GP_OK);
	assert_int_equal(gp_model_view_init(&v, "fasttext", g, &cut, 10, 5, &err), GP_OK);
	json_t *root = view_json(&v);
	expect_list(root, "act_up", up);
	expect_list(root, "act_down", down);
	expect_list(root, "grad_up", grad_up);
	expect_list(root, "grad_down", grad_down);
	assert_string_equal(tensors_of(json_object_get(root, "stays")), stays);
	assert_int_equal(number(root, "tensors", "act_up", "chunk_bytes"),
			 2 * 4 * (strstr(up, "mask") ? 7 + 7 * 64 : 7 * 64));
	assert_int_equal(number(root, "parts", "head", "frozen"), frozen ? 1000 * 64 : 0);
	assert_int_equal(number(root, "parts", "head", "parameters"), 1000 * 64);
	json_decref(root);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

static void every_tensor_that_crosses_is_listed_and_what_stays_is_named(void **state)
{
	(void)state;
	expect_fasttext("1:-1", NULL, "mask i32 data 0 7, embedding f32 activation 1 7", "pooling.1 f32 activation 1 5",
			"pooling.1 f32 gradient 0 5", "embedding f32 gradient 0 7", "");
	expect_fasttext("1:-1", "head", "mask i32 data 0 7, embedding f32 activation 0 7",
			"pooling.1 f32 activation 1 5", "pooling.1 f32 gradient 0 5", "", "");
	expect_fasttext("1:-2", NULL, "embedding f32 activation 1 7", "encoder.1 f32 activation 1 7",
			"encoder.1 f32 gradient 0 7", "embedding f32 gradient 0 7", "mask i32 data 0 7");
}

static void text_shows_cuts_totals_and_sizes(void **state)
{
	(void)state;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	assert_non_null(f);
	gp_model_view_print(&view, true, f);
	fclose(f);
	static const char *const words[] = {"cut 1: to the server",
					    "cut 20: back to the client",
					    "3,504,872",
					    "300,774,272",
					    "conv2d 3x3 /2 groups 96",
					    "32x112x112",
					    "batch of 60",
					    "chunk of 8",
					    "96.34 MB",
					    "gradient down",
					    "96.65 MB each way"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (!strstr(text, words[i]))
			fail_msg("no '%s' in:\n%s", words[i], text);
	free(text);
}

static void more_chunks_than_samples_are_refused(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_model_view v;
	assert_int_equal(gp_model_view_init(&v, "m", graph, &view.cut, 4, 5, &err), GP_INVALID);
}

static int run(const char *a, const char *b, const char *c, const char *d)
{
	char text[4][64] = {{0}};
	char *argv[5] = {text[0], text[1], text[2], text[3], NULL};
	const char *given[4] = {a, b, c, d};
	int argc = 0;
	while (argc < 4 && given[argc]) {
		snprintf(text[argc], sizeof text[argc], "%s", given[argc]);
		argc++;
	}
	argv[argc] = NULL;
	return gp_cmd_model(argc, argv);
}

static void commands_exit_as_documented(void **state)
{
	(void)state;
	assert_int_equal(run("list", NULL, NULL, NULL), 0);
	assert_int_equal(run("list", "--json", NULL, NULL), 0);
	assert_int_equal(run("--help", NULL, NULL, NULL), 0);
	assert_int_equal(run("show", "--help", NULL, NULL), 0);
	assert_int_equal(run("show", "cnn", "--cut", "1:3"), 0);
	assert_int_equal(run("show", "cnn", "--input", "3x32x48"), 0);
	assert_int_equal(run("show", "fasttext", "--freeze", "head"), 0);
	assert_int_equal(run("show", "fasttext", "--freeze", "encoder.9.*"), 2);
	assert_int_equal(run("show", "cnn", "--count", "origin"), 0);
	assert_int_equal(run("show", "cnn", "--count", "all"), 2);
	assert_int_equal(run("show", "cnn", "--insert", "conv:out=4,k=1,s=1"), 2); /* flat features come down */
	assert_int_equal(run("show", "cnn", "--insert-up", "conv:out=4,k=1,s=1"), 0);
	assert_int_equal(run("show", "cnn", "--insert", "no-such"), 2);
	assert_int_equal(run(NULL, NULL, NULL, NULL), 2);
	assert_int_equal(run("tell", NULL, NULL, NULL), 2);
	assert_int_equal(run("show", NULL, NULL, NULL), 2);
	assert_int_equal(run("show", "vgg99", NULL, NULL), 2);
	assert_int_equal(run("show", "cnn", "--cut", "1:4"), 2);
	assert_int_equal(run("show", "cnn", "--cut", "banana"), 2);
	assert_int_equal(run("show", "cnn", "--batch", "0"), 2);
	assert_int_equal(run("show", "cnn", "--chunks", "65"), 3);
	static const char *const bad_input[] = {"",       "x",         "3x",       "3xx2",     "0x2x2",
						"-1x2x2", "1x28x28x1", "1x28x28 ", "99999999", "784"};
	for (size_t i = 0; i < sizeof bad_input / sizeof bad_input[0]; i++)
		assert_int_equal(run("show", "cnn", "--input", bad_input[i]), 2);
	assert_int_equal(run("show", "cnn", "--input", "1x2x2"), 3);
}

#define UNIT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(parts_add_up_to_the_known_totals),
		UNIT(tensors_at_the_cuts_have_the_right_bytes),
		cmocka_unit_test(every_tensor_that_crosses_is_listed_and_what_stays_is_named),
		UNIT(text_shows_cuts_totals_and_sizes),
		UNIT(more_chunks_than_samples_are_refused),
		cmocka_unit_test(commands_exit_as_documented),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
