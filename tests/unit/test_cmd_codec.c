/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient codec` (client/commands/cmd_codec.c): exit statuses, the JSON object and
 * the file it writes. compare --bits: test_cmd_codec_bits.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <sys/stat.h>

#include "tests/unit/cmd_codec_rig.h"

/* Also tensors that cannot be read, beside ones that can: scalar has no dimensions, none no elements. */
#define ODD "tests/fuzz/corpus/safetensors/other_types.bin"

static void list_names_every_codec(void **state)
{
	(void)state;
	assert_int_equal(RUN("list"), 0);
	assert_non_null(strstr(out, "sortquant"));
	assert_non_null(strstr(out, "bits=1..16 (8)"));
	assert_int_equal(RUN("list", "--json"), 0);
	json_t *list = json_loads(out, 0, NULL);
	assert_true(json_array_size(list) >= 5);
	assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "name")), "raw");
	assert_true(json_is_true(json_object_get(json_array_get(list, 0), "lossless")));
	json_decref(list);
}

static void roundtrip_reports_size_error_and_speed_as_json(void **state)
{
	(void)state;
	assert_int_equal(
		RUN("roundtrip", "--codec", "sortquant:bits=6,split=2", "--in", INPUTS, "--tensor", "act", "--json"),
		0);
	json_t *o = json_loads(out, 0, NULL);
	assert_non_null(o);
	assert_true(number(o, "elements") == 32768);
	assert_true(number(o, "payload_bytes") == 4 + 32 + 32768);
	assert_true(fabs(number(o, "ratio") - 4.0 * 32768 / 32804) < 1e-6);
	assert_true(number(o, "rel_err") > 0 && number(o, "rel_err") < 0.03);
	assert_true(number(o, "max_err") > 0 && number(o, "max_err") < 0.1);
	assert_true(number(o, "encode_gelem_s") > 0 && number(o, "decode_gelem_s") > 0);
	json_decref(o);
}

static void roundtrip_writes_the_decoded_tensor_under_its_name(void **state)
{
	(void)state;
	char path[] = "/tmp/gp_codec_XXXXXX";
	struct gp_err e = {0};
	struct gp_st_file *before, *after;
	close(mkstemp(path));
	assert_int_equal(RUN("roundtrip", "--codec=raw", "--in", INPUTS, "--tensor", "hidden", "--out", path), 0);
	assert_non_null(strstr(out, "ratio 1.000"));
	assert_int_equal(gp_st_open(INPUTS, &before, &e), GP_OK);
	assert_int_equal(gp_st_open(path, &after, &e), GP_OK);
	unlink(path);
	const struct gp_st_tensor *a = gp_st_find(before, "hidden"), *b = gp_st_find(after, "hidden");
	assert_non_null(b);
	assert_int_equal(gp_st_count(after), 1);
	assert_true(gp_shape_equal(&a->shape, &b->shape));
	assert_memory_equal(a->data, b->data, a->count * 4);
	assert_string_equal(gp_st_metadata(after, "codec"), "raw");
	gp_st_close(before);
	gp_st_close(after);
}

static const char *codec_of(const json_t *object, size_t i)
{
	return json_string_value(json_object_get(row(object, i), "codec"));
}

static void commas_inside_specs_do_not_separate_them(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--json", "--codecs",
			     "raw,uniform:bits=8,sortquant:bits=6,split=1+zstd:level=2,fp16"),
			 0);
	json_t *o = json_loads(out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(o, "codecs")), 4);
	assert_string_equal(codec_of(o, 0), "raw");
	assert_string_equal(codec_of(o, 1), "uniform:bits=8");
	assert_string_equal(codec_of(o, 2), "sortquant:bits=6,split=1,sample=0,partitions=0,prune=1+zstd:level=2");
	assert_string_equal(codec_of(o, 3), "fp16");
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--json", "--codecs", "raw; fp16 ,bf16",
			     "uniform", "zstd"),
			 0);
	o = json_loads(out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(o, "codecs")), 5);
	assert_string_equal(codec_of(o, 2), "bf16");
	assert_string_equal(codec_of(o, 4), "raw+zstd:level=1");
	json_decref(o);
}

static void compare_tells_programs_bits_errors_speed_and_break_even(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--codecs", "raw,uniform:bits=8", "--json"),
			 0);
	json_t *o = json_loads(out, 0, NULL);
	assert_non_null(o);
	const json_t *raw = row(o, 0), *uniform = row(o, 1);
	assert_true(number(raw, "bits_per_element") == 32 && number(raw, "rel_err") == 0);
	assert_true(number(raw, "cosine") == 1);
	assert_true(json_is_null(json_object_get(raw, "break_even_bps")));
	assert_true(fabs(number(uniform, "bits_per_element") - 8.0 * (12 + 32768) / 32768) < 1e-6);
	const double error = number(uniform, "rel_err");
	assert_true(error > 0.01 && error < 0.02);
	assert_true(fabs(number(uniform, "cosine") - (1 - error * error / 2)) < 1e-4);
	/* The link sends what is saved in the time that coding takes. */
	const double ns = 1 / number(uniform, "encode_gelem_s") + 1 / number(uniform, "decode_gelem_s");
	const double saved = 32 - number(uniform, "bits_per_element");
	assert_true(fabs(number(uniform, "break_even_bps") / (saved / ns * 1e9) - 1) < 1e-6);
	json_decref(o);
}

static void compare_prints_a_row_per_codec(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "raw", "kmeans:bits=4"), 0);
	assert_int_equal(lines_of(out), 6);
	assert_non_null(strstr(out, "act (4x32x16x16)"));
	assert_non_null(strstr(out, "bits/el."));
	assert_non_null(strstr(out, "kmeans:bits=4"));
	assert_non_null(strstr(out, "never (no shorter than raw)\n"));
	assert_non_null(strstr(out, "bit/s (then raw)\n"));
}

/* With a warm-up what it codes is the difference to the same samples, of which less and less is left. */
static void delta_meets_the_samples_of_its_warmup_again(void **state)
{
	(void)state;
	static const char *const passes[] = {"0", "1", "8"};
	double error[3], bytes[3];
	for (int i = 0; i < 3; i++) {
		assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--json", "--warmup", passes[i],
				     "delta+uniform:bits=4", "uniform:bits=4"),
				 0);
		json_t *o = json_loads(out, 0, NULL);
		error[i] = number(row(o, 0), "rel_err");
		bytes[i] = number(row(o, 0), "payload_bytes");
		assert_int_equal(error[i] == number(row(o, 1), "rel_err"), i == 0);
		json_decref(o);
	}
	assert_true(error[1] < 0.2 * error[0] && error[2] < 0.2 * error[1]);
	assert_true(bytes[0] == bytes[1] && bytes[1] == bytes[2]);
}

static void stages_that_were_skipped_are_named(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--json",
			     "sortquant:bits=12,split=4+bitshuffle+zstd", "uniform:bits=4+zstd", "uniform:bits=4"),
			 0);
	json_t *o = json_loads(out, 0, NULL);
	const json_t *names = json_object_get(row(o, 0), "skipped");
	assert_int_equal(json_array_size(names), 2);
	assert_string_equal(json_string_value(json_array_get(names, 0)), "bitshuffle");
	assert_string_equal(json_string_value(json_array_get(names, 1)), "zstd");
	for (size_t i = 1; i < 3; i++) {
		names = json_object_get(row(o, i), "skipped");
		assert_true(json_is_array(names) && json_array_size(names) == 0);
	}
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "sortquant:bits=12,split=4+zstd", "zstd"),
			 0);
	assert_non_null(strstr(out, " (zstd skipped)\n"));
	assert_int_equal(RUN("roundtrip", "--codec", "sortquant:bits=12,split=4+bitshuffle+zstd", "--in", INPUTS,
			     "--tensor", "hidden"),
			 0);
	assert_non_null(strstr(out, " (bitshuffle skipped) (zstd skipped)\n"));
}

/* Whether what a codec remembers is warm: its error is that of the first pass, or another. */
static void codecs_with_memory_are_warmed_up_by_compare_alone(void **state)
{
	(void)state;
	double error[2];
	for (int i = 0; i < 2; i++) {
		assert_int_equal(RUN("roundtrip", "--in", INPUTS, "--tensor", "act", "--json", "--codec",
				     i ? "ef+uniform:bits=4" : "uniform:bits=4"),
				 0);
		json_t *o = json_loads(out, 0, NULL);
		error[i] = number(o, "rel_err");
		json_decref(o);
	}
	assert_true(error[0] == error[1]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--json", "--warmup", i ? "5" : "0",
				     "uniform:bits=4", "ef+uniform:bits=4"),
				 0);
		json_t *o = json_loads(out, 0, NULL);
		assert_true(number(row(o, 0), "rel_err") == error[0]);
		assert_int_equal(number(row(o, 1), "rel_err") == error[0], i == 0);
		json_decref(o);
	}
}

/* The first visit does not compress; the difference to itself, which is 0 in the end, does. */
static void what_was_skipped_is_that_of_the_pass_whose_size_is_told(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "hidden", "--json", "--warmup",
				     i ? "8" : "0", "delta+sortquant:bits=12,split=4+zstd"),
				 0);
		json_t *o = json_loads(out, 0, NULL);
		assert_int_equal(json_array_size(json_object_get(row(o, 0), "skipped")), i == 0);
		assert_int_equal(number(row(o, 0), "bits_per_element") > 16, i == 0);
		json_decref(o);
	}
}

static void one_codec_that_does_not_fit_is_a_line_among_the_others(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", ODD, "--tensor", "scalar", "fp16", "downsample", "uniform"), 0);
	assert_int_equal(lines_of(out), 7);
	assert_non_null(strstr(out, "\ndownsample does not fit: "));
	assert_int_equal(lines_of(err), 0);
	assert_int_equal(RUN("compare", "--in", ODD, "--tensor", "scalar", "fp16", "downsample", "--json"), 0);
	json_t *o = json_loads(out, 0, NULL);
	assert_true(number(row(o, 0), "elements") == 1);
	assert_non_null(strstr(json_string_value(json_object_get(row(o, 1), "error")), "shape scalar"));
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", ODD, "--tensor", "scalar", "downsample"), 3);
	assert_non_null(strstr(err, "no codec fits; downsample"));
	assert_int_equal(lines_of(err), 1);
}

static void all_tensors_of_a_file_are_compared_at_once(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--json", "fp16", "bdi"), 0);
	json_t *o = json_loads(out, 0, NULL);
	const json_t *list = json_object_get(o, "tensors");
	assert_int_equal(json_array_size(list), 4);
	for (size_t i = 0; i < 4; i++) {
		assert_true(number(row(json_array_get(list, i), 0), "bits_per_element") > 16 - 1e-9);
		assert_true(json_is_true(json_object_get(row(json_array_get(list, i), 1), "lossless")));
	}
	assert_null(json_object_get(o, "link"));
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act,hidden", "fp16"), 0);
	assert_true(strstr(out, "act (") && strstr(out, "hidden (") && !strstr(out, "grad ("));
}

static void codecs_are_ranked_for_a_link_and_one_is_recommended(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--json", "--link", "1mbit,1ms", "fp16",
			     "kmeans:bits=1", "downsample:factor=16", "uniform:bits=8"),
			 0);
	json_t *o = json_loads(out, 0, NULL);
	const json_t *ranking = json_object_get(o, "ranking");
	assert_int_equal(json_array_size(ranking), 4);
	for (size_t i = 0; i < 4; i++) {
		const json_t *place = json_array_get(ranking, i);
		assert_string_equal(json_string_value(json_object_get(place, "bound_by")), "link up");
		assert_true(i == 0 || number(place, "time_per_chunk_s") >
					      number(json_array_get(ranking, i - 1), "time_per_chunk_s"));
	}
	/* 32768 elements in 8 bits each take 0.26 s; the two that are faster lose too much. */
	assert_true(fabs(number(json_array_get(ranking, 2), "time_per_chunk_s") - 0.262) < 0.001);
	assert_string_equal(json_string_value(json_object_get(o, "recommended")), "uniform:bits=8");
	assert_non_null(strstr(json_string_value(json_object_get(o, "why")), "relative error of at most 0.1"));
	assert_true(number(json_object_get(o, "link"), "delay_s") == 0.001);
	json_decref(o);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--link", "1gbit,10s", "fp16"), 0);
	assert_non_null(strstr(out, "Recommended: raw. A chunk takes"));
	assert_int_equal(
		RUN("compare", "--in", INPUTS, "--tensor", "act", "--link", "1mbit", "--max-error", "0.000001", "fp16"),
		0);
	assert_non_null(strstr(out, "Recommended: none. All codecs in the list have a relative error above 1e-06"));
	static const char *const wrong[] = {"fast", "0", "100mbit,soon", "100mbit,", ",20ms", "100mbit,20ms,3"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		assert_int_equal(RUN("compare", "--in", INPUTS, "--link", wrong[i], "fp16"), 2);
		assert_non_null(strstr(err, "is not RATE or RATE,DELAY"));
	}
	static const char *const bare[] = {"100", "100mbit,20", "1e8,20ms"};
	for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++) {
		assert_int_equal(RUN("compare", "--in", INPUTS, "--link", bare[i], "fp16"), 2);
		assert_non_null(strstr(err, "lacks a unit"));
	}
}

/* Two texts of 3 positions with 2 features, of which the first has one position and the second all; `lengths` as `capture`
 * writes them. What is in the places of padding is far from all else. */
static void compare_texts(const int32_t lengths[2], const char *more)
{
	static const float x[12] = {1, -1, 900, 900, 900, 900, 0.5f, 0.25f, -1, 1, 0.75f, 0};
	char path[] = "/tmp/gp_codec_XXXXXX";
	struct gp_err e;
	const struct gp_st_item item[2] = {
		{.name = "act_up", .shape = {.ndim = 3, .dim = {2, 3, 2}}, .data = x, .dtype = GP_ST_F32},
		{.name = "act_up.length", .shape = {.ndim = 2, .dim = {2, 1}}, .data = lengths, .dtype = GP_ST_I32}};
	close(mkstemp(path));
	assert_int_equal(gp_st_write(path, item, 2, NULL, 0, &e), GP_OK);
	assert_int_equal(RUN("compare", "--in", path, "--tensor", "act_up", "--json", "uniform:bits=8",
			     "poweriter:rank=1+uniform:bits=8", "ef+fp16", more),
			 0);
	unlink(path);
}

static void padding_of_texts_is_left_out(void **state)
{
	(void)state;
	compare_texts((const int32_t[]){1, 3}, NULL);
	json_t *o = json_loads(out, 0, NULL);
	assert_int_equal(number(o, "positions"), 4);
	for (int i = 0; i < 3; i++)
		assert_int_equal(number(row(o, i), "elements"), 8);
	assert_true(number(row(o, 0), "max_err") < 0.01); /* its steps are of 2 / 255 */
	assert_int_equal(number(row(o, 0), "payload_bytes"), 12 + 8);
	assert_true(number(row(o, 1), "max_err") < 2);        /* zeros stand in the places of padding */
	assert_true(number(row(o, 2), "payload_bytes") > 24); /* one that remembers places has all of them */
	json_decref(o);
	static const int32_t wrong[][2] = {{0, 3}, {1, 4}, {-1, 3}};
	for (int i = 0; i < 3; i++) {
		compare_texts(wrong[i], NULL);
		o = json_loads(out, 0, NULL);
		assert_true(json_is_null(json_object_get(o, "positions")));
		assert_int_equal(number(row(o, 0), "elements"), 12);
		json_decref(o);
	}
	compare_texts((const int32_t[]){1, 3}, "--padding");
	o = json_loads(out, 0, NULL);
	assert_true(json_is_null(json_object_get(o, "positions")));
	json_decref(o);
}

static void compare_names_what_is_wrong_in_one_line(void **state)
{
	(void)state;
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act"), 2);
	assert_non_null(strstr(err, "compare needs --codecs A,B,... or --bits B"));
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--codecs", " ,; "), 2);
	assert_non_null(strstr(err, "names no codec"));
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--codecs", "raw,unifrm:bits=8"), 2);
	assert_non_null(strstr(err, "did you mean 'uniform'"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "acts", "--codecs", "raw"), 3);
	assert_non_null(strstr(err, "it has act, grad, hidden, relu6"));
	assert_int_equal(lines_of(err), 1);
	char many[353 * 4 + 1] = "";
	for (int i = 0; i < 353; i++)
		memcpy(many + 4 * i, "raw,", 5);
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--codecs", many), 2);
	assert_non_null(strstr(err, "at most 352"));
	char long_spec[400];
	memset(long_spec, 'a', sizeof long_spec - 1);
	long_spec[sizeof long_spec - 1] = '\0';
	assert_int_equal(RUN("compare", "--in", INPUTS, "--tensor", "act", "--codecs", long_spec), 2);
	assert_int_equal(lines_of(err), 1);
}

/* What codecs see of an image is (H,W,C), as on the link: a low rank over channels is found in either layout. */
static void images_are_coded_channels_last_and_written_as_they_were(void **state)
{
	(void)state;
	char path[] = "/tmp/gp_codec_XXXXXX", turned[] = "/tmp/gp_codec_XXXXXX";
	struct gp_err e = {0};
	struct gp_st_file *before, *after;
	close(mkstemp(path));
	close(mkstemp(turned));
	assert_int_equal(RUN("roundtrip", "--codec=poweriter:rank=12", "--in", INPUTS, "--tensor", "act", "--out", path,
			     "--json"),
			 0);
	json_t *o = json_loads(out, 0, NULL);
	assert_true(number(o, "rel_err") < 1e-6);
	json_decref(o);
	assert_int_equal(gp_st_open(INPUTS, &before, &e), GP_OK);
	assert_int_equal(gp_st_open(path, &after, &e), GP_OK);
	const struct gp_st_tensor *a = gp_st_find(before, "act"), *b = gp_st_find(after, "act");
	assert_true(gp_shape_equal(&a->shape, &b->shape));
	const float *x = (const float *)(const void *)a->data, *y = (const float *)(const void *)b->data;
	float *last = malloc(a->count * sizeof *last);
	for (uint64_t i = 0; i < a->count; i++) {
		assert_true(fabsf(x[i] - y[i]) < 1e-4f);
		last[(i / 8192 * 256 + i % 256) * 32 + i / 256 % 32] = x[i];
	}
	const struct gp_st_item item = {.name = "act", .shape = {.ndim = 4, .dim = {4, 16, 16, 32}}, .data = last};
	assert_int_equal(gp_st_write(turned, &item, 1, NULL, 0, &e), GP_OK);
	assert_int_equal(RUN("roundtrip", "--codec=poweriter:rank=12", "--in", turned, "--tensor", "act",
			     "--channels-last", "--json"),
			 0);
	o = json_loads(out, 0, NULL);
	assert_true(number(o, "rel_err") < 1e-6);
	json_decref(o);
	assert_int_equal(RUN("roundtrip", "--codec=poweriter:rank=12", "--in", turned, "--tensor", "act", "--json"), 0);
	o = json_loads(out, 0, NULL);
	assert_true(number(o, "rel_err") > 1e-2);
	json_decref(o);
	unlink(path);
	unlink(turned);
	free(last);
	gp_st_close(before);
	gp_st_close(after);
}

static void wrong_usage_exits_2_with_one_line(void **state)
{
	(void)state;
	assert_int_equal(RUN("roundtrip", "--in", INPUTS, "--tensor", "act"), 2);
	assert_non_null(strstr(err, "--codec"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(RUN("roundtrip", "--codec", "sortqant", "--in", INPUTS, "--tensor", "act"), 2);
	assert_non_null(strstr(err, "did you mean 'sortquant'"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(RUN("roundtrip", "--codek", "raw"), 2);
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(RUN("lst"), 2);
	assert_non_null(strstr(err, "unknown command 'lst'; did you mean 'list'?"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(run((const char *[]){NULL}, out, sizeof out, err, sizeof err), 2);
	assert_non_null(strstr(err, "usage:"));
	assert_int_equal(RUN("--help"), 0);
}

static void bad_input_exits_3_with_one_line_and_leaves_no_file(void **state)
{
	(void)state;
	assert_int_equal(
		RUN("roundtrip", "--codec=raw", "--in", "no/such/file", "--tensor", "act", "--out", "left.over"), 3);
	assert_non_null(strstr(err, "no/such/file"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(RUN("roundtrip", "--codec=raw", "--in", INPUTS, "--tensor", "acts", "--out", "left.over"), 3);
	assert_non_null(strstr(err, "it has act, grad, hidden, relu6"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(RUN("roundtrip", "--codec=raw", "--in", "tests/golden/codec/cases.safetensors", "--tensor",
			     "uniform_act_b8.codes", "--out", "left.over"),
			 3);
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(access("left.over", F_OK), -1);
}

static void output_that_would_replace_something_else_exits_3(void **state)
{
	(void)state;
	struct stat st;
	char path[] = "/tmp/gp_codec_XXXXXX", fifo[40];
	FILE *to = fdopen(mkstemp(path), "wb"), *from = fopen(INPUTS, "rb");
	assert_true(to && from);
	for (int c; (c = getc(from)) != EOF;)
		putc(c, to);
	fclose(from);
	assert_int_equal(fclose(to), 0);
	assert_int_equal(stat(path, &st), 0);
	const off_t size = st.st_size;
	assert_int_equal(RUN("roundtrip", "--codec=raw", "--in", path, "--tensor", "act", "--out", path), 3);
	assert_non_null(strstr(err, "is the file of --in"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size == size);
	unlink(path);
	snprintf(fifo, sizeof fifo, "%s.fifo", path);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(RUN("roundtrip", "--codec=raw", "--in", INPUTS, "--tensor", "act", "--out", fifo), 3);
	assert_non_null(strstr(err, "not a regular file"));
	assert_int_equal(lines_of(err), 1);
	assert_int_equal(lstat(fifo, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	unlink(fifo);
}

/* A chain with that codec in it. */
static const char *chain_with(const struct gp_codec_info *info, const char *kind, char *text, size_t size)
{
	const char *after = strcmp(kind, "wrapper") == 0 ? "+uniform" : strcmp(info->name, "bitshuffle") ? "" : "+zstd";
	snprintf(text, size, "%s%s%s", info->name, strcmp(info->name, "delta") ? "" : ":samples=5", after);
	return text;
}

static void a_tensor_without_elements_goes_through_every_codec(void **state)
{
	(void)state;
	char path[] = "/tmp/gp_codec_XXXXXX", spec[64];
	struct gp_err e = {0};
	struct gp_st_file *f;
	const struct gp_codec_info *info;
	close(mkstemp(path));
	for (int i = 0; (info = gp_codec_info(i)); i++) {
		chain_with(info, gp_codec_kind_name(i), spec, sizeof spec);
		if (RUN("roundtrip", "--codec", spec, "--in", ODD, "--tensor", "none", "--out", path, "--json") != 0)
			fail_msg("%s: %s", spec, err);
		json_t *o = json_loads(out, 0, NULL);
		assert_true(number(o, "elements") == 0 && number(o, "payload_bytes") == 0);
		json_decref(o);
		assert_int_equal(gp_st_open(path, &f, &e), GP_OK);
		assert_true(gp_shape_equal(&gp_st_find(f, "none")->shape, &(struct gp_shape){2, {3, 0}}));
		gp_st_close(f);
	}
	assert_int_equal(RUN("compare", "--in", ODD, "--tensor", "none", "raw", "uniform"), 0);
	unlink(path);
}

static void a_scalar_goes_through_every_codec_or_is_refused_with_the_reason(void **state)
{
	(void)state;
	char spec[64];
	const struct gp_codec_info *info;
	for (int i = 0; (info = gp_codec_info(i)); i++) {
		chain_with(info, gp_codec_kind_name(i), spec, sizeof spec);
		const int status = RUN("roundtrip", "--codec", spec, "--in", ODD, "--tensor", "scalar", "--json");
		const bool takes_dimensions = strcmp(info->name, "delta") == 0 ||
					      strcmp(info->name, "poweriter") == 0 ||
					      strcmp(info->name, "downsample") == 0;
		if (status != (takes_dimensions ? 3 : 0))
			fail_msg("%s: status %d, %s", spec, status, err);
		assert_int_equal(lines_of(err), takes_dimensions);
	}
}

static void a_tensor_that_cannot_be_read_exits_3_with_the_reason(void **state)
{
	(void)state;
	static const char *const cases[][2] = {
		{"bool", "it holds BOOL, which is not supported"},
		{"f8", "it holds F8_E4M3, which is not supported"},
		{"f4", "it holds F4, which is not supported"},
		{"deep", "it has 6 dimensions"},
		{"int", "it holds I32, not real numbers; integers cross a cut as they are"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(RUN("roundtrip", "--codec=raw", "--in", ODD, "--tensor", cases[i][0]), 3);
		if (!strstr(err, cases[i][1]) || strstr(strstr(err, "tensor '") + 1, "tensor '"))
			fail_msg("%s", err);
		assert_int_equal(lines_of(err), 1);
	}
	assert_int_equal(RUN("roundtrip", "--codec=raw", "--in", ODD, "--tensor", "x"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(list_names_every_codec),
		cmocka_unit_test(roundtrip_reports_size_error_and_speed_as_json),
		cmocka_unit_test(roundtrip_writes_the_decoded_tensor_under_its_name),
		cmocka_unit_test(commas_inside_specs_do_not_separate_them),
		cmocka_unit_test(compare_tells_programs_bits_errors_speed_and_break_even),
		cmocka_unit_test(compare_prints_a_row_per_codec),
		cmocka_unit_test(stages_that_were_skipped_are_named),
		cmocka_unit_test(codecs_with_memory_are_warmed_up_by_compare_alone),
		cmocka_unit_test(delta_meets_the_samples_of_its_warmup_again),
		cmocka_unit_test(what_was_skipped_is_that_of_the_pass_whose_size_is_told),
		cmocka_unit_test(one_codec_that_does_not_fit_is_a_line_among_the_others),
		cmocka_unit_test(all_tensors_of_a_file_are_compared_at_once),
		cmocka_unit_test(codecs_are_ranked_for_a_link_and_one_is_recommended),
		cmocka_unit_test(padding_of_texts_is_left_out),
		cmocka_unit_test(compare_names_what_is_wrong_in_one_line),
		cmocka_unit_test(images_are_coded_channels_last_and_written_as_they_were),
		cmocka_unit_test(wrong_usage_exits_2_with_one_line),
		cmocka_unit_test(bad_input_exits_3_with_one_line_and_leaves_no_file),
		cmocka_unit_test(a_tensor_without_elements_goes_through_every_codec),
		cmocka_unit_test(a_scalar_goes_through_every_codec_or_is_refused_with_the_reason),
		cmocka_unit_test(a_tensor_that_cannot_be_read_exits_3_with_the_reason),
		cmocka_unit_test(output_that_would_replace_something_else_exits_3),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
