/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient codec list` shows the codecs; `gpclient codec roundtrip` sends one
 * tensor of a safetensors file through a codec and tells size, error and
 * speed. `gpclient codec compare` is in cmd_codec_compare.c. No link is
 * involved. Test: tests/unit/test_cmd_codec.c
 */
#include "client/commands/cmd_codec.h"
#include "client/commands/commands.h"

#include <jansson.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

#include "common/options/options.h"

#define PROGRAM "gpclient codec"

struct settings {
	const char *codec, *in, *tensor, *out;
	bool json, channels_last;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt roundtrip_options[] = {
	{.name = "codec",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(codec),
	 .value = "SPEC",
	 .help = "such as uniform:bits=8"},
	{.name = "in", .type = GP_OPT_TEXT, .offset = FIELD(in), .value = "FILE", .help = "safetensors file to read"},
	{.name = "tensor",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(tensor),
	 .value = "NAME",
	 .help = "tensor of the file; of 4 dimensions: (N,C,H,W), coded as (N,H,W,C)"},
	{.name = "out",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(out),
	 .value = "FILE",
	 .help = "write the decoded tensor there, under the same name"},
	{.name = "channels-last",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(channels_last),
	 .help = "a tensor of 4 dimensions is (N,H,W,C) in the file, not (N,C,H,W)"},
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print one JSON object"},
};

static const struct gp_opt_table roundtrip_table = {
	.command = PROGRAM " roundtrip",
	.synopsis = "--codec SPEC --in FILE --tensor NAME [--out FILE] [--channels-last] [--json]",
	.about = "Encodes and decodes one tensor and prints the payload's size, the error and the speed on this\n"
		 "machine (one thread). A zstd, rans or bitshuffle that does not pay is said to be skipped. The\n"
		 "tensor is taken as it lies in FILE, with the padding of texts, which 'compare' leaves out.",
	.examples = "  gpclient codec roundtrip --codec sortquant:bits=6,split=2 --in acts.safetensors --tensor act\n",
	.opt = roundtrip_options,
	.count = sizeof roundtrip_options / sizeof roundtrip_options[0],
};

static const struct gp_opt list_options[] = {
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print JSON"},
};

static const struct gp_opt_table list_table = {
	.command = PROGRAM " list",
	.synopsis = "[--json]",
	.about = "Lists the codecs with their keys, allowed values and defaults.",
	.opt = list_options,
	.count = sizeof list_options / sizeof list_options[0],
};

/* --- list ------------------------------------------------------------------------------------------------------- */

static enum gp_status print_json(json_t *value, struct gp_err *err)
{
	bool good = value && json_dumpf(value, stdout, JSON_REAL_PRECISION(9)) == 0 && putchar('\n') != EOF &&
		    fflush(stdout) == 0;
	json_decref(value);
	if (!good)
		GP_FAIL(err, GP_IO, "cannot write to standard output");
	return GP_OK;
}

static enum gp_status list_as_json(struct gp_err *err)
{
	json_t *list = json_array();
	const struct gp_codec_info *info;
	char keys[256];
	for (int i = 0; (info = gp_codec_info(i)); i++)
		json_array_append_new(list,
				      json_pack("{s:s,s:s,s:s,s:s,s:b}", "name", info->name, "kind",
						gp_codec_kind_name(i), "keys", gp_codec_keys_text(i, keys, sizeof keys),
						"summary", info->summary, "lossless", info->lossless));
	return print_json(list, err);
}

static void print_keys(int index)
{
	const struct gp_codec_key *key;
	char keys[256];
	if (gp_codec_key_info(index, 0))
		printf("%-12s   keys: %s\n", "", gp_codec_keys_text(index, keys, sizeof keys));
	for (int k = 0; (key = gp_codec_key_info(index, k)); k++)
		if (key->help)
			printf("%-12s   %-9s %s\n", "", key->name, key->help);
}

static enum gp_status list_codecs(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct settings s = {0};
	const struct gp_codec_info *info;
	GP_TRY(gp_options_parse(&list_table, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	if (s.json)
		return list_as_json(err);
	for (int i = 0; (info = gp_codec_info(i)); i++) {
		printf("%-12s %s: %s%s\n", info->name, gp_codec_kind_name(i), info->summary,
		       info->lossless ? " (lossless)" : "");
		print_keys(i);
	}
	printf("\nUse as NAME:key=value,...; defaults are in parentheses. Stages chain with +, in this order: a "
	       "wrapper,\n"
	       "transforms, one quantizer (raw if none is written), byte stages.\n");
	return GP_OK;
}

/* --- roundtrip -------------------------------------------------------------------------------------------------- */

static enum gp_status write_decoded(struct gp_trip_tensor *t, const struct gp_codec_spec *spec, const char *path,
				    struct gp_err *err)
{
	const struct gp_st_item item = {.name = t->tensor->name, .shape = t->tensor->shape, .data = gp_trip_decoded(t)};
	const struct gp_st_pair meta = {"codec", spec->text};
	return gp_st_write(path, &item, 1, &meta, 1, err);
}

static double ratio_of(const struct gp_trip *t)
{
	return t->payload_bytes ? 4.0 * (double)t->elements / (double)t->payload_bytes : 1;
}

/* Names of the byte stages that did not pay and were skipped. */
static json_t *skipped_as_json(const struct gp_codec_spec *spec, const struct gp_trip *t)
{
	json_t *names = json_array();
	const char *name;
	for (int i = 0; (name = gp_codec_byte_stage(spec, i)); i++)
		if (t->skipped[i])
			json_array_append_new(names, json_string(name));
	return names;
}

const char *gp_codec_skipped_text(const struct gp_codec_spec *spec, const struct gp_trip *t, char *text, size_t size)
{
	size_t used = 0;
	const char *name;
	text[0] = '\0';
	for (int i = 0; (name = gp_codec_byte_stage(spec, i)) && used < size; i++)
		if (t->skipped[i])
			used += (size_t)snprintf(text + used, size - used, " (%s skipped)", name);
	return text;
}

json_t *gp_codec_trip_json(const struct gp_codec_spec *spec, const struct gp_trip *t)
{
	const double rate = gp_trip_break_even(t);
	json_t *o = json_pack("{s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:b}", "codec", spec->text, "elements",
			      (json_int_t)t->elements, "payload_bytes", (json_int_t)t->payload_bytes,
			      "bits_per_element", gp_trip_bits(t), "ratio", ratio_of(t), "rel_err", t->rel_err,
			      "max_err", t->max_err, "cosine", t->cosine, "encode_gelem_s", gp_trip_encode_rate(t),
			      "decode_gelem_s", gp_trip_decode_rate(t), "raw_fallback", t->fell_back);
	json_object_set_new(o, "skipped", skipped_as_json(spec, t));
	json_object_set_new(o, "break_even_bps", rate > 0 ? json_real(rate) : json_null());
	return o;
}

const char *gp_codec_rate_text(double bps, char *text, size_t size)
{
	static const char *const units[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s"};
	int unit = 0;
	for (; unit < 3 && bps >= 1000; unit++)
		bps /= 1000;
	snprintf(text, size, "%.3g %s", bps, units[unit]);
	return text;
}

static enum gp_status report(const struct gp_trip_tensor *tensor, const struct gp_codec_spec *spec,
			     const struct gp_trip *t, bool json, struct gp_err *err)
{
	const double rate = gp_trip_break_even(t);
	char shape[80], text[32], skipped[80];
	if (json)
		return print_json(gp_codec_trip_json(spec, t), err);
	printf("%s on %s (%s)\n", spec->text, tensor->tensor->name,
	       gp_shape_text(&tensor->tensor->shape, shape, sizeof shape));
	printf("  payload  %llu of %llu bytes, ratio %.3f%s%s\n", (unsigned long long)t->payload_bytes,
	       (unsigned long long)(4 * t->elements), ratio_of(t),
	       t->fell_back ? " (sent as raw: not representable)" : "",
	       gp_codec_skipped_text(spec, t, skipped, sizeof skipped));
	printf("  error    relative L2 %.3g, largest %.3g, cosine %.6f\n", t->rel_err, t->max_err, t->cosine);
	printf("  speed    encode %.3f, decode %.3f G elements/s\n", gp_trip_encode_rate(t), gp_trip_decode_rate(t));
	printf("  pays     %s%s\n", rate > 0 ? "on links slower than " : "nowhere: the payload is no shorter",
	       rate > 0 ? gp_codec_rate_text(rate, text, sizeof text) : "");
	return GP_OK;
}

static enum gp_status check_given(const char *command, const struct settings *s, const char *codecs, const char *name,
				  struct gp_err *err)
{
	if (!codecs || !s->in || !s->tensor)
		GP_FAIL(err, GP_USAGE, "%s needs --%s; see `" PROGRAM " %s --help`", command,
			!codecs  ? name
			: !s->in ? "in"
				 : "tensor",
			command);
	return GP_OK;
}

static enum gp_status run_codec(struct gp_trip_tensor *tensor, const struct settings *s,
				const struct gp_codec_spec *spec, struct gp_trip *t, struct gp_err *err)
{
	if (gp_trip_run(tensor, spec, 0, GP_TRIP_MEASURE_NS, t, err) != GP_OK)
		return gp_err_prefix(err, "%s: tensor '%.60s'", s->in, s->tensor);
	return GP_OK;
}

/* The decoded tensor alone would take the place of all that the input has. */
static enum gp_status check_out(const struct settings *s, struct gp_err *err)
{
	struct stat in, out;
	if (!s->out)
		return GP_OK;
	if (stat(s->in, &in) == 0 && stat(s->out, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
		GP_FAIL(err, GP_INVALID, "--out %s is the file of --in: it would be lost", s->out);
	return gp_st_check_target(s->out, err) == GP_OK ? GP_OK : gp_err_prefix(err, "--out");
}

static enum gp_status make_trip(struct gp_trip_tensor *tensor, const struct settings *s, struct gp_err *err)
{
	struct gp_codec_spec spec;
	struct gp_trip trip;
	GP_TRY(check_given("roundtrip", s, s->codec, "codec", err));
	if (gp_codec_spec_parse(s->codec, &spec, err) != GP_OK)
		return gp_err_prefix(err, "--codec");
	GP_TRY(check_out(s, err));
	GP_TRY(gp_trip_open(s->in, s->tensor, s->channels_last, tensor, err));
	GP_TRY(run_codec(tensor, s, &spec, &trip, err));
	if (s->out)
		GP_TRY(write_decoded(tensor, &spec, s->out, err));
	return report(tensor, &spec, &trip, s->json, err);
}

static enum gp_status roundtrip(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct settings s = {0};
	struct gp_trip_tensor tensor = {0};
	GP_TRY(gp_options_parse(&roundtrip_table, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	enum gp_status status = make_trip(&tensor, &s, err);
	gp_trip_close(&tensor);
	return status;
}

/* --- dispatch --------------------------------------------------------------------------------------------------- */

int gp_cmd_codec(int argc, char **argv)
{
	static const char usage[] =
		"usage: " PROGRAM " list [--json]\n"
		"       " PROGRAM
		" roundtrip --codec SPEC --in FILE --tensor NAME [--out FILE] [--channels-last] [--json]\n"
		"       " PROGRAM
		" compare --in FILE [--tensor NAME,...] [--codecs A,B,...] [--bits B] [--link RATE,DELAY] [--json]\n";
	static const struct gp_subcommand list[] = {
		{"list", list_codecs}, {"roundtrip", roundtrip}, {"compare", gp_codec_compare}};
	return gp_cmd_dispatch(PROGRAM, usage, list, sizeof list / sizeof list[0], argc, argv);
}
