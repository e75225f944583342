/* SPDX-License-Identifier: Apache-2.0
 *
 * Codec specs and the registry (common/codec_spec.c, codec_registry.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/codec_impl.h"

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
	assert_canonical("uniform:bits=016", "uniform:bits=16");
	assert_canonical("sortquant:split=3", "sortquant:bits=6,split=3,sample=0");
	assert_canonical("sortquant:sample=4096,bits=4", "sortquant:bits=4,split=2,sample=4096");
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
	assert_refused("uniform:bits=17", "stage 1 (uniform): bits=17 is not allowed; bits is a whole number in 1..16");
	assert_refused("uniform:bits=0", "1..16");
	assert_refused("uniform:bits=-1", "1..16");
	assert_refused("uniform:bits=4.5", "1..16");
	assert_refused("uniform:bits=", "1..16");
	assert_refused("uniform:bits=99999999999999999999", "1..16");
	assert_refused("sortquant:split=9", "0..8");
	assert_refused("sortquant:bits=12,split=5", "bits + split is in 2..16");
	assert_refused("sortquant:bits=1,split=0", "bits + split is in 2..16");
	assert_refused("uniform:bits=4,bits=5", "given twice");
}

static void errors_name_the_nearest_known_word(void **state)
{
	(void)state;
	assert_refused("sortqant", "did you mean \"sortquant\"");
	assert_refused("unifrom:bits=8", "did you mean \"uniform\"");
	assert_refused("sortquant:bit=6", "did you mean \"bits\"");
	assert_refused("zzz", "known: raw, fp16, bf16, uniform, sortquant");
	assert_refused("raw:level=1", "takes no keys");
	assert_refused("uniform:levels=7", "keys: bits=1..16 (8)");
}

static void malformed_texts_are_refused(void **state)
{
	(void)state;
	assert_refused("", "empty");
	assert_refused(":", "does not begin with a codec's name");
	assert_refused("+", "does not begin with a codec's name");
	assert_refused("raw+", "stage 2");
	assert_refused("uniform:", "not of the form key=value");
	assert_refused("uniform:bits", "not of the form key=value");
	assert_refused("uniform:bits=8,", "not of the form key=value");
	assert_refused("uniform:=8", "not of the form key=value");
	assert_refused("Raw", "character 1 (0x52)");
	assert_refused("raw\n", "character 4 (0x0a)");
	assert_refused("raw\xff", "character 4 (0xff)");
	assert_refused("averyveryveryverylongcodecname", "does not begin with a codec's name");
}

static void a_chain_has_one_quantizer(void **state)
{
	(void)state;
	assert_refused("uniform+raw", "stage 2 (raw) cannot follow uniform");
	assert_refused("raw+raw+raw+raw+raw+raw+raw", "more than 6 stages");
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
	assert_refused(text, "more than 6 stages");
}

static void wire_ids_are_pinned(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int id;
	} pinned[] = {{"raw", 1}, {"fp16", 2}, {"bf16", 3}, {"uniform", 4}, {"sortquant", 5}};
	const int count = sizeof pinned / sizeof pinned[0];
	for (int i = 0; i < count; i++) {
		assert_int_equal(gp_codec_ops_by_name(pinned[i].name)->id, pinned[i].id);
		assert_ptr_equal(gp_codec_ops_by_id((uint16_t)pinned[i].id), gp_codec_ops_by_name(pinned[i].name));
	}
	assert_non_null(gp_codec_info(count - 1));
	assert_null(gp_codec_info(count));
	assert_null(gp_codec_info(-1));
	assert_null(gp_codec_ops_by_id(0));
}

/* info.keys is prose for people; it must say what the parser enforces. */
static void described_keys_are_those_parsed(void **state)
{
	(void)state;
	for (int i = 0; gp_codec_ops_at(i); i++) {
		const struct gp_codec_ops *ops = gp_codec_ops_at(i);
		char text[256] = "";
		for (int k = 0; k < ops->keys; k++)
			snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=%.0f..%.0f (%.0f)",
				 k ? ", " : "", ops->key[k].name, ops->key[k].min, ops->key[k].max,
				 ops->key[k].initial);
		assert_string_equal(ops->info.keys, text);
	}
}

static void only_raw_is_lossless(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	struct gp_err err = {0};
	for (int i = 0; gp_codec_info(i); i++) {
		assert_int_equal(gp_codec_spec_parse(gp_codec_info(i)->name, &spec, &err), GP_OK);
		assert_int_equal(gp_codec_spec_lossless(&spec), strcmp(gp_codec_info(i)->name, "raw") == 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(canonical_text_writes_every_key_and_parses_to_itself),
		cmocka_unit_test(parsed_values_are_in_key_order),
		cmocka_unit_test(errors_name_stage_key_and_allowed_range),
		cmocka_unit_test(errors_name_the_nearest_known_word),
		cmocka_unit_test(malformed_texts_are_refused),
		cmocka_unit_test(a_chain_has_one_quantizer),
		cmocka_unit_test(long_texts_are_refused_without_being_read),
		cmocka_unit_test(wire_ids_are_pinned),
		cmocka_unit_test(described_keys_are_those_parsed),
		cmocka_unit_test(only_raw_is_lossless),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
