/* SPDX-License-Identifier: Apache-2.0
 *
 * Dataset texts and the registry (client/data/data_spec.c, client/data/dataset.c).
 */
#include "tests/unit/data_files.h"
#include "client/job/job.h"

/* Reads the text behind the class's name. */
static void parse(const struct gp_dataset_class *class, const char *rest, struct gp_data_spec *out)
{
	struct gp_dataset d = {.class = class};
	struct gp_err err = {0};
	struct gp_spec s;
	char text[200];
	snprintf(text, sizeof text, "%s%s", class->info.name, rest);
	gp_spec_begin(&s, gp_text_of(text));
	if (gp_data_spec_read(&d, &s, out, &err) != GP_OK)
		fail_msg("%s", err.text);
	class->close(&d);
}

static void assert_usage(const char *spec, const char *wanted)
{
	assert_open_fails(spec, GP_SPLIT_TRAIN, GP_USAGE, wanted);
}

static void folder_and_options_are_told_apart(void **state)
{
	struct gp_data_spec s;
	(void)state;
	parse(&gp_data_folder, ":a:b=c/d,size=128,limit=9,augment=0", &s);
	assert_string_equal(s.dir, "a:b=c/d");
	assert_int_equal(s.limit, 9);
	assert_int_equal(s.augment, 0);
	assert_int_equal(s.flip, -1);
	parse(&gp_data_fashion_mnist, ":here,flip=1", &s);
	assert_string_equal(s.dir, "here");
	assert_int_equal(s.flip, 1);
}

static void keys_may_follow_the_name_itself(void **state)
{
	static const char *const texts[] = {":limit=5", ",limit=5", ":,limit=5"};
	struct gp_data_spec s;
	(void)state;
	for (int i = 0; i < 3; i++) {
		parse(&gp_data_fashion_mnist, texts[i], &s);
		assert_string_equal(s.dir, "");
		assert_int_equal(s.limit, 5);
	}
}

static void families_have_keys_of_their_own(void **state)
{
	const struct gp_dataset_options none = {0};
	struct gp_err err = {0};
	struct gp_dataset *d;
	(void)state;
	assert_int_equal(
		gp_dataset_open("synthetic,shape=3x16x24,classes=7,samples=11", GP_SPLIT_TRAIN, &none, &d, &err),
		GP_OK);
	assert_int_equal(gp_dataset_shape(d)->dim[0], 16);
	assert_int_equal(gp_dataset_shape(d)->dim[1], 24);
	assert_int_equal(gp_dataset_shape(d)->dim[2], 3);
	assert_int_equal(gp_dataset_classes(d), 7);
	assert_int_equal(gp_dataset_samples(d), 11);
	gp_dataset_free(d);
}

static void statistics_are_one_number_or_three(void **state)
{
	struct gp_data_spec s;
	(void)state;
	parse(&gp_data_cifar10, ":x,mean=0.5,std=0.1/0.2/0.3", &s);
	assert_int_equal(s.mean_count, 1);
	assert_int_equal(s.std_count, 3);
	assert_true(s.mean[0] == 0.5f && s.std[2] == 0.3f);
	assert_usage("cifar10:x,mean=1/2",
		     "dataset cifar10: mean: '1/2' is not one number or three as a/b/c, on the scale 0..1");
	assert_usage("cifar10:x,std=0",
		     "dataset cifar10: std: '0' is not one positive number or three as a/b/c, on the scale 0..1");
	assert_usage("cifar10:x,mean=1/2/3/4",
		     "dataset cifar10: mean: '1/2/3/4' is not one number or three as a/b/c, on the scale 0..1");
}

static void unknown_names_get_a_suggestion(void **state)
{
	(void)state;
	assert_usage("cifar-10:x", "no dataset is named 'cifar-10'; did you mean 'cifar10'? There are: fashion-mnist, "
				   "idx, cifar10, cifar100, "
				   "folder, synthetic, pictures, glue-cola, glue-rte, glue-sst2, glue-stsb, tsv, text");
	assert_usage("", "no dataset is named ''; there are: fashion-mnist, idx, cifar10, cifar100, folder, synthetic, "
			 "pictures, glue-cola, glue-rte, glue-sst2, glue-stsb, tsv, text");
	assert_usage("folder:x,szie=3",
		     "dataset folder: no key 'szie'; did you mean 'size'? (keys: DIR,size=224,limit=N,"
		     "part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1,mean=R/G/B,std=R/G/B)");
	assert_usage(
		"idx:x,size=32",
		"dataset idx: no key 'size' (keys: DIR,limit=N,part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1,"
		"mean=0.286,std=0.353)");
}

