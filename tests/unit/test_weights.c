/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter values of a model (common/graph/weights.h): files of others by name, what
 * is refused and how it is told, save and load, the hash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/base/fault.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/store/safetensors.h"
#include "common/graph/weights.h"

static struct gp_graph *graph;
static struct gp_weights *weights;
static char path[64];

static int setup(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_model_options o = {.input = {.ndim = 3, .dim = {8, 8, 1}}};
	strcpy(path, "/tmp/gp_weights_XXXXXX");
	int fd = mkstemp(path);
	if (fd < 0 || gp_model_build("cnn:width=1,classes=2", &o, &graph, &err) != GP_OK ||
	    gp_weights_new(graph, &weights, &err) != GP_OK)
		return -1;
	close(fd);
	for (int i = 0; i < graph->params; i++)
		for (uint64_t k = 0; k < graph->param[i].count; k++)
			weights->value[i][k] = (float)i + (float)k / 8;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	gp_weights_free(weights);
	gp_graph_free(graph);
	return 0;
}

/* Items of a file that fits, for a test to change. */
static int make_items(struct gp_st_item *items)
{
	for (int i = 0; i < graph->params; i++)
		items[i] =
			(struct gp_st_item){graph->param[i].name, graph->param[i].shape, weights->value[i], GP_ST_F32};
	return graph->params;
}

static void write_items(const struct gp_st_item *items, int count)
{
	struct gp_err err = {0};
	if (gp_st_write(path, items, count, NULL, 0, &err) != GP_OK)
		fail_msg("%s", err.text);
}

static struct gp_weights *empty_weights(void)
{
	struct gp_err err = {0};
	struct gp_weights *w = NULL;
	assert_int_equal(gp_weights_new(graph, &w, &err), GP_OK);
	return w;
}

static void expect_same(const struct gp_weights *a, const struct gp_weights *b)
{
	for (int i = 0; i < graph->params; i++)
		assert_memory_equal(a->value[i], b->value[i], graph->param[i].count * sizeof(float));
}

static void expect_load_refused(bool strict, const char *words)
{
	struct gp_err err = {0};
	struct gp_weights *w = empty_weights(), *untouched = empty_weights();
	assert_int_equal(gp_weights_load(w, path, strict, NULL, &err), GP_INVALID);
	if (!strstr(err.text, words) || !strstr(err.text, path))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	expect_same(w, untouched);
	gp_weights_free(w);
	gp_weights_free(untouched);
}

static void saved_values_load_bit_for_bit(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_weights_report report;
	struct gp_weights *w = empty_weights();
	gp_weights_init(weights, 5);
	assert_int_equal(gp_weights_save(weights, path, &err), GP_OK);
	assert_int_equal(gp_weights_load(w, path, true, &report, &err), GP_OK);
	expect_same(w, weights);
	assert_true(report.loaded == graph->params && report.missing == 0 && report.unexpected == 0);
	assert_string_equal(report.missing_names, "");
	gp_weights_free(w);
}

static void file_has_the_names_of_torch_and_its_metadata(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_st_file *f;
	assert_int_equal(gp_weights_save(weights, path, &err), GP_OK);
	assert_int_equal(gp_st_open(path, &f, &err), GP_OK);
	assert_int_equal(gp_st_count(f), graph->params);
	assert_non_null(gp_st_find(f, "features.0.1.running_var"));
	assert_string_equal(gp_st_metadata(f, "format"), "pt");
	assert_string_equal(gp_st_metadata(f, "model"), "cnn");
	gp_st_close(f);
}

static void wrong_shape_is_told_with_both_shapes(void **state)
{
	(void)state;
	static float zeros[1000];
	struct gp_st_item items[64];
	int n = make_items(items);
	items[0].shape = (struct gp_shape){.ndim = 4, .dim = {64, 1, 3, 3}};
	items[0].data = zeros;
	write_items(items, n);
	expect_load_refused(true, "features.0.0.weight: file has 64x1x3x3, model wants 1x1x3x3");
	expect_load_refused(false, "features.0.0.weight: file has 64x1x3x3, model wants 1x1x3x3");
}

