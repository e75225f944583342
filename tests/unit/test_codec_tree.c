/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of tensor stages (common/codec/codec_tree.h), driven with a transform made
 * up for it: odd and even elements apart, two tensors, one side byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "common/codec/codec_tree.h"

enum { N = 9, EVEN = 5, ODD = 4 };

struct calls {
	int learned, passed;
	float seen_even[EVEN];
};

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	(void)state;
	(void)pass;
	for (int i = 0; i < N; i++) {
		if (!isfinite(x[i]))
			return false;
		tensor[i % 2][i / 2] = x[i];
	}
	side[0] = 0x5a;
	*side_len = 1;
	return true;
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	(void)state;
	(void)pass;
	if (side.len != 1 || side.data[0] != 0x5a)
		GP_FAIL(err, GP_PROTO, "side byte");
	for (int i = 0; i < N; i++)
		x[i] = tensor[i % 2][i / 2];
	return GP_OK;
}

static void learn(void *state, const struct gp_codec_pass *pass, const float *const *tensor)
{
	(void)pass;
	struct calls *calls = state;
	calls->learned++;
	memcpy(calls->seen_even, tensor[0], sizeof calls->seen_even);
}

static void passed(void *state, const struct gp_codec_pass *pass)
{
	(void)pass;
	((struct calls *)state)->passed++;
}

static const struct gp_codec_ops splitter = {
	.kind = GP_CODEC_TRANSFORM,
	.info = {.name = "splitter", .summary = ""},
	.split = split,
	.join = join,
	.learn = learn,
	.passed = passed,
};

/* splitter over uniform:bits=8, by hand: the splitter is in no registry. */
struct rig {
	struct gp_codec_tree tree;
	struct calls calls;
	float even[EVEN], odd[ODD];
};

static void rig_init(struct rig *r)
{
	static const double bits[1] = {8};
	struct gp_err err = {0};
	*r = (struct rig){0};
	struct gp_codec_node *node = r->tree.node;
	const uint64_t n[3] = {N, EVEN, ODD};
	for (int i = 0; i < 3; i++) {
		const struct gp_codec_setup setup = {.n = n[i], .chunks = 1, .encodes = true, .decodes = true};
		node[i].ops = i ? gp_codec_ops_by_name("uniform") : &splitter;
		node[i].value = bits;
		node[i].n = n[i];
		node[i].bound = 4 + (i ? 4 * n[i] + 8 : 200);
		if (i)
			assert_int_equal(node[i].ops->open(bits, &setup, &node[i].state, &err), GP_OK);
	}
	node[0].state = &r->calls;
	node[0].side_bound = 1;
	node[0].parts = 2;
	node[0].part[0] = &node[1];
	node[0].part[1] = &node[2];
	node[0].tensor[0] = r->even;
	node[0].tensor[1] = r->odd;
	r->tree.nodes = 3;
}

static void rig_deinit(struct rig *r)
{
	for (int i = 1; i < 3; i++)
		r->tree.node[i].ops->close(r->tree.node[i].state);
}

static size_t encode(struct rig *r, const struct gp_codec_pass *p, const float *x, uint8_t *out)
{
	struct gp_err err = {0};
	size_t len;
	assert_int_equal(gp_codec_tree_encode(&r->tree, p, x, out, &len, &err), GP_OK);
	return len;
}

static const float ramp[N] = {0, 100, 1, 101, 2, 102, 3, 103, 255};
static const struct gp_codec_pass pass;

/* Payload of a transform: CODECS.md. */
static void parts_follow_each_other_behind_their_lengths(void **state)
{
	(void)state;
	struct rig r;
	uint8_t out[256];
	float y[N];
	struct gp_err err = {0};
	rig_init(&r);
	const size_t len = encode(&r, &pass, ramp, out);
	static const uint8_t head[] = {0, 0, 0, 0, 1, 0, 0, 0, 0x5a, 17, 0, 0, 0, 0, 0, 0, 0};
	assert_int_equal(len, 4 + 4 + 1 + 4 + (4 + 8 + EVEN) + (4 + 8 + ODD));
	assert_memory_equal(out, head, sizeof head);
	assert_int_equal(gp_codec_tree_decode(&r.tree, &pass, (struct gp_span){out, len}, y, &err), GP_OK);
	for (int i = 0; i < N; i++)
		assert_true(fabsf(y[i] - ramp[i]) < 1e-4f);
	rig_deinit(&r);
}

static void a_learning_stage_sees_what_the_other_end_decodes(void **state)
{
	(void)state;
	struct rig r;
	uint8_t out[256];
	float y[N];
	struct gp_err err = {0};
	rig_init(&r);
	const size_t len = encode(&r, &pass, ramp, out);
	assert_int_equal(r.calls.learned, 1);
	assert_int_equal(gp_codec_tree_decode(&r.tree, &pass, (struct gp_span){out, len}, y, &err), GP_OK);
	assert_int_equal(r.calls.learned, 1);
	for (int i = 0; i < EVEN; i++)
		assert_true(r.calls.seen_even[i] == y[2 * i]);
	encode(&r, &(struct gp_codec_pass){.eval = true}, ramp, out);
	assert_int_equal(r.calls.learned, 1);
	rig_deinit(&r);
}

static void a_tensor_that_is_not_finite_travels_raw_and_every_stage_hears_of_it(void **state)
{
	(void)state;
	struct rig r;
	uint8_t out[256];
	float x[N], y[N];
	struct gp_err err = {0};
	rig_init(&r);
	memcpy(x, ramp, sizeof x);
	x[3] = NAN;
	const size_t len = encode(&r, &pass, x, out);
	assert_int_equal(len, 4 + 4 * N);
	assert_true(r.tree.fell_back);
	assert_int_equal(r.calls.passed, 1);
	assert_int_equal(r.calls.learned, 0);
	assert_int_equal(gp_codec_tree_decode(&r.tree, &pass, (struct gp_span){out, len}, y, &err), GP_OK);
	assert_memory_equal(x, y, sizeof x);
	assert_int_equal(r.calls.passed, 2);
	rig_deinit(&r);
}

/* Each in a block of its own size, so that a sanitizer sees a read past the end. */
static void cut_and_changed_payloads_are_refused_or_decoded(void **state)
{
	(void)state;
	struct rig r;
	uint8_t out[256];
	float y[N];
	struct gp_err err = {0};
	rig_init(&r);
	const size_t len = encode(&r, &pass, ramp, out);
	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *copy = malloc(cut ? cut : 1);
		memcpy(copy, out, cut);
		assert_int_equal(gp_codec_tree_decode(&r.tree, &pass, (struct gp_span){copy, cut}, y, &err), GP_PROTO);
		free(copy);
	}
	for (size_t at = 0; at < len; at++)
		for (int value = 0; value < 256; value++) {
			uint8_t *copy = malloc(len);
			memcpy(copy, out, len);
			copy[at] = (uint8_t)value;
			enum gp_status status =
				gp_codec_tree_decode(&r.tree, &pass, (struct gp_span){copy, len}, y, &err);
			assert_true(status == GP_OK || status == GP_PROTO);
			free(copy);
		}
	rig_deinit(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_follow_each_other_behind_their_lengths),
		cmocka_unit_test(a_learning_stage_sees_what_the_other_end_decodes),
		cmocka_unit_test(a_tensor_that_is_not_finite_travels_raw_and_every_stage_hears_of_it),
		cmocka_unit_test(cut_and_changed_payloads_are_refused_or_decoded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
