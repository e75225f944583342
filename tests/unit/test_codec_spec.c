/* SPDX-License-Identifier: Apache-2.0
 *
 * Codec specs, the table and the registry (common/codec/codec_spec.c,
 * codec_table.h, codec_registry.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>

#include "common/codec/codec_impl.h"

static void assert_refused(const char *text, const char *word)
{
	struct gp_codec_spec spec;
	struct gp_err err = {0};
	enum gp_status status = gp_codec_spec_parse(text, &spec, &err);
	if (status != GP_USAGE || !strstr(err.text, word))
		print_error("\"%s\" gave status %d, text \"%s\" without \"%s\"\n", text, (int)status, err.text, word);
	assert_int_equal(status, GP_USAGE);
	assert_non_null(strstr(err.text, word));
}

static void assert_canonical(const char *text, const char *canonical)
{
	struct gp_codec_spec spec, again;
	struct gp_err err = {0};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_string_equal(spec.text, canonical);
	assert_int_equal(gp_codec_spec_parse(spec.text, &again, &err), GP_OK);
	assert_memory_equal(&spec, &again, sizeof spec);
}

static void canonical_text_writes_every_key_and_parses_to_itself(void **state)
{
	(void)state;
	assert_canonical("raw", "raw");
	assert_canonical("fp16", "fp16");
	assert_canonical("bf16", "bf16");
	assert_canonical("uniform", "uniform:bits=8");
	assert_canonical("smaq:round=trunc", "smaq:main=6,outlier=8"); /* a key that came later */
	assert_canonical("smaq:round=nearest,main=5", "smaq:main=5,outlier=8,round=nearest");
	assert_canonical("smaq:reach=12,main=5", "smaq:main=5,outlier=8,reach=12");
	assert_canonical("smaq:reach=2.50", "smaq:main=6,outlier=8");
	assert_canonical("uniform:bits=016", "uniform:bits=16");
	assert_canonical("sortquant:split=3", "sortquant:bits=6,split=3,sample=0,partitions=0,prune=1");
	assert_canonical("sortquant:sample=4096,bits=4", "sortquant:bits=4,split=2,sample=4096,partitions=0,prune=1");
}

static void parsed_values_are_in_key_order(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	struct gp_err err = {0};
	assert_int_equal(gp_codec_spec_parse("sortquant:split=1,bits=12", &spec, &err), GP_OK);
	assert_int_equal(spec.stages, 1);
	assert_int_equal(spec.stage[0].id, 5);
	assert_true(spec.stage[0].value[0] == 12 && spec.stage[0].value[1] == 1 && spec.stage[0].value[2] == 0);
}

static void errors_name_stage_key_and_allowed_range(void **state)
{
	(void)state;
	assert_refused("uniform:bits=17", "codec stage 1 (uniform): bits: 17 is out of range (1..16)");
	assert_refused("uniform:bits=0", "1..16");
	assert_refused("uniform:bits=-1", "1..16");
	assert_refused("uniform:bits=4.5", "1..16");
	assert_refused("uniform:bits=", "1..16");
	assert_refused("uniform:bits=99999999999999999999", "1..16");
	assert_refused("sortquant:split=9", "0..8");
	assert_refused("smaq:reach=1.49", "1.5..1000");
	assert_refused("smaq:reach=1000.01", "1.5..1000");
	assert_refused("smaq:reach=2.555", "reach");
	assert_refused("sortquant:bits=12,split=5", "bits + split is in 2..16");
	assert_refused("sortquant:split=8,partitions=2", "split=8 and partitions=2 exclude each other");
	assert_refused("sortquant:bits=16,split=0,partitions=200", "split=0 and partitions=200 exclude each other");
	assert_refused("sortquant:bits=16,partitions=200",
		       "bits=16 with partitions=200 is not allowed; bits and the 8 bits");
	assert_refused("sortquant:bits=1,split=0", "bits + split is in 2..16");
	assert_refused("uniform:bits=4,bits=5", "given twice");
}