static void missing_and_unexpected_names_are_listed(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_weights_report report;
	struct gp_st_item items[64];
	int n = make_items(items);
	items[0].name = "stem.weight";
	write_items(items, n);
	expect_load_refused(true, "1 parameters of cnn are missing: features.0.0.weight");
	struct gp_weights *w = empty_weights();
	assert_int_equal(gp_weights_load(w, path, false, &report, &err), GP_OK);
	assert_string_equal(report.missing_names, "features.0.0.weight");
	assert_string_equal(report.unexpected_names, "stem.weight");
	assert_true(w->value[0][1] == 0 && w->value[1][0] == 1);
	gp_weights_free(w);
	make_items(items);
	items[n] = (struct gp_st_item){"extra", {.ndim = 0}, weights->value[0], GP_ST_F32};
	write_items(items, n + 1);
	expect_load_refused(true, "1 tensors are none of cnn's: extra");
}

static void long_lists_end_with_a_count(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_weights_report report;
	struct gp_st_item items[64];
	make_items(items);
	write_items(items, 1);
	struct gp_weights *w = empty_weights();
	assert_int_equal(gp_weights_load(w, path, false, &report, &err), GP_OK);
	assert_int_equal(report.missing, graph->params - 1);
	const char *and = strstr(report.missing_names, " and ");
	assert_non_null(and);
	int listed = 1, more = atoi(and+5);
	for (const char *c = report.missing_names; c < and; c++)
		listed += *c == ',';
	assert_int_equal(listed + more, report.missing);
	assert_true(listed > 3 && strstr(and, " more"));
	gp_weights_free(w);
}

static void one_line_tells_of_all_that_does_not_fit(void **state)
{
	(void)state;
	static float zeros[1000];
	struct gp_st_item items[64];
	int n = make_items(items);
	items[0].name = "stem.weight";
	items[1].shape = (struct gp_shape){.ndim = 1, .dim = {7}};
	items[1].data = zeros;
	write_items(items, n);
	expect_load_refused(true, "features.0.1.weight: file has 7, model wants 1; 1 parameters of cnn are missing: "
				  "features.0.0.weight; 1 tensors are none of cnn's: stem.weight");
}

static void expect_skip_refused(const char *skip, const char *words)
{
	struct gp_err err = {0};
	struct gp_weights *w = empty_weights(), *untouched = empty_weights();
	assert_int_equal(gp_weights_load_except(w, path, skip, NULL, &err), GP_INVALID);
	if (!strstr(err.text, words) || !strstr(err.text, path))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	expect_same(w, untouched);
	gp_weights_free(w);
	gp_weights_free(untouched);
}

/* A file for three classes, with an extra tensor. */
static void write_other_classifier(void)
{
	static float zeros[1000];
	struct gp_st_item items[64];
	int n = make_items(items);
	for (int i = 0; i < n; i++)
		if (strncmp(items[i].name, "classifier", 10) == 0) {
			items[i].shape.dim[0] = 3;
			items[i].data = zeros;
		}
	items[n] = (struct gp_st_item){"aux.weight", {.ndim = 1, .dim = {2}}, zeros, GP_ST_F32};
	write_items(items, n + 1);
}

static void skipped_tensors_keep_their_starting_values(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_weights_report r;
	struct gp_weights *w = empty_weights(), *drawn = empty_weights();
	gp_weights_init(w, 5);
	gp_weights_init(drawn, 5);
	write_other_classifier();
	if (gp_weights_load_except(w, path, "classifier.*,aux.*", &r, &err) != GP_OK)
		fail_msg("%s", err.text);
	for (int i = 0; i < graph->params; i++) {
		bool skipped = strncmp(graph->param[i].name, "classifier", 10) == 0;
		assert_memory_equal(w->value[i], (skipped ? drawn : weights)->value[i],
				    graph->param[i].count * sizeof(float));
	}
	assert_int_equal(r.loaded, graph->params - 2);
	assert_int_equal(r.skipped, 3);
	assert_string_equal(r.skipped_names, "classifier.weight, classifier.bias, aux.weight");
	assert_true(r.missing == 0 && r.unexpected == 0 && r.mismatched == 0);
	gp_weights_free(w);
	gp_weights_free(drawn);
}

