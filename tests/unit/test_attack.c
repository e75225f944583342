/* SPDX-License-Identifier: Apache-2.0
 *
 * An attack on a cut: decoders that fit what crosses, pictures that come back from a cut that
 * tells all, and none from one that tells nothing.
 */
#include <math.h>
#include <string.h>

#include "client/attack/attack.h"
#include "client/attack/attack_decoder.h"
#include "client/models/models.h"
#include "tests/unit/ok.h"

/* --- decoders ---------------------------------------------------------------------------------------------------- */

static const struct gp_shape picture = {.ndim = 3, .dim = {30, 28, 3}};

static struct gp_shape map_of(int64_t h, int64_t w, int64_t c)
{
	return (struct gp_shape){.ndim = 3, .dim = {h, w, c}};
}

static void check_decoder(const struct gp_shape *in, int count, uint64_t want)
{
	struct gp_graph *g;
	uint64_t read;
	OK(gp_attack_decoder(in, count, &picture, &read, &g, &err));
	assert_int_equal(read, want);
	assert_int_equal(g->inputs, __builtin_popcountll(want));
	assert_int_equal(gp_shape_elements(gp_graph_output_shape(g)), gp_shape_elements(&picture));
	gp_graph_free(g);
}

static void a_decoder_ends_in_the_picture_wherever_it_begins(void **state)
{
	(void)state;
	const struct gp_shape one[] = {map_of(30, 28, 4), map_of(15, 14, 8),       map_of(8, 7, 5),
				       map_of(4, 4, 16),  map_of(1, 1, 9),         map_of(13, 11, 2),
				       map_of(30, 14, 2), {.ndim = 1, .dim = {40}}};
	for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
		check_decoder(&one[i], 1, 1);
}

static void tensors_as_large_as_the_largest_are_read_together(void **state)
{
	(void)state;
	const struct gp_shape several[] = {{.ndim = 1, .dim = {9}},
					   map_of(8, 7, 3),
					   map_of(15, 14, 2),
					   {.ndim = 2, .dim = {4, 4}},
					   map_of(15, 14, 6)};
	check_decoder(several, 5, 1 << 2 | 1 << 4);
	check_decoder(several, 2, 1 << 1);
	check_decoder(several, 1, 1);
}

static void what_no_decoder_reads_is_refused(void **state)
{
	struct gp_graph *g;
	uint64_t read;
	(void)state;
	const struct gp_shape sequence = {.ndim = 2, .dim = {4, 4}}, larger = map_of(60, 28, 1);
	assert_int_equal(gp_attack_decoder(&sequence, 1, &picture, &read, &g, &err), GP_UNSUPPORTED);
	assert_int_equal(gp_attack_decoder(&larger, 1, &picture, &read, &g, &err), GP_UNSUPPORTED);
	assert_non_null(strstr(err.text, "60x28"));
	assert_int_equal(gp_attack_decoder(NULL, 0, &picture, &read, &g, &err), GP_UNSUPPORTED);
}

/* --- attacks ----------------------------------------------------------------------------------------------------- */

enum { BATCH = 16, SIDE = 8 };

struct rig {
	struct gp_graph *graph;
	struct gp_dataset *train_data, *check_data;
	struct gp_loader *train, *check;
	struct gp_codec_spec codec;
	struct gp_attack attack;
};

static void rig_init(struct rig *r, const char *codec, const char *cut)
{
	const struct gp_shape shape = map_of(SIDE, SIDE, 1);
	const struct gp_dataset_options options = {.shape = shape};
	const struct gp_model_options model = {.classes = 4, .input = shape};
	const struct gp_loader_spec loader = {.batch = BATCH, .drop_last = true, .seed = 1, .prefetch = 1};
	const char data[] = "synthetic:shape=1x8x8,classes=4,samples=160,noise=0";
	OK(gp_dataset_open(data, GP_SPLIT_TRAIN, &options, &r->train_data, &err));
	OK(gp_dataset_open(data, GP_SPLIT_VAL, &options, &r->check_data, &err));
	OK(gp_loader_new(r->train_data, &loader, &r->train, &err));
	OK(gp_loader_new(r->check_data, &loader, &r->check, &err));
	OK(gp_model_build("cnn:width=8", &model, &r->graph, &err));
	OK(gp_codec_spec_parse(codec, &r->codec, &err));
	OK(gp_codec_spec_set_samples(&r->codec, 160, &err));
	r->attack = (struct gp_attack){.victim = {.graph = r->graph,
						  .codec = &r->codec,
						  .device = "cpu",
						  .threads = 1,
						  .batch = BATCH,
						  .seed = 5},
				       .train = r->train,
				       .check = r->check,
				       .steps = 30,
				       .check_batches = 2,
				       .lr = 0.005f,
				       .shown = 3};
	gp_dataset_preparation(r->train_data, &r->attack.pictures);
	OK(gp_cut_parse(r->graph, cut, &r->attack.victim.cut, &err));
}

