/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that a GPU keeps encoded (kernels/cuda/codec/k_codec_store.h) beside the
 * host's (common/codec/codec_store.h, moment_store.h): the same bytes, and the same
 * values of them, of arrays, of parameters in another order, and of state.
 */
#include "common/base/rng.h"
#include "common/codec/moment_store.h"
#include "kernels/cuda/codec/cuda_stored.h"
#include "tests/unit/test_cuda.h"

static const char *const specs[] = {"fp16",
				    "bf16",
				    "fp8:format=e4m3",
				    "fp8:format=e5m2",
				    "s2fp8",
				    "uniform:bits=1",
				    "uniform:bits=3",
				    "uniform:bits=8",
				    "uniform:bits=16",
				    "smaq:main=6,outlier=8",
				    "smaq:main=3,outlier=16",
				    "smaq:main=5,outlier=5",
				    "smaq:main=6,outlier=8,round=nearest,reach=8",
				    "smaq:main=5,outlier=9,reach=1000",
				    "sortquant:bits=6,split=2",
				    "sortquant:bits=8,split=0",
				    "sortquant:bits=2,split=8",
				    "sortquant:bits=5,partitions=5"};
enum { SPECS = sizeof specs / sizeof specs[0], GUARD = 32 };

static struct gp_codec_spec parse(const char *text)
{
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse(text, &spec, &err));
	return spec;
}

static struct gpk_store store_of(const struct gp_codec_spec *spec)
{
	struct gpk_store q;
	OK(gp_cuda_stored(spec, &q, &err));
	return q;
}

static struct gp_store_coder *coder_of(const struct gp_codec_spec *spec)
{
	struct gp_store_coder *c;
	OK(gp_store_coder_new(spec, &c, &err));
	return c;
}

static void *up(const void *host, uint64_t bytes)
{
	void *device = device_room(bytes);
	gp_rt_copy_up(stream, device, host, bytes);
	OK(gp_rt_stream_wait(stream, &err));
	return device;
}

static void down(void *host, const void *device, uint64_t bytes)
{
	gp_rt_copy_down(stream, host, device, bytes);
	OK(gp_rt_stream_wait(stream, &err));
}

static uint8_t *bytes_of(uint64_t count)
{
	uint8_t *p = calloc(count, 1);
	assert_non_null(p);
	return p;
}

/* Values of both signs and many sizes, zeros, and runs of the same. */
static void fill(float *x, int64_t n, int kind)
{
	for (int64_t i = 0; i < n; i++) {
		const float v = gp_rng_normal(3, (uint64_t)kind, (uint64_t)i);
		x[i] = kind == 0 ? v : kind == 1 ? 0.25f : i % 3 ? 0.0f : ldexpf(v, -(int)(i % 25));
	}
}
enum { KINDS = 3 };