static void malformed_texts_say_what_is_wanted(void **state)
{
	(void)state;
	assert_usage("cifar10", "dataset cifar10 needs a folder: cifar10:DIR");
	assert_usage("folder:,size=8", "dataset folder needs a folder: folder:DIR");
	assert_usage("synthetic:x",
		     "dataset synthetic: 'x' is not key=value (keys: shape=3x32x32,classes=10,"
		     "samples=10000,noise=0.5,seed=0,limit=N,part=I/N,dirichlet=A,part-seed=0,augment=0|1,flip=0|1, "
		     "or tokens=128,vocab=1000,classes=2,samples=10000,noise=0.5,seed=0,limit=N,part=I/N,dirichlet=A,"
		     "part-seed=0)");
	assert_usage("synthetic:limit=0", "dataset synthetic: limit: 0 is out of range (1..4294967295)");
	assert_usage("synthetic:shape=3x32",
		     "dataset synthetic: shape: '3x32' is not CxHxW with 1 or 3 channels and at "
		     "most 4096 pixels a side, such as 3x32x32");
	assert_usage("synthetic:shape=2x8x8", "dataset synthetic: shape: '2x8x8' is not CxHxW with 1 or 3 channels and "
					      "at most 4096 pixels a side, such as 3x32x32");
	assert_usage("synthetic:augment=maybe", "dataset synthetic: augment: 'maybe' is not yes or no");
	assert_usage("synthetic:noise=-1", "dataset synthetic: noise: -1 is out of range (0..8)");
	assert_usage("synthetic:mean=0.1/0.2/0.3,shape=1x8x8",
		     "dataset synthetic: mean= and std= name three channels, but images have 1");
}

static void every_dataset_is_listed_with_its_options(void **state)
{
	int i = 0;
	(void)state;
	for (; gp_dataset_info(i); i++) {
		assert_non_null(gp_dataset_info(i)->summary);
		bool has_images = strcmp(gp_dataset_info(i)->name, "pictures") != 0;
		assert_int_equal(strstr(gp_dataset_info(i)->options, "limit=N") != NULL, has_images);
	}
	assert_int_equal(i, 13);
	assert_null(gp_dataset_info(-1));
}

static const char *help_of_data(void)
{
	for (int i = 0; i < gp_job_model_rows.count; i++)
		if (strcmp(gp_job_model_rows.opt[i].name, "data") == 0)
			return gp_job_model_rows.opt[i].help;
	fail_msg("there is no option --data");
	return NULL;
}

/* Whether a cell of the page's tables names it: `NAME`, `NAME:DIR`. */
static bool page_has(const char *name)
{
	char line[1024], cell[64];
	bool found = false;
	FILE *f = fopen("client/README.md", "r");
	assert_non_null(f);
	const size_t n = (size_t)snprintf(cell, sizeof cell, "`%s", name);
	while (fgets(line, sizeof line, f))
		for (const char *p = line[0] == '|' ? strstr(line, cell) : NULL; p; p = strstr(p + 1, cell))
			found |= p[n] == '`' || p[n] == ':';
	fclose(f);
	return found;
}

static void users_are_told_of_every_dataset(void **state)
{
	(void)state;
	for (int i = 0; gp_dataset_info(i); i++) {
		const char *name = gp_dataset_info(i)->name;
		if (!page_has(name))
			fail_msg("client/README.md has no dataset %s", name);
		/* Only infer takes "pictures"; the help of --data is that of other commands, too. */
		if (strcmp(name, "pictures") != 0 && !strstr(help_of_data(), name))
			fail_msg("--help of --data does not name %s", name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folder_and_options_are_told_apart),
		cmocka_unit_test(keys_may_follow_the_name_itself),
		cmocka_unit_test(families_have_keys_of_their_own),
		cmocka_unit_test(statistics_are_one_number_or_three),
		cmocka_unit_test(unknown_names_get_a_suggestion),
		cmocka_unit_test(malformed_texts_say_what_is_wanted),
		cmocka_unit_test(every_dataset_is_listed_with_its_options),
		cmocka_unit_test(users_are_told_of_every_dataset),
	};
	return cmocka_run_group_tests(tests, make_data_dir, remove_data_dir);
}
