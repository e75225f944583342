/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file of weights says about itself (client/weights/saved_model.h): it is read
 * back as it was written, and refused when it cannot be; where weights go when
 * their place cannot be written (client/weights/save_weights.h).
 */
#include <string.h>
#include <unistd.h>

#include "client/weights/save_weights.h"
#include "client/weights/saved_model.h"
#include "tests/unit/ok.h"

static char root[64];

static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gp_saved_XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static struct gp_dataset *open_data(const char *text)
{
	struct gp_dataset *d;
	const struct gp_dataset_options o = {.augment = false};
	OK(gp_dataset_open(text, GP_SPLIT_VAL, &o, &d, &err));
	return d;
}

static enum gp_status write_and_read(const struct gp_st_pair *pair, int count, struct gp_saved_model *out)
{
	char path[80];
	const struct gp_st_item item = {"a", {.ndim = 1, .dim = {1}}, "x", GP_ST_U8};
	snprintf(path, sizeof path, "%s/w.safetensors", root);
	OK(gp_st_write(path, &item, 1, pair, count, &err));
	return gp_saved_model_read(path, out, &err);
}

static void describe_and_read(const char *settled, const char *data, struct gp_saved_model *out)
{
	struct gp_saved_model m;
	struct gp_saved_pairs pairs;
	struct gp_dataset *d = open_data(data);
	OK(gp_saved_model_describe(settled, d, data, &m, &err));
	m.steps = 468;
	strcpy(m.run, "1f9c03ab");
	OK(gp_saved_pairs_make(&m, &pairs, &err));
	OK(write_and_read(pairs.pair, pairs.count, out));
	assert_memory_equal(&out->pictures, &m.pictures, sizeof m.pictures);
	gp_saved_pairs_deinit(&pairs);
	gp_saved_model_deinit(&m);
	gp_dataset_free(d);
}

static void what_is_written_is_read_back(void **state)
{
	(void)state;
	struct gp_saved_model m;
	char data[GP_SAVED_TEXT];
	describe_and_read("cnn:width=4,classes=3", "synthetic:shape=1x20x24,classes=3,mean=0.1,std=0.3", &m);
	assert_string_equal(m.model, "cnn:width=4,classes=3");
	assert_string_equal(m.version, GP_VERSION);
	assert_string_equal(m.run, "1f9c03ab");
	assert_int_equal(m.steps, 468);
	assert_int_equal(gp_saved_model_labels(&m), 3);
	assert_string_equal(gp_saved_model_label(&m, 2), "class 2");
	assert_true(m.pictures.shape.dim[0] == 20 && m.pictures.shape.dim[1] == 24 && m.pictures.mean[0] == 0.1f);
	assert_true(gp_saved_model_data(&m, data));
	assert_string_equal(data, "pictures:classes=3,shape=1x20x24");
	gp_saved_model_deinit(&m);
	describe_and_read("cnn", "pictures:size=96,classes=5", &m);
	assert_true(gp_saved_model_data(&m, data));
	assert_string_equal(data, "pictures:classes=5");
	gp_saved_model_deinit(&m);
	describe_and_read("fasttext:dim=8", "synthetic:tokens=12,vocab=50,classes=2", &m);
	assert_int_equal(m.tokens, 12);
	assert_false(gp_saved_model_data(&m, data));
	gp_saved_model_deinit(&m);
}

static void data_is_noted_without_the_path_to_its_folder(void **state)
{
	(void)state;
	static const char *const texts[][2] = {{"folder:/data/ann/flowers,size=96", "folder:flowers,size=96"},
					       {"folder:/data/ann/flowers//", "folder:flowers"},
					       {"tsv:/a/b.tsv,val=/data/ann/c.tsv,max=8", "tsv:b.tsv,val=c.tsv,max=8"},
					       {"tsv:b.tsv,val=/c.tsv", "tsv:b.tsv,val=c.tsv"},
					       {"fashion-mnist,limit=10", "fashion-mnist,limit=10"},
					       {"synthetic:shape=3x8x8", "synthetic:shape=3x8x8"},
					       {"pictures:mean=0.1/0.2/0.3,size=8", "pictures:mean=0.1/0.2/0.3,size=8"},
					       {"folder:a\033b/c\033", "folder:c?"}};
	struct gp_dataset *d = open_data("synthetic");
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		struct gp_saved_model m;
		OK(gp_saved_model_describe("cnn", d, texts[i][0], &m, &err));
		assert_string_equal(m.data, texts[i][1]);
		gp_saved_model_deinit(&m);
	}
	gp_dataset_free(d);
}