static void what_no_pattern_skips_is_still_an_error(void **state)
{
	(void)state;
	write_other_classifier();
	expect_skip_refused("aux.*", "classifier.weight: file has 3x4, model wants 2x4, "
				     "classifier.bias: file has 3, model wants 2");
	expect_skip_refused("classifier.*", "1 tensors are none of cnn's: aux.weight");
	expect_skip_refused("classifier.weight,aux.*", "classifier.bias: file has 3, model wants 2");
}

static void patterns_that_match_nothing_are_refused(void **state)
{
	(void)state;
	char longer[200];
	write_other_classifier();
	expect_skip_refused("classifier.*,aux.*,clasifier.*", "'clasifier.*' matches no tensor of it");
	expect_skip_refused("*", "nothing of cnn is left to load");
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	expect_skip_refused(longer, "a pattern of more than");
}

static void file_of_another_model_is_refused(void **state)
{
	(void)state;
	const struct gp_st_item other = {"conv1.weight", {.ndim = 1, .dim = {2}}, weights->value[0], GP_ST_F32};
	write_items(&other, 1);
	expect_load_refused(false, "no parameter of cnn is in the file; it has: conv1.weight");
}

static void num_batches_tracked_is_passed_over(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_st_item items[64];
	int n = make_items(items);
	items[n] = (struct gp_st_item){"features.0.1.num_batches_tracked", {.ndim = 0}, weights->value[0], GP_ST_F32};
	write_items(items, n + 1);
	struct gp_weights *w = empty_weights();
	assert_int_equal(gp_weights_load(w, path, true, NULL, &err), GP_OK);
	expect_same(w, weights);
	gp_weights_free(w);
}

/*
 * Python: h = hashlib.sha256(); for each parameter in order of name.encode():
 * h.update(struct.pack("<f", i + k / 8)) for its element k, where i is its
 * place in the state dict.
 */
static void hash_is_sha256_of_the_values_in_name_order(void **state)
{
	(void)state;
	struct gp_err err = {0};
	char hex[GP_SHA256_HEX], again[GP_SHA256_HEX];
	assert_int_equal(gp_weights_sha256(weights, hex, &err), GP_OK);
	assert_string_equal(hex, "958b211ce31d9be093885eb540873d3fcd54bb323c271d00ab0746b54e016c39");
	weights->value[3][0] = nextafterf(weights->value[3][0], 1000);
	assert_int_equal(gp_weights_sha256(weights, again, &err), GP_OK);
	assert_string_not_equal(hex, again);
}

#ifdef GP_FAULTS
static void failed_allocation_is_an_error_not_a_crash(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_weights *w = NULL;
	uint64_t nth = 1;
	for (;; nth++) {
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		enum gp_status status = gp_weights_new(graph, &w, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		if (status == GP_OK)
			break;
		assert_int_equal(status, GP_NOMEM);
		assert_null(w);
	}
	gp_weights_free(w);
	assert_int_equal(nth, graph->params + 3);
}
#endif

#define UNIT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* Writes another type of as many characters over that of `name`. */
static void patch_type(const char *name, const char *type)
{
	char text[4096] = "", key[80];
	FILE *f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, 8, SEEK_SET), 0);
	assert_true(fread(text, 1, sizeof text - 1, f) > 0);
	snprintf(key, sizeof key, "\"%s\":{\"dtype\":\"", name);
	const char *at = strstr(text, key);
	assert_non_null(at);
	assert_int_equal(fseek(f, 8 + (at - text) + (long)strlen(key), SEEK_SET), 0);
	assert_int_equal(fputs(type, f) < 0, 0);
	assert_int_equal(fclose(f), 0);
}

