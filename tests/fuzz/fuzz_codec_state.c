/* SPDX-License-Identifier: Apache-2.0
 *
 * Property: any bytes are refused as the saved memory of a codec, which then
 * remembers what it did, or are loaded, and then saved as the same bytes; with
 * that memory the codec goes on coding (gp_codec_state_load).
 *
 * Input: one byte spec, one role; then the memory: with bit 2 of the role as it
 * is; else its checksum, length and what says whose it is are made right.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PREFIX = 24, SUFFIX = 8, ELEMENTS = 48 };

static const char *const specs[] = {
	"ef+uniform:bits=2",
	"poweriter:rank=2,iters=1+uniform:bits=8",
	"delta:samples=6+sortquant:bits=2,split=1",
	"topk:ratio=0.25",
	"alq:bits=2,bucket=16,update=2",
	"amq:bits=2,bucket=16,update=2",
	"smaq",
	"kmeans:bits=2",
	"ef+topk:ratio=0.1+uniform:bits=4",
	"raw",
};

static struct gp_codec *open_codec(const uint8_t *data)
{
	const struct gp_shape shape = {.ndim = 3, .dim = {3, 4, 4}};
	const struct gp_codec_options options = {
		.seed = 1, .role = data[1] % 3, .chunks = 2, .has_gradient = data[1] & 8};
	struct gp_codec_spec spec;
	struct gp_codec *c;
	struct gp_err err;
	gp_require(gp_codec_spec_parse(specs[data[0] % (sizeof specs / sizeof specs[0])], &spec, &err) == GP_OK);
	gp_require(gp_codec_open(&spec, &shape, &options, &c, &err) == GP_OK);
	return c;
}

/* The input as the memory of c, with what its checks compare made right. */
static void repair(const struct gp_codec *c, const uint8_t *data, size_t size, uint8_t *out, size_t len)
{
	gp_require(gp_codec_state_save(c, out, NULL) == GP_OK);
	const size_t room = len - PREFIX - SUFFIX;
	memcpy(out + PREFIX, data, size < room ? size : room);
	const uint64_t sum = XXH3_64bits(out, len - SUFFIX);
	for (int i = 0; i < SUFFIX; i++)
		out[len - SUFFIX + (size_t)i] = (uint8_t)(sum >> (8 * i));
}

/* With whatever was loaded. */
static void go_on(struct gp_codec *c, enum gp_codec_role role)
{
	static const uint32_t numbers[3] = {0, 5, 3};
	float x[ELEMENTS], y[ELEMENTS];
	struct gp_err err;
	uint8_t *payload = malloc(gp_codec_bound(c) + 1);
	size_t len = 0;
	for (int i = 0; i < ELEMENTS; i++)
		x[i] = (float)(i % 7) - 3.0f;
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		const struct gp_codec_pass pass = {.draw = chunk, .chunk = chunk, .sample = numbers};
		if (role != GP_CODEC_DECODES)
			gp_require(gp_codec_encode_pass(c, &pass, x, payload, gp_codec_bound(c), &len, &err) == GP_OK);
		if (role == GP_CODEC_DECODES) {
			memset(payload, 0, len = gp_codec_bound(c));
			(void)!gp_codec_decode_pass(c, &pass, (struct gp_span){payload, len}, y, &err);
		}
	}
	free(payload);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gp_err err = {0};
	if (size < 2)
		return 0;
	struct gp_codec *c = open_codec(data);
	const size_t bytes = gp_codec_state_bytes(c), given = size - 2;
	const bool as_it_is = data[1] & 4;
	const size_t len = as_it_is ? given : bytes;
	uint8_t *in = malloc(len + 1), *out = malloc(bytes);
	if (as_it_is)
		memcpy(in, data + 2, given);
	else
		repair(c, data + 2, given, in, len);
	const uint64_t hash = gp_codec_state_hash(c);
	enum gp_status status = gp_codec_state_load(c, (struct gp_span){in, len}, &err);
	if (status == GP_OK) {
		gp_require(gp_codec_state_save(c, out, NULL) == GP_OK);
		gp_require(len == bytes && memcmp(in, out, len) == 0);
		go_on(c, data[1] % 3);
	} else {
		gp_require(status == GP_INVALID && err.text[0] && gp_codec_state_hash(c) == hash);
	}
	free(in);
	free(out);
	gp_codec_free(c);
	return 0;
}