static void errors_name_the_nearest_known_word(void **state)
{
	(void)state;
	assert_refused("sortqant", "did you mean 'sortquant'");
	assert_refused("unifrom:bits=8", "did you mean 'uniform'");
	assert_refused("sortquant:bit=6", "did you mean 'bits'");
	assert_refused("zzz", "there are: raw, fp16, bf16, uniform, sortquant, ");
	assert_refused("raw:level=1", "it has no keys");
	assert_refused("uniform:levels=7", "keys: bits=1..16 (8)");
}

static void only_near_names_are_offered(void **state)
{
	(void)state;
	static const char *const far[] = {"gzip", "1e3", "foo", "int8", "lz"};
	for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
		struct gp_codec_spec spec;
		struct gp_err err = {0};
		assert_int_equal(gp_codec_spec_parse(far[i], &spec, &err), GP_USAGE);
		if (strstr(err.text, "did you mean"))
			fail_msg("%s", err.text);
	}
}

static void malformed_texts_are_refused(void **state)
{
	(void)state;
	assert_refused("", "empty");
	assert_refused(":", "stage 1: no codec is named ''");
	assert_refused("+", "stage 1 is missing, before or behind a '+'");
	assert_refused("uniform+", "stage 2 is missing");
	assert_refused("uniform++rans", "stage 2 is missing");
	assert_refused("raw+", "stage 2");
	assert_refused("uniform:", "is not key=value (keys: bits=1..16 (8))");
	assert_refused("uniform:bits", "is not key=value (keys: bits=1..16 (8))");
	assert_refused("uniform:bits=8,", "is not key=value (keys: bits=1..16 (8))");
	assert_refused("uniform:=8", "is not key=value (keys: bits=1..16 (8))");
	assert_refused("Raw", "character 1 is 'R'; names and keys are in lower case");
	assert_refused("raw\n", "character 4 (0x0a)");
	assert_refused("raw\xff", "character 4 (0xff)");
	assert_refused("averyveryveryverylongcodecname",
		       "stage 1: no codec is named 'averyveryveryverylongcodecname'; there are: raw");
}

static void senseless_chains_are_refused_with_the_reason(void **state)
{
	(void)state;
	assert_refused("uniform+raw", "stage 2 (raw) cannot follow uniform: a chain has one quantizer");
	assert_refused("zstd+uniform", "stage 2 (uniform) cannot follow zstd: it needs a tensor");
	assert_refused("uniform+ef",
		       "stage 2 (ef) cannot follow uniform: it remembers whole tensors, so it comes first");
	assert_refused("ef+ef+uniform", "both remember what the other end has");
	assert_refused("ef+delta+uniform", "stage 2 (delta) cannot follow ef: both remember what the other end has");
	assert_refused("uniform+zstd+zstd", "do not compress again");
	assert_refused("uniform+rans+zstd",
		       "stage 3 (zstd) cannot follow rans: compressed bytes do not compress again");
	assert_refused("raw+zstd+bitshuffle", "compressed bytes gain nothing from being rearranged");
	assert_refused("fp16+bitshuffle", "stage 2 (bitshuffle) shortens nothing by itself");
	assert_refused("fp16+bitshuffle+bitshuffle+zstd", "the same stage twice");
	assert_refused("poweriter+downsample",
		       "stage 2 (downsample) cannot follow poweriter: its factors have the rank");
	assert_refused("poweriter:rank=4+topk", "stage 2 (topk) cannot follow poweriter");
	assert_refused("ef+topk+poweriter", "stage 3 (poweriter) cannot follow topk: the elements that it has chosen");
	assert_refused("downsample+topk+poweriter", "stage 3 (poweriter) cannot follow topk");
	assert_refused("topk+downsample", "stage 2 (downsample) cannot follow topk");
	assert_refused("ef+zstd", "stage 1 (ef) needs a lossy stage after it");
	assert_refused("raw+raw+raw+raw+raw+raw+raw+raw+raw", "more than 8 stages");
}