static void expect_same(const void *got, const void *want, uint64_t bytes, const char *what, const char *text,
			int64_t n)
{
	const uint8_t *a = got, *b = want;
	for (uint64_t i = 0; i < bytes; i++)
		if (a[i] != b[i])
			fail_msg("%s: %s of %lld elements: byte %llu is %u instead of %u", text, what, (long long)n,
				 (unsigned long long)i, a[i], b[i]);
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

/* Lengths and payloads of all blocks; what lies between them is nobody's. */
static void expect_same_codes(const struct gp_codec_spec *spec, const uint8_t *got, const uint8_t *want, int64_t n)
{
	for (uint64_t block = 0; block < gp_store_blocks((uint64_t)n); block++) {
		const uint64_t at = block * gp_store_block_bytes(spec);
		uint32_t len;
		memcpy(&len, want + at, sizeof len);
		expect_same(got + at, want + at, sizeof len + len, "the code", spec->text, n);
	}
}

static void host_codes(const struct gp_codec_spec *spec, const float *x, int64_t n, uint8_t *store, float *back)
{
	struct gp_store_coder *c = coder_of(spec);
	for (uint64_t block = 0; block < gp_store_blocks((uint64_t)n); block++) {
		gp_store_encode(c, x, (uint64_t)n, block, store);
		gp_store_decode(c, store, (uint64_t)n, block, back);
	}
	gp_store_coder_free(c);
}

static void check_array(const struct gp_codec_spec *spec, const float *x, int64_t n)
{
	const uint64_t bytes = gp_store_bytes(spec, (uint64_t)n), floats = (uint64_t)n * sizeof *x;
	const struct gpk_store q = store_of(spec);
	uint8_t *want = bytes_of(bytes), *got = bytes_of(bytes + GUARD);
	float *back = host_room(n), *values = host_room(n);
	memset(got, 0x5a, bytes + GUARD);
	host_codes(spec, x, n, want, back);
	void *device = up(x, floats), *store = up(got, bytes + GUARD);
	gpk_store_encode(stream, &q, GP_RT_F32, device, n, store);
	down(got, store, bytes + GUARD);
	expect_same_codes(spec, got, want, n);
	for (int i = 0; i < GUARD; i++)
		assert_int_equal(got[bytes + (uint64_t)i], 0x5a);
	gp_rt_fill(stream, device, 0xff, floats);
	gpk_store_decode(stream, &q, GP_RT_F32, store, n, device);
	down(values, device, floats);
	expect_same(values, back, floats, "what comes back", spec->text, n);
	gp_rt_free(0, device);
	gp_rt_free(0, store);
	free(want);
	free(got);
	free(back);
	free(values);
}

static void arrays_have_the_codes_of_the_host(void **state)
{
	(void)state;
	static const int64_t sizes[] = {1, 2, 7, 100, 1025, 4097, GP_STORE_BLOCK, 2 * GP_STORE_BLOCK + 77};
	for (int i = 0; i < SPECS; i++)
		for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
			for (int kind = 0; kind < KINDS; kind++) {
				const struct gp_codec_spec spec = parse(specs[i]);
				float *x = host_room(sizes[k]);
				fill(x, sizes[k], kind);
				check_array(&spec, x, sizes[k]);
				free(x);
			}
}

static void what_is_not_representable_is_limited_as_on_the_host(void **state)
{
	(void)state;
	static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e30f, 65520.0f, 70000.0f, -NAN};
	enum { COUNT = sizeof bad / sizeof bad[0], N = 300 };
	for (int i = 0; i < SPECS; i++)
		for (int one = 0; one <= COUNT; one++) { /* one of them, and all */
			const struct gp_codec_spec spec = parse(specs[i]);
			float x[N];
			fill(x, N, 0);
			for (int k = 0; k < COUNT; k++)
				if (one == k || one == COUNT)
					x[10 * k + 5] = bad[k];
			check_array(&spec, x, N);
		}
}

static float rounded(float v)
{
	uint32_t u;
	memcpy(&u, &v, sizeof u);
	u = (u + 0x7fffu + (u >> 16 & 1)) & 0xffff0000u;
	memcpy(&v, &u, sizeof v);
	return v;
}

static void values_of_two_bytes_are_coded_as_the_floats_that_they_are(void **state)
{
	(void)state;
	enum { N = GP_STORE_BLOCK + 1001 };
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_spec spec = parse(specs[i]);
		const struct gpk_store q = store_of(&spec);
		struct tensor t = tensor_new(GP_RT_BF16, N);
		uint8_t *want = bytes_of(gp_store_bytes(&spec, N)), *got = bytes_of(gp_store_bytes(&spec, N));
		float *back = host_room(N), *values;
		void *store = device_room(gp_store_bytes(&spec, N));
		host_codes(&spec, t.host, N, want, back);
		gpk_store_encode(stream, &q, GP_RT_BF16, t.device, N, store);
		down(got, store, gp_store_bytes(&spec, N));
		expect_same_codes(&spec, got, want, N);
		gpk_store_decode(stream, &q, GP_RT_BF16, store, N, t.device);
		values = tensor_down(&t);
		for (int k = 0; k < N; k++)
			back[k] = rounded(back[k]);
		expect_same(values, back, N * sizeof *back, "what comes back in bf16", specs[i], N);
		tensor_free(&t);
		gp_rt_free(0, store);
		free(want);
		free(got);
		free(back);
		free(values);
	}
}

