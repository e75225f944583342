/* SPDX-License-Identifier: Apache-2.0
 *
 * A codec's pass that is stopped midway (gp_codec_pass.stop): what takes long looks
 * often, ends after the look at which it was told, with GP_CANCELED, and what the
 * codec remembers can be taken back to where the step began. Looks are counted
 * (linked with --wrap), so that nothing here depends on how fast the machine is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "common/base/rng.h"
#include "common/codec/codec_impl.h"
#include "tests/sanitized.h"

bool __wrap_gp_codec_stopped(const struct gp_codec_pass *pass);

static int looks, stop_at; /* stop_at: true from that look on; 0: never */

bool __wrap_gp_codec_stopped(const struct gp_codec_pass *pass)
{
	(void)pass;
	looks++;
	return stop_at > 0 && looks >= stop_at;
}

#define SAMPLES  2
#define ROWS     300
#define COLS     200
#define ELEMENTS (SAMPLES * ROWS * COLS)
#define AFTER    8 /* looks, at most, of a pass that has been told */

struct rig {
	struct gp_codec *encoder, *decoder;
	float *x, *y;
	uint8_t *payload;
	size_t cap, len;
};

static struct gp_codec *open_as(const char *spec, enum gp_codec_role role)
{
	const struct gp_shape shape = {.ndim = 3, .dim = {SAMPLES, ROWS, COLS}};
	const struct gp_codec_options o = {.seed = 7, .role = role, .undo = true};
	struct gp_codec_spec s;
	struct gp_codec *c;
	struct gp_err err;
	if (gp_codec_spec_parse(spec, &s, &err) != GP_OK || gp_codec_open(&s, &shape, &o, &c, &err) != GP_OK)
		fail_msg("%s: %s", spec, err.text);
	return c;
}

static void rig_open(struct rig *r, const char *spec)
{
	*r = (struct rig){.encoder = open_as(spec, GP_CODEC_ENCODES), .decoder = open_as(spec, GP_CODEC_DECODES)};
	r->cap = gp_codec_bound(r->encoder);
	r->x = gp_calloc(ELEMENTS, sizeof *r->x);
	r->y = gp_calloc(ELEMENTS, sizeof *r->y);
	r->payload = gp_calloc(r->cap, 1);
	for (int i = 0; i < ELEMENTS; i++) /* few values, so that it compresses, and channels of their own scale */
		r->x[i] = ldexpf((float)(int)(8 * gp_rng_uniform(3, 1, (uint64_t)i)) - 3.5f, -(i % COLS % 6));
}

static void rig_close(struct rig *r)
{
	gp_codec_free(r->encoder);
	gp_codec_free(r->decoder);
	gp_free(r->x);
	gp_free(r->y);
	gp_free(r->payload);
}

static const uint32_t numbers[64] = {5, 7, 9, 2, 1, 3};

static enum gp_status encode(struct rig *r, uint64_t step, int stop)
{
	struct gp_err err;
	looks = 0;
	stop_at = stop;
	return gp_codec_encode_pass(r->encoder, &(struct gp_codec_pass){.draw = step, .step = step, .sample = numbers},
				    r->x, r->payload, r->cap, &r->len, &err);
}

static enum gp_status decode(struct rig *r, uint64_t step, int stop)
{
	struct gp_err err;
	looks = 0;
	stop_at = stop;
	return gp_codec_decode_pass(r->decoder, &(struct gp_codec_pass){.draw = step, .step = step, .sample = numbers},
				    (struct gp_span){r->payload, r->len}, r->y, &err);
}

/* Every look but those between, of which there may be many. */
static int next_stop(int stop, int all)
{
	return stop < 10 || stop + 10 > all ? stop + 1 : stop + 1 + all / (IS_SANITIZED ? 5 : 40);
}

static void stop_encoder(struct rig *r, int all)
{
	for (int stop = 1; stop <= all; stop = next_stop(stop, all)) {
		const uint64_t before = gp_codec_state_hash(r->encoder);
		assert_int_equal(encode(r, 1, stop), GP_CANCELED);
		assert_in_range(looks, stop, stop + AFTER);
		gp_codec_undo(r->encoder, 1);
		assert_true(gp_codec_state_hash(r->encoder) == before);
	}
}

static void stop_decoder(struct rig *r, int all)
{
	for (int stop = 1; stop <= all; stop = next_stop(stop, all)) {
		const uint64_t before = gp_codec_state_hash(r->decoder);
		assert_int_equal(decode(r, 1, stop), GP_CANCELED);
		assert_in_range(looks, stop, stop + AFTER);
		gp_codec_undo(r->decoder, 1);
		assert_true(gp_codec_state_hash(r->decoder) == before);
	}
}