static void a_missing_quantizer_is_raw(void **state)
{
	(void)state;
	assert_canonical("zstd", "raw+zstd:level=1");
	assert_canonical("zstd:level=7", "raw+zstd:level=7");
	assert_canonical("bitshuffle+zstd", "raw+bitshuffle:unit=0+zstd:level=1");
	assert_canonical("rans", "raw+rans");
	assert_canonical("rans:predict=none,tables=all", "raw+rans");
	assert_canonical("uniform+rans:tables=channel", "uniform:bits=8+rans:tables=channel");
	assert_canonical("rans:tables=channel,predict=map", "raw+rans:predict=map,tables=channel");
	assert_canonical("uniform+bitshuffle+rans", "uniform:bits=8+bitshuffle:unit=0+rans");
	assert_canonical("ef+uniform+zstd", "ef+uniform:bits=8+zstd:level=1");
}

static void long_texts_are_refused_without_being_read(void **state)
{
	(void)state;
	char text[4096];
	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	assert_refused(text, "longer than 255");
	for (size_t i = 0; i + 4 < 255; i += 4)
		memcpy(text + i, "raw+", 4);
	text[251] = '\0';
	assert_refused(text, "more than 8 stages");
}

#define ROW(id, name, gpu) {#name, id},
static const struct {
	const char *name;
	int id;
} rows[] = {GP_CODECS(ROW)};
enum { ROWS = sizeof rows / sizeof rows[0] };

static void every_row_of_the_table_is_a_codec(void **state)
{
	(void)state;
	for (int i = 0; i < ROWS; i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_at(i);
		assert_string_equal(ops->info.name, rows[i].name);
		assert_int_equal(ops->id, rows[i].id);
		assert_ptr_equal(gp_codec_ops_by_name(rows[i].name), ops);
		assert_ptr_equal(gp_codec_ops_by_id((uint16_t)rows[i].id), ops);
		assert_ptr_equal(gp_codec_info(i), &ops->info);
	}
	assert_null(gp_codec_info(ROWS));
	assert_null(gp_codec_info(-1));
	assert_null(gp_codec_ops_by_id(0));
}

/* The page is normative: an id that changes here and not there, or is given twice, is found. */
static void wire_ids_are_those_of_the_page(void **state)
{
	(void)state;
	FILE *page = fopen("common/CODECS.md", "r");
	char line[1024], name[64];
	int id, row = 0;
	assert_non_null(page);
	while (fgets(line, sizeof line, page))
		if (sscanf(line, "| %d | `%63[a-z0-9_]` |", &id, name) == 2) {
			assert_true(row < ROWS);
			assert_string_equal(name, rows[row].name);
			assert_int_equal(id, rows[row].id);
			assert_true(row == 0 || id > rows[row - 1].id);
			row++;
		}
	assert_int_equal(row, ROWS);
	fclose(page);
}

static void every_codec_has_examples_of_itself(void **state)
{
	(void)state;
	for (int i = 0; gp_codec_info(i); i++) {
		const char *const *text = gp_codec_info(i)->examples;
		assert_non_null(text);
		assert_non_null(*text);
		for (; *text; text++) {
			struct gp_codec_spec spec;
			struct gp_err err = {0};
			bool found = false;
			if (gp_codec_spec_parse(*text, &spec, &err) != GP_OK)
				fail_msg("%s: %s", *text, err.text);
			for (int s = 0; s < spec.stages; s++)
				found |= spec.stage[s].id == rows[i].id;
			if (!found)
				fail_msg("%s is no example of %s", *text, rows[i].name);
		}
	}
}

static void keys_are_described_for_people(void **state)
{
	(void)state;
	char text[256];
	for (int i = 0; gp_codec_info(i); i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_at(i);
		assert_non_null(gp_codec_kind_name(i));
		assert_null(gp_codec_key_info(i, ops->keys));
		for (int k = 0; k < ops->keys; k++) {
			const struct gp_codec_key *key = gp_codec_key_info(i, k);
			assert_ptr_equal(key, &ops->key[k]);
			assert_non_null(key->help);
			assert_true((key->or_zero && key->initial == 0) ||
				    (key->initial >= key->min && key->initial <= key->max));
		}
		if (strcmp(ops->info.name, "sortquant") == 0)
			assert_non_null(strstr(gp_codec_keys_text(i, text, sizeof text),
					       "bits=1..16 (6), split=0..8 (2), sample=0..1048576 (0)"));
	}
	assert_null(gp_codec_kind_name(-1));
	assert_null(gp_codec_key_info(-1, 0));
}