static void host_round_trip(const struct gp_codec_spec *spec, float *x, int64_t n)
{
	struct gp_store_coder *c = coder_of(spec);
	for (uint64_t block = 0; block < gp_store_blocks((uint64_t)n); block++)
		gp_store_round_trip(c, x, (uint64_t)n, block);
	gp_store_coder_free(c);
}

/* More blocks than have a room each. */
static void arrays_become_what_their_codes_give(void **state)
{
	(void)state;
	enum { N = 4 * GP_STORE_BLOCK + 33 };
	float *x = host_room(N), *want = host_room(N);
	fill(x, N, 0);
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_spec spec = parse(specs[i]);
		const struct gpk_store q = store_of(&spec);
		void *device = up(x, N * sizeof *x);
		void *room = device_room((uint64_t)gpk_store_slots(gp_store_blocks(N)) * q.block_bytes);
		memcpy(want, x, N * sizeof *x);
		host_round_trip(&spec, want, N);
		gpk_store_round_trip(stream, &q, GP_RT_F32, device, N, room);
		float *got = host_room(N);
		down(got, device, N * sizeof *got);
		expect_same(got, want, N * sizeof *got, "a round trip", specs[i], N);
		free(got);
		gp_rt_free(0, device);
		gp_rt_free(0, room);
	}
	free(x);
	free(want);
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

/* A weight (O,I,KH,KW) of more than a block whose memory is (O,KH,KW,I), and behind it a bias as it is. */
enum { O = 60, I = 50, KH = 5, KW = 5, WEIGHT = O * I * KH * KW, BIAS = O, ALL = WEIGHT + BIAS, PIECES = 3 };

static void fill_pieces(struct gpk_piece piece[PIECES])
{
	const struct gpk_piece weight = {.count = WEIGHT, .dim = {O, I, KH, KW}, .step = {KH * KW * I, 1, KW * I, I}};
	piece[0] = piece[1] = weight;
	piece[1].first = GP_STORE_BLOCK;
	piece[2] = (struct gpk_piece){.at = WEIGHT, .count = BIAS};
}

/* From PyTorch's order to the memory's. */
static void reorder(const float *plain, float *memory)
{
	for (int o = 0; o < O; o++)
		for (int i = 0; i < I; i++)
			for (int k = 0; k < KH * KW; k++)
				memory[(o * KH * KW + k) * I + i] = plain[(o * I + i) * KH * KW + k];
	memcpy(memory + WEIGHT, plain + WEIGHT, BIAS * sizeof *memory);
}

static void parameters_are_coded_in_the_order_of_pytorch(void **state)
{
	(void)state;
	static float plain[ALL], memory[ALL], want[ALL], got[ALL];
	struct gpk_piece piece[PIECES];
	assert_true(WEIGHT > GP_STORE_BLOCK);
	fill(plain, ALL, 0);
	reorder(plain, memory);
	fill_pieces(piece);
	void *table = up(piece, sizeof piece), *from = up(memory, sizeof memory), *to = device_room(sizeof memory);
	for (int i = 0; i < SPECS; i++) {
		static float coded[ALL];
		const struct gp_codec_spec spec = parse(specs[i]);
		const struct gpk_store q = store_of(&spec);
		void *room = device_room((uint64_t)gpk_store_slots(PIECES) * q.block_bytes);
		memcpy(coded, plain, sizeof coded);
		host_round_trip(&spec, coded, WEIGHT);
		host_round_trip(&spec, coded + WEIGHT, BIAS);
		reorder(coded, want);
		gpk_store_round_trip_pieces(stream, &q, table, PIECES, from, to, room);
		down(got, to, sizeof got);
		expect_same(got, want, sizeof got, "parameters", specs[i], ALL);
		gp_rt_free(0, room);
	}
	gp_rt_free(0, table);
	gp_rt_free(0, from);
	gp_rt_free(0, to);
}

/* --- state -------------------------------------------------------------------------------------------------------- */

enum { ARRAY = 77, UPDATE = 300 };