/* A step, so that there is something to remember; and one that is stopped at every look, and then done. */
static void try_chain(const char *spec, int encode_looks, int decode_looks)
{
	struct rig r;
	print_message("%s\n", spec);
	rig_open(&r, spec);
	assert_int_equal(encode(&r, 0, 0), GP_OK);
	assert_int_equal(decode(&r, 0, 0), GP_OK);
	assert_int_equal(encode(&r, 1, 0), GP_OK);
	const int encoding = looks;
	gp_codec_undo(r.encoder, 1);
	print_message("  %d looks to encode\n", encoding);
	assert_true(encoding >= encode_looks);
	stop_encoder(&r, encoding);
	assert_int_equal(encode(&r, 1, 0), GP_OK);
	assert_int_equal(looks, encoding);
	assert_int_equal(decode(&r, 1, 0), GP_OK);
	const int decoding = looks;
	gp_codec_undo(r.decoder, 1);
	print_message("  %d looks to decode\n", decoding);
	assert_true(decoding >= decode_looks);
	stop_decoder(&r, decoding);
	assert_int_equal(decode(&r, 1, 0), GP_OK);
	assert_true(gp_codec_state_shared_hash(r.encoder) == gp_codec_state_shared_hash(r.decoder));
	rig_close(&r);
}

/* For each sample two blocks and a bit of rows, twice; steps, and in each every direction. */
static void poweriter_looks_between_rows_and_steps(void **state)
{
	(void)state;
	try_chain("poweriter:rank=8,iters=3", SAMPLES * (2 * 3 + 3 * 9), SAMPLES * 3);
	try_chain("ef+poweriter:rank=2,iters=2+uniform:bits=8", SAMPLES * (2 * 3 + 2 * 3), SAMPLES * 3);
}

static void zstd_looks_between_blocks(void **state)
{
	(void)state;
	try_chain("zstd:level=9", ELEMENTS * 4 / (128 << 10), 0);
	try_chain("ef+fp16+zstd:level=3", ELEMENTS * 2 / (128 << 10), 0);
}

static void rans_looks_between_pieces(void **state)
{
	(void)state;
	try_chain("uniform:bits=8+rans", 2, 2);
	try_chain("ef+block:bits=4+rans", 2, 2);
	/* 75 rows of 8 pixels: looked at, put to planes, and packed; unpacked, and put back */
	try_chain("uniform:bits=4+rans:tables=channel", 3 * 75, 2 * 75);
}

static void quantizers_look_between_their_blocks(void **state)
{
	(void)state;
	try_chain("qsgd:bits=4,bucket=512", 20, 20);
	try_chain("ef+terngrad:bucket=1024", 20, 20);
	try_chain("alq:bits=3", 20, 20);
	try_chain("amq:bits=3", 20, 20);
	try_chain("kmeans:bits=3", 20, 20);
	try_chain("ef+kmeans:bits=3", 20, 20);
	try_chain("delta:samples=100+qsgd:bits=4,bucket=512", 20, 20);
	try_chain("delta:samples=100+alq:bits=3", 20, 20);
	try_chain("smaq:main=6,outlier=8", 20, 20);
	try_chain("hadamard:size=64+fp16", 2, 1);
	try_chain("hadamard+block:bits=4", 20, 20);
	try_chain("ef+hadamard+block:bits=4", 20, 20);
	try_chain("topk:ratio=0.5+smaq:main=6,outlier=8", 10, 10);
}

/* Blocks that are compressed one after the other are those of one call. */
static void zstd_in_parts_gives_what_it_gives_at_once(void **state)
{
	(void)state;
	struct rig r;
	rig_open(&r, "zstd:level=9");
	assert_int_equal(encode(&r, 0, 0), GP_OK);
	assert_true(r.len < r.cap / 4);
	assert_int_equal(decode(&r, 0, 0), GP_OK);
	assert_memory_equal(r.x, r.y, ELEMENTS * sizeof *r.x);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poweriter_looks_between_rows_and_steps),
		cmocka_unit_test(zstd_looks_between_blocks),
		cmocka_unit_test(rans_looks_between_pieces),
		cmocka_unit_test(quantizers_look_between_their_blocks),
		cmocka_unit_test(zstd_in_parts_gives_what_it_gives_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