/* The file of an encoder with these weights, whose tensors are called as `renamed` says. */
static void write_encoder(const struct gp_weights *from,
			  const char *(*renamed)(const char *name, char room[2 * GP_NAME_MAX]))
{
	const struct gp_graph *g = from->graph;
	struct gp_st_item items[64];
	char room[64][2 * GP_NAME_MAX];
	static const float extra[2];
	for (int i = 0; i < g->params; i++)
		items[i] = (struct gp_st_item){renamed(g->param[i].name, room[i]), g->param[i].shape, from->value[i],
					       GP_ST_F32};
	items[g->params] = (struct gp_st_item){"embeddings.position_ids", {.ndim = 1, .dim = {2}}, extra, GP_ST_F32};
	write_items(items, g->params + 1);
}

static void expect_encoder_loads(const char *model,
				 const char *(*renamed)(const char *name, char room[2 * GP_NAME_MAX]), bool loads)
{
	struct gp_err err = {0};
	struct gp_graph *g;
	struct gp_weights *from, *to;
	struct gp_weights_report report;
	assert_int_equal(gp_model_build(model, NULL, &g, &err), GP_OK);
	assert_int_equal(gp_weights_new(g, &from, &err), GP_OK);
	assert_int_equal(gp_weights_new(g, &to, &err), GP_OK);
	gp_weights_init(from, 9);
	write_encoder(from, renamed);
	assert_int_equal(gp_weights_load(to, path, true, &report, &err), loads ? GP_OK : GP_INVALID);
	for (int i = 0; i < g->params && loads; i++)
		assert_memory_equal(from->value[i], to->value[i], g->param[i].count * sizeof(float));
	assert_int_equal(report.loaded, loads ? g->params : report.loaded);
	gp_weights_free(from);
	gp_weights_free(to);
	gp_graph_free(g);
}

static const char *without_prefix(const char *name, char room[2 * GP_NAME_MAX])
{
	(void)room;
	return strncmp(name, "bert.", 5) == 0 ? name + 5 : strncmp(name, "roberta.", 8) == 0 ? name + 8 : name;
}

static const char *with_gamma(const char *name, char room[2 * GP_NAME_MAX])
{
	const char *norm = strstr(name, ".LayerNorm.");
	if (!norm)
		return name;
	snprintf(room, 2 * GP_NAME_MAX, "%.*s.LayerNorm.%s", (int)(norm - name), name,
		 norm[11] == 'w' ? "gamma" : "beta");
	return room;
}

static const char *with_both(const char *name, char room[2 * GP_NAME_MAX])
{
	return without_prefix(with_gamma(name, room), room);
}

static const char *of_another(const char *name, char room[2 * GP_NAME_MAX])
{
	snprintf(room, 2 * GP_NAME_MAX, "electra.%s", without_prefix(name, room));
	return room;
}

static void encoders_load_by_the_names_that_hugging_face_writes(void **state)
{
	static const char bert[] = "bert:layers=1,dim=4,heads=2,ffn=6,vocab=9,max=8";
	static const char roberta[] = "roberta:layers=1,dim=4,heads=2,ffn=6,vocab=9,max=8";
	(void)state;
	expect_encoder_loads(bert, without_prefix, true);
	expect_encoder_loads(bert, with_gamma, true);
	expect_encoder_loads(bert, with_both, true);
	expect_encoder_loads(roberta, without_prefix, true);
	expect_encoder_loads(roberta, of_another, false);
}

