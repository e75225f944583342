/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient codec list` shows the codecs; `gpclient codec roundtrip` sends one
 * tensor of a safetensors file through a codec and tells size, error and
 * speed. No link is involved. Test: tests/unit/test_cmd_codec.c
 */
#include "client/commands.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "common/account.h"
#include "common/codec.h"
#include "common/options.h"
#include "common/safetensors.h"

#define PROGRAM "gpclient codec"

/* Repeated until both have passed; the fastest repetition counts. */
#define MEASURE_NS      60000000u
#define MEASURE_REPEATS 3

struct settings {
	const char *codec, *in, *tensor, *out;
	bool json;
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
	 .help = "tensor of the file; its shape is taken as it is"},
	{.name = "out",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(out),
	 .value = "FILE",
	 .help = "write the decoded tensor there, under the same name"},
	{.name = "json", .type = GP_OPT_FLAG, .offset = FIELD(json), .help = "print one JSON object"},
};

static const struct gp_opt_table roundtrip_table = {
	.command = PROGRAM " roundtrip",
	.synopsis = "--codec SPEC --in FILE --tensor NAME [--out FILE] [--json]",
	.about = "Encodes and decodes one tensor and prints the payload's size, the error and the speed on this\n"
		 "machine (one thread).",
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
		json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:b}", "name", info->name, "kind",
						      gp_codec_kind_name(i), "keys",
						      gp_codec_keys_text(i, keys, sizeof keys), "summary",
						      info->summary, "lossless", info->lossless));
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
	printf("\nUse as NAME:key=value,...; defaults are in parentheses. Stages chain with +, in this order: a wrapper,\n"
	       "transforms, one quantizer (raw if none is written), byte stages.\n");
	return GP_OK;
}

/* --- roundtrip -------------------------------------------------------------------------------------------------- */

/* Everything one round trip needs, and what it found. */
struct trip {
	struct gp_codec_spec spec;
	struct gp_codec *codec;
	struct gp_st_file *file;
	const struct gp_st_tensor *tensor;
	float *x, *y;
	uint8_t *payload;
	size_t payload_bytes;
	uint64_t encode_ns, decode_ns;
	double rel_err, max_err;
	bool fell_back;
};

static void trip_deinit(struct trip *t)
{
	gp_codec_free(t->codec);
	gp_st_close(t->file);
	gp_free_aligned(t->x);
	gp_free_aligned(t->y);
	gp_free_aligned(t->payload);
}

/* "act, grad, hidden" as far as it fits. */
static const char *names_of(const struct gp_st_file *f, char *text, size_t size)
{
	size_t used = 0;
	text[0] = '\0';
	for (int i = 0; i < gp_st_count(f) && used + 8 < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", gp_st_at(f, i)->name);
	if (used >= size)
		memcpy(text + size - 4, "...", 4);
	return text;
}

static enum gp_status open_tensor(struct trip *t, const struct settings *s, struct gp_err *err)
{
	char names[160];
	GP_TRY(gp_st_open(s->in, &t->file, err));
	t->tensor = gp_st_find(t->file, s->tensor);
	if (!t->tensor)
		GP_FAIL(err, GP_INVALID, "%s: no tensor '%.60s'; it has %s", s->in, s->tensor,
			names_of(t->file, names, sizeof names));
	if (gp_codec_new(&t->spec, &t->tensor->shape, 0, &t->codec, err) != GP_OK)
		return gp_err_prefix(err, "%s: tensor '%.60s'", s->in, s->tensor);
	t->x = gp_alloc_aligned(t->tensor->count * sizeof *t->x);
	t->y = gp_alloc_aligned(t->tensor->count * sizeof *t->y);
	t->payload = gp_alloc_aligned(gp_codec_bound(t->codec));
	if (!t->x || !t->y || !t->payload)
		GP_FAIL(err, GP_NOMEM, "no memory for a tensor of %llu elements", (unsigned long long)t->tensor->count);
	if (gp_st_read_f32(t->tensor, t->x, err) != GP_OK)
		return gp_err_prefix(err, "%s: tensor '%.60s'", s->in, s->tensor);
	return GP_OK;
}

static void keep_fastest(uint64_t *best, uint64_t ns)
{
	ns = ns ? ns : 1;
	*best = *best == 0 || ns < *best ? ns : *best;
}

/* Always the same draw: each repetition gives the same bytes. */
static enum gp_status measure(struct trip *t, struct gp_err *err)
{
	const uint64_t begin = gp_now_ns();
	for (int i = 0; i < MEASURE_REPEATS || gp_now_ns() - begin < MEASURE_NS; i++) {
		uint64_t before = gp_now_ns();
		GP_TRY(gp_codec_encode(t->codec, t->x, 0, t->payload, gp_codec_bound(t->codec), &t->payload_bytes,
				       err));
		uint64_t between = gp_now_ns();
		GP_TRY(gp_codec_decode(t->codec, (struct gp_span){t->payload, t->payload_bytes}, t->y, err));
		keep_fastest(&t->encode_ns, between - before);
		keep_fastest(&t->decode_ns, gp_now_ns() - between);
	}
	struct gp_codec_stats stats;
	gp_codec_get_stats(t->codec, &stats);
	t->fell_back = stats.raw_fallbacks > 0;
	return GP_OK;
}

/* Over the elements that are finite: the others travel bit for bit. */
static void compare(struct trip *t)
{
	double error = 0, norm = 0;
	for (uint64_t i = 0; i < t->tensor->count; i++) {
		double x = t->x[i], d = fabs(x - (double)t->y[i]);
		if (!isfinite(x))
			continue;
		error += d * d;
		norm += x * x;
		t->max_err = fmax(t->max_err, d);
	}
	t->rel_err = error > 0 ? sqrt(error / fmax(norm, 1e-300)) : 0;
}

static enum gp_status write_decoded(const struct trip *t, const struct settings *s, struct gp_err *err)
{
	const struct gp_st_item item = {.name = t->tensor->name, .shape = t->tensor->shape, .data = t->y};
	const struct gp_st_pair meta = {"codec", t->spec.text};
	return gp_st_write(s->out, &item, 1, &meta, 1, err);
}

static enum gp_status report(const struct trip *t, bool json, struct gp_err *err)
{
	const uint64_t n = t->tensor->count;
	const double ratio = 4.0 * (double)n / (double)t->payload_bytes;
	const double encode = (double)n / (double)t->encode_ns, decode = (double)n / (double)t->decode_ns;
	char shape[80];
	if (json)
		return print_json(json_pack("{s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:b}", "codec", t->spec.text, "elements",
					    (json_int_t)n, "payload_bytes", (json_int_t)t->payload_bytes, "ratio",
					    ratio, "rel_err", t->rel_err, "max_err", t->max_err, "encode_gelem_s",
					    encode, "decode_gelem_s", decode, "raw_fallback", t->fell_back),
				  err);
	printf("%s on %s (%s)\n", t->spec.text, t->tensor->name, gp_shape_text(&t->tensor->shape, shape, sizeof shape));
	printf("  payload  %zu of %llu bytes, ratio %.3f%s\n", t->payload_bytes, (unsigned long long)(4 * n), ratio,
	       t->fell_back ? " (sent as raw: not representable)" : "");
	printf("  error    relative L2 %.3g, largest %.3g\n", t->rel_err, t->max_err);
	printf("  speed    encode %.3f, decode %.3f G elements/s\n", encode, decode);
	return GP_OK;
}

static enum gp_status check_settings(const struct settings *s, struct trip *t, struct gp_err *err)
{
	if (!s->codec || !s->in || !s->tensor)
		GP_FAIL(err, GP_USAGE, "roundtrip needs --%s; see `" PROGRAM " roundtrip --help`",
			!s->codec ? "codec"
			: !s->in  ? "in"
				  : "tensor");
	if (gp_codec_spec_parse(s->codec, &t->spec, err) != GP_OK)
		return gp_err_prefix(err, "--codec");
	return GP_OK;
}

static enum gp_status make_trip(struct trip *t, const struct settings *s, struct gp_err *err)
{
	GP_TRY(check_settings(s, t, err));
	GP_TRY(open_tensor(t, s, err));
	GP_TRY(measure(t, err));
	compare(t);
	if (s->out)
		GP_TRY(write_decoded(t, s, err));
	return report(t, s->json, err);
}

static enum gp_status roundtrip(int argc, char **argv, struct gp_options_result *r, struct gp_err *err)
{
	struct settings s = {0};
	struct trip t = {0};
	GP_TRY(gp_options_parse(&roundtrip_table, argc, argv, &s, r, err));
	if (r->help)
		return GP_OK;
	enum gp_status status = make_trip(&t, &s, err);
	trip_deinit(&t);
	return status;
}

/* --- dispatch --------------------------------------------------------------------------------------------------- */

static void print_usage(FILE *to)
{
	fprintf(to, "usage: " PROGRAM " list [--json]\n"
		    "       " PROGRAM " roundtrip --codec SPEC --in FILE --tensor NAME [--out FILE] [--json]\n");
}

int gp_cmd_codec(int argc, char **argv)
{
	static const char *const names[] = {"list", "roundtrip"};
	struct gp_err err = {0};
	struct gp_options_result r = {0};
	enum gp_status status;
	if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
		print_usage(stdout);
		return 0;
	}
	if (argc > 0 && strcmp(argv[0], "list") == 0) {
		status = list_codecs(argc - 1, argv + 1, &r, &err);
	} else if (argc > 0 && strcmp(argv[0], "roundtrip") == 0) {
		status = roundtrip(argc - 1, argv + 1, &r, &err);
	} else if (argc > 0) {
		return gp_cmd_unknown(PROGRAM, argv[0], names, sizeof names / sizeof names[0]);
	} else {
		print_usage(stderr);
		return gp_status_exit(GP_USAGE);
	}
	gp_options_free(&r);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	return gp_status_exit(status);
}