static bool parse_key(const struct gp_codec_key *key, const char *text, double *value)
{
	const struct gp_value_form form = gp_codec_key_form(key);
	char why[GP_VALUE_WHY];
	union gp_value v;
	if (!gp_value_parse(&form, gp_text_of(text), &v, why))
		return false;
	*value = key->words ? v.choice : v.real;
	return true;
}

static void assert_number(const struct gp_codec_key *key, const char *text, double expected, const char *printed)
{
	double v = -1;
	char out[GP_SHOWN];
	assert_true(parse_key(key, text, &v));
	assert_true(v == expected);
	assert_string_equal(gp_codec_key_print(key, v, out), printed);
	double again = -1;
	assert_true(parse_key(key, out, &again));
	assert_true(again == v);
}

static void fractions_and_words_print_as_what_parses_to_them(void **state)
{
	(void)state;
	const struct gp_codec_key ratio = {.name = "ratio", .min = 0.0001, .max = 1, .decimals = 4};
	const struct gp_codec_key format = {.name = "format", .max = 1, .words = "e5m2|e4m3"};
	const char *const bad[] = {"",   ".",    ".5",  "0.",   "0.00001", "1.1", "0",
				   "-1", "1e-1", "0x1", "0..1", "0.1.",    "0.1 "};
	double v;
	assert_number(&ratio, "0.1", 0.1, "0.1");
	assert_number(&ratio, "0.1000", 0.1, "0.1");
	assert_number(&ratio, "00.25", 0.25, "0.25");
	assert_number(&ratio, "1", 1, "1");
	assert_number(&ratio, "0.0001", 0.0001, "0.0001");
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(parse_key(&ratio, bad[i], &v));
	assert_number(&format, "e4m3", 1, "e4m3");
	assert_number(&format, "e5m2", 0, "e5m2");
	assert_false(parse_key(&format, "e4m", &v));
	assert_refused("fp8:format=e6m1", "codec stage 1 (fp8): format: 'e6m1' is not one of e5m2|e4m3");
	assert_refused("topk:ratio=0.00001",
		       "codec stage 1 (topk): ratio: '0.00001' is not a number with up to 4 decimals (0.0001..1)");
}

static void a_chain_is_lossless_when_every_stage_is(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	struct gp_err err = {0};
	static const struct {
		const char *text;
		bool lossless;
	} cases[] = {{"raw", true}, {"raw+zstd", true}, {"zstd", true}, {"uniform", false}, {"fp16+zstd", false}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(gp_codec_spec_parse(cases[i].text, &spec, &err), GP_OK);
		assert_int_equal(gp_codec_spec_lossless(&spec), cases[i].lossless);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(canonical_text_writes_every_key_and_parses_to_itself),
		cmocka_unit_test(parsed_values_are_in_key_order),
		cmocka_unit_test(errors_name_stage_key_and_allowed_range),
		cmocka_unit_test(errors_name_the_nearest_known_word),
		cmocka_unit_test(only_near_names_are_offered),
		cmocka_unit_test(malformed_texts_are_refused),
		cmocka_unit_test(senseless_chains_are_refused_with_the_reason),
		cmocka_unit_test(a_missing_quantizer_is_raw),
		cmocka_unit_test(long_texts_are_refused_without_being_read),
		cmocka_unit_test(every_row_of_the_table_is_a_codec),
		cmocka_unit_test(wire_ids_are_those_of_the_page),
		cmocka_unit_test(every_codec_has_examples_of_itself),
		cmocka_unit_test(keys_are_described_for_people),
		cmocka_unit_test(fractions_and_words_print_as_what_parses_to_them),
		cmocka_unit_test(a_chain_is_lossless_when_every_stage_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