/* The file has "encoder.layer.1..." for "bert.encoder.layer.1...", and gamma for weight: a pattern may have either name. */
static void patterns_may_have_the_names_that_the_file_has(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g;
	struct gp_weights *from, *to, *drawn;
	struct gp_weights_report report;
	int skipped = 0;
	assert_int_equal(gp_model_build("bert:layers=2,dim=4,heads=2,ffn=6,vocab=9,max=8", NULL, &g, &err), GP_OK);
	assert_int_equal(gp_weights_new(g, &from, &err), GP_OK);
	assert_int_equal(gp_weights_new(g, &to, &err), GP_OK);
	assert_int_equal(gp_weights_new(g, &drawn, &err), GP_OK);
	gp_weights_init(from, 9);
	for (int i = 0; i < g->params; i++) /* unlike `drawn` in every value */
		for (uint64_t k = 0; k < g->param[i].count; k++)
			from->value[i][k] += 8;
	gp_weights_init(to, 5);
	gp_weights_init(drawn, 5);
	write_encoder(from, with_both);
	if (gp_weights_load_except(to, path, "encoder.layer.1.*,*.gamma", &report, &err) != GP_OK)
		fail_msg("%s", err.text);
	for (int i = 0; i < g->params; i++) {
		const char *name = g->param[i].name;
		const bool skip = strncmp(name, "bert.encoder.layer.1.", 21) == 0 || strstr(name, "LayerNorm.weight");
		assert_memory_equal(to->value[i], (skip ? drawn : from)->value[i], g->param[i].count * sizeof(float));
		skipped += skip;
	}
	assert_int_equal(report.skipped, skipped);
	assert_int_equal(report.loaded, g->params - skipped);
	gp_weights_free(from);
	gp_weights_free(to);
	gp_weights_free(drawn);
	gp_graph_free(g);
}

/* Types and shapes that cannot be read matter for the tensors that a model has; one without bytes never does. */
static void odd_tensors_matter_only_where_they_are_needed(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_st_item items[64];
	int count = make_items(items);
	const float value = 1;
	struct gp_weights *w = empty_weights();
	items[count] = (struct gp_st_item){"none", {.ndim = 2, .dim = {0, 3}}, NULL, GP_ST_F32};
	write_items(items, count + 1);
	assert_int_equal(gp_weights_load(w, path, true, NULL, &err), GP_OK);
	items[count] = (struct gp_st_item){"extra", {.ndim = 1, .dim = {1}}, &value, GP_ST_F32};
	write_items(items, count + 1);
	patch_type("extra", "XYZ");
	assert_int_equal(gp_weights_load(w, path, false, NULL, &err), GP_OK);
	expect_same(w, weights);
	expect_load_refused(true, "1 tensors are none of cnn's: extra");
	patch_type(items[0].name, "XYZ");
	expect_load_refused(false, ": file has XYZ, which is not supported");
	items[0].shape = (struct gp_shape){.ndim = 2, .dim = {0, 3}};
	write_items(items, count);
	expect_load_refused(false, ": file has 0x3, model wants");
	gp_weights_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		UNIT(saved_values_load_bit_for_bit),
		UNIT(file_has_the_names_of_torch_and_its_metadata),
		UNIT(wrong_shape_is_told_with_both_shapes),
		UNIT(missing_and_unexpected_names_are_listed),
		UNIT(long_lists_end_with_a_count),
		UNIT(one_line_tells_of_all_that_does_not_fit),
		UNIT(skipped_tensors_keep_their_starting_values),
		UNIT(what_no_pattern_skips_is_still_an_error),
		UNIT(patterns_that_match_nothing_are_refused),
		UNIT(patterns_may_have_the_names_that_the_file_has),
		UNIT(file_of_another_model_is_refused),
		UNIT(num_batches_tracked_is_passed_over),
		UNIT(encoders_load_by_the_names_that_hugging_face_writes),
		UNIT(odd_tensors_matter_only_where_they_are_needed),
		UNIT(hash_is_sha256_of_the_values_in_name_order),
#ifdef GP_FAULTS
		UNIT(failed_allocation_is_an_error_not_a_crash),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