static void rig_deinit(struct rig *r)
{
	gp_loader_free(r->train);
	gp_loader_free(r->check);
	gp_dataset_free(r->train_data);
	gp_dataset_free(r->check_data);
	gp_graph_free(r->graph);
}

static struct gp_attack_result run(const char *codec, const char *cut)
{
	struct rig r;
	struct gp_attack_result result;
	rig_init(&r, codec, cut);
	OK(gp_attack_run(&r.attack, &result, &err));
	rig_deinit(&r);
	return result;
}

static void pictures_come_back_from_an_early_cut(void **state)
{
	(void)state;
	struct gp_attack_result a = run("raw", "1:-1");
	print_message("PSNR %.2f dB, mean picture %.2f dB, distance correlation %.3f\n", a.psnr_db,
		      a.mean_picture_psnr_db, a.correlation.corrected);
	assert_int_equal(a.steps, 30);
	assert_int_equal(a.checked, 2 * BATCH);
	assert_int_equal(a.samples, 2 * BATCH);
	assert_int_equal(a.shown, 3);
	assert_true(a.psnr_db > a.mean_picture_psnr_db + 3);
	assert_true(a.correlation.corrected > 0.5);
	assert_true(a.payload_bytes == 4 * 4 * 8 * 4);
	double wrong = 0;
	for (int i = 0; i < 3 * SIDE * SIDE; i++)
		wrong += fabs((double)a.original[i] - (double)a.restored[i]);
	assert_true(wrong / (3 * SIDE * SIDE) < 60);
	gp_attack_result_deinit(&a);
}

static void the_same_flags_give_the_same_figures(void **state)
{
	(void)state;
	struct gp_attack_result a = run("delta+uniform:bits=4", "1:-1"), b = run("delta+uniform:bits=4", "1:-1");
	assert_true(a.psnr_db == b.psnr_db && a.correlation.squared == b.correlation.squared);
	gp_attack_result_deinit(&a);
	gp_attack_result_deinit(&b);
}

/* The largest elements alone tell little. */
static void a_codec_that_leaves_little_leaves_little_to_restore(void **state)
{
	(void)state;
	struct gp_attack_result all = run("raw", "2:-1"), little = run("topk:ratio=0.005", "2:-1");
	print_message("PSNR %.2f and %.2f dB\n", all.psnr_db, little.psnr_db);
	assert_true(little.psnr_db < all.psnr_db - 1);
	assert_true(little.payload_bytes < all.payload_bytes / 8);
	gp_attack_result_deinit(&all);
	gp_attack_result_deinit(&little);
}

static void a_decoder_that_diverges_is_told(void **state)
{
	struct rig r;
	struct gp_attack_result result = {0};
	(void)state;
	rig_init(&r, "raw", "1:-1");
	r.attack.lr = 1e30f;
	assert_int_equal(gp_attack_run(&r.attack, &result, &err), GP_CANCELED);
	assert_non_null(strstr(err.text, "--lr"));
	assert_null(result.original);
	rig_deinit(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decoder_ends_in_the_picture_wherever_it_begins),
		cmocka_unit_test(tensors_as_large_as_the_largest_are_read_together),
		cmocka_unit_test(what_no_decoder_reads_is_refused),
		cmocka_unit_test(pictures_come_back_from_an_early_cut),
		cmocka_unit_test(the_same_flags_give_the_same_figures),
		cmocka_unit_test(a_codec_that_leaves_little_leaves_little_to_restore),
		cmocka_unit_test(a_decoder_that_diverges_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