/* As they lie in an array: two blocks of one parameter, and another one. */
static uint64_t place_moments(const struct gp_codec_spec *spec, struct gpk_piece piece[PIECES])
{
	const uint64_t first = (gp_moment_bytes(spec, WEIGHT) + 255) / 256 * 256;
	fill_pieces(piece);
	piece[1].room = GP_STORE_BLOCK;
	piece[2].code = first;
	piece[2].room = 2 * GP_STORE_BLOCK;
	for (int i = 0; i < PIECES; i++)
		piece[i].stream[1] = gp_rng_stream(GP_RNG_ROUNDING, ARRAY);
	return first + gp_moment_bytes(spec, BIAS);
}

static void host_moments(const struct gp_codec_spec *spec, const struct gpk_piece piece[PIECES], float *room,
			 uint8_t *array)
{
	const struct gp_moment_draw draw = {ARRAY, UPDATE};
	struct gp_store_coder *c = coder_of(spec);
	for (int i = 0; i < PIECES; i++)
		gp_moment_encode(c, &draw, room + piece[i].room, (uint64_t)piece[i].count,
				 (uint64_t)piece[i].first / GP_STORE_BLOCK, array + piece[i].code);
	for (int i = 0; i < PIECES; i++)
		gp_moment_decode(c, array + piece[i].code, (uint64_t)piece[i].count,
				 (uint64_t)piece[i].first / GP_STORE_BLOCK, room + piece[i].room);
	gp_store_coder_free(c);
}

static void check_moments(const char *text, int kind)
{
	enum { ROOM = 2 * GP_STORE_BLOCK + BIAS };
	static float x[ROOM], want[ROOM], values[ROOM];
	const struct gp_codec_spec spec = parse(text);
	const struct gpk_store q = store_of(&spec);
	struct gpk_piece piece[PIECES];
	const uint64_t bytes = place_moments(&spec, piece);
	uint8_t *codes = bytes_of(bytes), *got = bytes_of(bytes);
	fill(x, ROOM, kind);
	for (int64_t i = WEIGHT; i < 2 * GP_STORE_BLOCK; i++)
		x[i] = 0.0f; /* nobody's */
	memcpy(want, x, sizeof x);
	void *table = up(piece, sizeof piece), *room = up(x, sizeof x), *array = up(codes, bytes);
	host_moments(&spec, piece, want, codes);
	gpk_moments_encode(stream, &q, table, PIECES, room, 1, gp_moment_first_draw(UPDATE), array);
	down(got, array, bytes);
	expect_same(got, codes, bytes, "state", text, WEIGHT);
	gp_rt_fill(stream, room, 0, sizeof x);
	gpk_moments_decode(stream, &q, table, PIECES, array, room);
	down(values, room, sizeof values);
	expect_same(values, want, sizeof values, "decoded state", text, WEIGHT);
	gp_rt_free(0, table);
	gp_rt_free(0, room);
	gp_rt_free(0, array);
	free(codes);
	free(got);
}

static void state_has_the_bytes_of_the_host_and_its_zeros_stay(void **state)
{
	(void)state;
	for (int kind = 0; kind < KINDS; kind++) {
		for (int i = 0; i < SPECS; i++)
			check_moments(specs[i], kind);
		check_moments("smaq:main=6,outlier=8,round=stochastic,reach=16", kind);
	}
}

static void codecs_without_code_for_a_gpu_are_refused_by_name(void **state)
{
	(void)state;
	static const char *const without[] = {"topk:ratio=0.1", "kmeans:bits=4", "sortquant:bits=6,split=2,sample=64"};
	for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
		const struct gp_codec_spec spec = parse(without[i]);
		struct gpk_store q;
		assert_int_equal(gp_cuda_stored(&spec, &q, &err), GP_UNSUPPORTED);
		assert_non_null(strstr(err.text, without[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arrays_have_the_codes_of_the_host),
		cmocka_unit_test(what_is_not_representable_is_limited_as_on_the_host),
		cmocka_unit_test(values_of_two_bytes_are_coded_as_the_floats_that_they_are),
		cmocka_unit_test(arrays_become_what_their_codes_give),
		cmocka_unit_test(parameters_are_coded_in_the_order_of_pytorch),
		cmocka_unit_test(state_has_the_bytes_of_the_host_and_its_zeros_stay),
		cmocka_unit_test(codecs_without_code_for_a_gpu_are_refused_by_name),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}