static void file_of_others_says_nothing(void **state)
{
	(void)state;
	struct gp_saved_model m;
	const struct gp_st_pair pairs[] = {{"format", "pt"}, {"model", "\033[2J"}, {"gpsplit.model", "cnn"}};
	OK(write_and_read(pairs, 3, &m)); /* not without gpsplit.format */
	assert_string_equal(m.model, "");
	assert_int_equal(gp_saved_model_labels(&m), 0);
	gp_saved_model_deinit(&m);
}

static void file_that_says_what_cannot_be_is_refused(void **state)
{
	(void)state;
	static char endless[2 << 20];
	memset(endless, ' ', sizeof endless - 1);
	endless[0] = '[';
	endless[sizeof endless - 2] = ']';
	const struct {
		struct gp_st_pair pair[4];
		const char *words;
	} cases[] = {
		{{{"gpsplit.model", "cnn\n"}}, "gpsplit.model is not a short printable text"},
		{{{"gpsplit.model", "cnn\xc2\x9b"}}, "gpsplit.model is not a short printable text"},
		{{{"gpsplit.run", endless}}, "gpsplit.run is not a short printable text"},
		{{{"gpsplit.labels", endless}}, "gpsplit.labels is not a JSON array"},
		{{{"gpsplit.labels", "[\"a\", 3]"}}, "gpsplit.labels is not a JSON array"},
		{{{"gpsplit.labels", "[\"\\u001b\"]"}}, "gpsplit.labels is not a JSON array"},
		{{{"gpsplit.steps", "-1"}}, "gpsplit.steps is not a number"},
		{{{"gpsplit.input", "3x0x8"}}, "gpsplit.input is not CxHxW"},
		{{{"gpsplit.input", "9x8x8"}}, "gpsplit.input is not CxHxW"},
		{{{"gpsplit.input", "3x8x9999"}}, "gpsplit.input is not CxHxW"},
		{{{"gpsplit.input", "3x8x8"}}, "gpsplit.mean is not one number"},
		{{{"gpsplit.input", "3x8x8"}, {"gpsplit.mean", "1/2"}}, "gpsplit.mean is not one number"},
		{{{"gpsplit.input", "3x8x8"}, {"gpsplit.mean", "1"}, {"gpsplit.std", "0"}},
		 "gpsplit.std is not one positive"},
		{{{"gpsplit.input", "3x8x8"}, {"gpsplit.mean", "1"}, {"gpsplit.std", "nan"}},
		 "gpsplit.std is not one positive"},
		{{{"gpsplit.input", "3x8x8"}, {"gpsplit.mean", "1"}, {"gpsplit.std", "1"}},
		 "gpsplit.scale is not 1/255"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_saved_model m = {.steps = 7};
		struct gp_st_pair pairs[5] = {{"gpsplit.format", "1"}};
		int count = 1;
		while (count < 5 && cases[i].pair[count - 1].key) {
			pairs[count] = cases[i].pair[count - 1];
			count++;
		}
		assert_int_equal(write_and_read(pairs, count, &m), GP_INVALID);
		if (!strstr(err.text, cases[i].words))
			fail_msg("'%s' does not mention '%s'", err.text, cases[i].words);
		assert_int_equal(m.steps, 7);
	}
	const struct gp_st_pair newer[] = {{"gpsplit.format", "2"}};
	struct gp_saved_model m;
	assert_int_equal(write_and_read(newer, 1, &m), GP_INVALID);
	assert_non_null(strstr(err.text, "gpsplit.format is not 1, the one that this version reads"));
}

static void weights_are_kept_somewhere_when_their_place_cannot_be_written(void **state)
{
	(void)state;
	char path[128];
	struct gp_graph *g;
	struct gp_weights *w;
	const struct gp_model_options o = {.classes = 2};
	OK(gp_model_build("cnn:width=1", &o, &g, &err));
	OK(gp_weights_new(g, &w, &err));
	snprintf(path, sizeof path, "%s/gone/w.safetensors", root);
	assert_int_equal(gp_save_somewhere(w, path, root, NULL, 0, &err), GP_IO);
	assert_non_null(strstr(err.text, "the line above says where the weights are"));
	snprintf(path, sizeof path, "%s/weights-not-saved-%ld.safetensors", root, (long)getpid());
	OK(gp_weights_load(w, path, true, NULL, &err));
	snprintf(path, sizeof path, "%s/w.safetensors", root);
	OK(gp_save_somewhere(w, path, NULL, NULL, 0, &err));
	OK(gp_weights_load(w, path, true, NULL, &err));
	gp_weights_free(w);
	gp_graph_free(g);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_written_is_read_back),
		TEST(data_is_noted_without_the_path_to_its_folder),
		TEST(file_of_others_says_nothing),
		TEST(file_that_says_what_cannot_be_is_refused),
		TEST(weights_are_kept_somewhere_when_their_place_cannot_be_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
