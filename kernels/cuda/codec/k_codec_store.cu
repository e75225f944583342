/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that lie encoded: a block of threads for each block of elements, which
 * it reads once to find what they share, and once more to code them. See
 * k_codec_store.h; the codecs are in gpk_store_codecs.h.
 * Test: tests/unit/test_cuda_stored.c
 */
#include "kernels/cuda/codec/k_codec_store.h"

#include "kernels/cuda/codec/gpk_store_codecs.h"

enum { LENGTH_BYTES = 4, PLACE_BYTES = 4, ALIGN = 64 };

/* On an emulated device so few that tests see what comes behind a block's first. */
#ifdef __CUDACC__
#define SLOTS       32
#define ROOM_BLOCKS 16
#else
#define SLOTS       3
#define ROOM_BLOCKS 1
#endif

extern "C" int gpk_store_slots(uint64_t blocks)
{
	return blocks < SLOTS ? (int)blocks : SLOTS;
}

extern "C" int64_t gpk_moments_most(void)
{
	return (int64_t)ROOM_BLOCKS * GPK_STORE_BLOCK;
}

/* --- a block of elements to its code ------------------------------------------------------------------------------ */

/* Where the payload's codes begin, and how many bytes they have without what may follow. */
struct placed {
	uint8_t *codes;
	uint32_t bytes;
};

template <typename C> GPK_DEVICE struct placed place_codes(const struct gpk_store &q, uint8_t *out, int n)
{
	return {out + LENGTH_BYTES + C::head_bytes(q), gpk_packed_bytes((uint32_t)n, q.width)};
}

template <typename C, typename Run>
GPK_DEVICE void put_codes(const struct gpk_store &q, const typename C::table *t, const Run &x, int n, struct placed to)
{
	for (int at = gpk_store_first(); at < n; at += GPK_STORE_TILE) {
		unsigned code[GPK_STORE_GROUP];
		float v[GPK_STORE_GROUP];
		gpk_at8(x, at, n, v);
		for (int i = 0; i < GPK_STORE_GROUP; i++)
			code[i] = at + i < n ? C::code(q, t, v[i]) : 0;
		gpk_put_group(to.codes, q.width, (uint32_t)at, to.bytes, code);
	}
}

/* Extras of outliers, in the order of the elements; those that make no whole bytes yet wait. */
struct extras {
	uint16_t *found; /* shared: of a tile, behind those that wait */
	uint8_t *packed;
	uint32_t count, waiting;
	int width;
};

GPK_DEVICE void pack_extras(const uint16_t *from, uint32_t count, int width, uint8_t *to)
{
	unsigned code[GPK_STORE_GROUP];
	uint64_t low, high;
	for (uint32_t i = 0; i < GPK_STORE_GROUP; i++)
		code[i] = i < count ? from[i] : 0;
	gpk_pack8(code, width, &low, &high);
	gpk_put_packed<uint8_t>(to, (int)gpk_packed_bytes(count, width), low, high);
}

/* The block: `more` have been found. */
GPK_DEVICE void write_extras(struct extras *e, uint32_t more)
{
	const uint32_t all = e->waiting + more, whole = all / GPK_STORE_GROUP, left = all % GPK_STORE_GROUP;
	__syncthreads();
	for (uint32_t g = threadIdx.x; g < whole; g += GPK_STORE_THREADS)
		pack_extras(e->found + g * GPK_STORE_GROUP, GPK_STORE_GROUP, e->width,
			    e->packed + g * (uint32_t)e->width);
	const uint16_t mine = threadIdx.x < left ? e->found[whole * GPK_STORE_GROUP + threadIdx.x] : 0;
	__syncthreads();
	if (threadIdx.x < left)
		e->found[threadIdx.x] = mine;
	e->packed += whole * (uint32_t)e->width;
	e->count += more;
	e->waiting = left;
}

/* A tile of smaq. Returns how many outliers it has. */
template <typename Run>
GPK_DEVICE uint32_t put_tile(const struct gpk_store &q, const gpk_store_smaq::table *t, const Run &x, int at, int n,
			     struct placed to, const struct extras *e, const struct gpk_store_draws &draws)
{
	struct number r[GPK_STORE_GROUP];
	unsigned code[GPK_STORE_GROUP];
	float v[GPK_STORE_GROUP];
	uint32_t mine = 0, all, word[4];
	gpk_at8(x, at, n, v);
	if (q.smaq.drawn)
		gpk_rng_block(0, draws.stream, (draws.first + (uint64_t)at) / 8, word);
	for (int i = 0; i < GPK_STORE_GROUP; i++) {
		const float added = q.smaq.drawn ? drawn_part(v[i], gpk_draw_of(word[i / 2], i % 2)) : q.smaq.half;
		r[i] = gpk_store_smaq::number_at(q, t, v[i], added);
		r[i].outlier = r[i].outlier && at + i < n;
		code[i] = at + i < n ? r[i].code : 0;
		mine += r[i].outlier;
	}
	if (at < n)
		gpk_put_group(to.codes, q.width, (uint32_t)at, to.bytes, code);
	uint32_t rank = e->waiting + gpk_block_before_few(mine, &all);
	for (int i = 0; i < GPK_STORE_GROUP && e->width > 0; i++)
		if (r[i].outlier)
			e->found[rank++] = (uint16_t)r[i].extra;
	return all;
}

/* Returns the bytes of the extras; `head` gets their number. */
template <typename Run>
GPK_DEVICE uint32_t put_smaq(const struct gpk_store &q, const gpk_store_smaq::table *t, const Run &x, int n,
			     struct placed to, const struct gpk_store_draws &draws, uint8_t *head)
{
	GPK_SHARED(uint16_t, found, [GPK_STORE_TILE + GPK_STORE_GROUP]);
	struct extras e = {found, to.codes + to.bytes, 0, 0, q.smaq.extra_width};
	for (int tile = 0; tile < n; tile += GPK_STORE_TILE) {
		const uint32_t more = put_tile(q, t, x, tile + gpk_store_first(), n, to, &e, draws);
		if (e.width > 0)
			write_extras(&e, more);
		else
			e.count += more;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		gpk_put_word(head + 8, e.count);
		if (e.waiting > 0)
			pack_extras(found, e.waiting, e.width, e.packed);
	}
	__syncthreads();
	return gpk_packed_bytes(e.count, e.width);
}

/* Returns the payload's bytes. */
template <typename C, typename Run>
GPK_DEVICE uint32_t encode_block(const struct gpk_store &q, const Run &x, int n, const struct gpk_store_draws &draws,
				 uint8_t *out)
{
	GPK_SHARED(typename C::table, table, [1]);
	gpk_limited_run<Run> run = {x, {false, 0}};
	__syncthreads(); /* it may still be read from the last time */
	for (int k = 0; !C::measure(q, run, n, table) && k < GPK_LIMITS; k++)
		run.limit = {true, gpk_limit_of(k)};
	const struct placed to = place_codes<C>(q, out, n);
	uint32_t bytes = (uint32_t)C::head_bytes(q) + to.bytes;
	C::put_head(q, table, out + LENGTH_BYTES);
	if constexpr (C::has_extras)
		bytes += put_smaq(q, table, run, n, to, draws, out + LENGTH_BYTES);
	else
		put_codes<C>(q, table, run, n, to);
	if (threadIdx.x == 0)
		gpk_put_word(out, bytes);
	return bytes;
}

/* --- and back ----------------------------------------------------------------------------------------------------- */

template <typename C, typename Run>
GPK_DEVICE void get_codes(const struct gpk_store &q, const typename C::table *t, struct placed from, const Run &x,
			  int n)
{
	for (int at = gpk_store_first(); at < n; at += GPK_STORE_TILE) {
		unsigned code[GPK_STORE_GROUP];
		float v[GPK_STORE_GROUP];
		gpk_get_group(from.codes, q.width, (uint32_t)at, from.bytes, code);
		for (int i = 0; i < GPK_STORE_GROUP; i++)
			v[i] = C::value(q, t, code[i]);
		gpk_set8(x, at, n, v);
	}
}

template <typename Run>
GPK_DEVICE void get_smaq(const struct gpk_store &q, const gpk_store_smaq::table *t, struct placed from, const Run &x,
			 int n)
{
	const uint8_t *const extras = from.codes + from.bytes;
	const uint32_t count = t->head.outliers;
	uint32_t before = 0;
	for (int tile = 0; tile < n; tile += GPK_STORE_TILE) {
		const int at = tile + gpk_store_first();
		unsigned code[GPK_STORE_GROUP] = {0};
		uint32_t mine = 0, all;
		float v[GPK_STORE_GROUP];
		if (at < n)
			gpk_get_group(from.codes, q.width, (uint32_t)at, from.bytes, code);
		for (int i = 0; i < GPK_STORE_GROUP; i++)
			mine += gpk_store_smaq::is_outlier(q, code[i]);
		uint32_t rank = before + gpk_block_before_few(mine, &all);
		for (int i = 0; i < GPK_STORE_GROUP; i++) {
			const bool flag = gpk_store_smaq::is_outlier(q, code[i]);
			const bool has = flag && q.smaq.extra_width > 0 && rank < count;
			v[i] = gpk_store_smaq::value(q, t, code[i],
						     has ? gpk_get_code(extras, q.smaq.extra_width, rank) : 0);
			rank += flag;
		}
		gpk_set8(x, at, n, v);
		before += all;
	}
}

template <typename C, typename Run>
GPK_DEVICE void decode_block(const struct gpk_store &q, uint8_t *in, const Run &x, int n)
{
	GPK_SHARED(typename C::table, table, [1]);
	const struct placed from = place_codes<C>(q, in, n);
	__syncthreads(); /* it may still be read from the last time; and this block may have written the code */
	C::get_head(q, table, in + LENGTH_BYTES);
	__syncthreads();
	if constexpr (C::has_extras)
		get_smaq(q, table, from, x, n);
	else
		get_codes<C>(q, table, from, x, n);
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

/* Runs the rest with the codec's struct. */
#define BY_CODEC(kind, C, ...)                                                                                         \
	do {                                                                                                           \
		switch (kind) {                                                                                        \
			ONE_CODEC(GPK_STORE_FP16, gpk_store_format<fp16>, C, __VA_ARGS__)                              \
			ONE_CODEC(GPK_STORE_BF16, gpk_store_format<bf16>, C, __VA_ARGS__)                              \
			ONE_CODEC(GPK_STORE_E5M2, gpk_store_format<e5m2>, C, __VA_ARGS__)                              \
			ONE_CODEC(GPK_STORE_E4M3, gpk_store_format<e4m3>, C, __VA_ARGS__)                              \
			ONE_CODEC(GPK_STORE_S2FP8, gpk_store_s2fp8, C, __VA_ARGS__)                                    \
			ONE_CODEC(GPK_STORE_UNIFORM, gpk_store_uniform, C, __VA_ARGS__)                                \
			ONE_CODEC(GPK_STORE_SORTQUANT, gpk_store_sortquant, C, __VA_ARGS__)                            \
			ONE_CODEC(GPK_STORE_SMAQ, gpk_store_smaq, C, __VA_ARGS__)                                      \
		}                                                                                                      \
	} while (0)
#define ONE_CODEC(id, type, C, ...)                                                                                    \
	case id: {                                                                                                     \
		using C = type;                                                                                        \
		__VA_ARGS__;                                                                                           \
		break;                                                                                                 \
	}

GPK_DEVICE int elements_of(int64_t n, int64_t block)
{
	const int64_t left = n - block * GPK_STORE_BLOCK;
	return (int)(left < GPK_STORE_BLOCK ? left : (int64_t)GPK_STORE_BLOCK);
}

static unsigned blocks_of(int64_t n)
{
	return (unsigned)gpk_div_up(n, GPK_STORE_BLOCK);
}

template <typename C, typename T>
GPK_KERNEL GPK_BOUNDS(GPK_STORE_THREADS) encode_array(struct gpk_store q, T *x, int64_t n, uint8_t *store)
{
	const int64_t block = blockIdx.x;
	const gpk_run<T> run = {x + block * GPK_STORE_BLOCK};
	encode_block<C>(q, run, elements_of(n, block), GPK_NO_DRAWS, store + block * (int64_t)q.block_bytes);
}

template <typename C, typename T>
GPK_KERNEL GPK_BOUNDS(GPK_STORE_THREADS) decode_array(struct gpk_store q, uint8_t *store, int64_t n, T *x)
{
	const int64_t block = blockIdx.x;
	const gpk_run<T> run = {x + block * GPK_STORE_BLOCK};
	decode_block<C>(q, store + block * (int64_t)q.block_bytes, run, elements_of(n, block));
}

template <typename C, typename T>
GPK_KERNEL GPK_BOUNDS(GPK_STORE_THREADS) round_trip_array(struct gpk_store q, T *x, int64_t n, uint8_t *room)
{
	uint8_t *const own = room + blockIdx.x * (int64_t)q.block_bytes;
	for (int64_t block = blockIdx.x; block * GPK_STORE_BLOCK < n; block += gridDim.x) {
		const gpk_run<T> run = {x + block * GPK_STORE_BLOCK};
		encode_block<C>(q, run, elements_of(n, block), GPK_NO_DRAWS, own);
		decode_block<C>(q, own, run, elements_of(n, block));
	}
}

extern "C" void gpk_store_encode(struct gp_rt_stream *s, const struct gpk_store *q, enum gp_rt_type type, const void *x,
				 int64_t n, uint8_t *store)
{
	if (n > 0)
		GPK_BY_TYPE(type, T,
			    BY_CODEC(q->kind, C,
				     GPK_LAUNCH(s, (encode_array<C, T>), blocks_of(n), GPK_STORE_THREADS, 0, *q, (T *)x,
						n, store)));
}

extern "C" void gpk_store_decode(struct gp_rt_stream *s, const struct gpk_store *q, enum gp_rt_type type,
				 const uint8_t *store, int64_t n, void *x)
{
	if (n > 0)
		GPK_BY_TYPE(type, T,
			    BY_CODEC(q->kind, C,
				     GPK_LAUNCH(s, (decode_array<C, T>), blocks_of(n), GPK_STORE_THREADS, 0, *q,
						(uint8_t *)store, n, (T *)x)));
}

extern "C" void gpk_store_round_trip(struct gp_rt_stream *s, const struct gpk_store *q, enum gp_rt_type type, void *x,
				     int64_t n, uint8_t *room)
{
	if (n > 0)
		GPK_BY_TYPE(type, T,
			    BY_CODEC(q->kind, C,
				     GPK_LAUNCH(s, (round_trip_array<C, T>), (unsigned)gpk_store_slots(blocks_of(n)),
						GPK_STORE_THREADS, 0, *q, (T *)x, n, room)));
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

template <typename C>
GPK_KERNEL GPK_BOUNDS(GPK_STORE_THREADS) round_trip_pieces(struct gpk_store q, const struct gpk_piece *piece,
							   int pieces, const float *from, float *to, uint8_t *room)
{
	uint8_t *const own = room + blockIdx.x * (int64_t)q.block_bytes;
	for (int i = (int)blockIdx.x; i < pieces; i += (int)gridDim.x) {
		const struct gpk_param_run run = {from, to, piece[i]};
		encode_block<C>(q, run, gpk_piece_elements(run.piece), GPK_NO_DRAWS, own);
		decode_block<C>(q, own, run, gpk_piece_elements(run.piece));
	}
}

extern "C" void gpk_store_round_trip_pieces(struct gp_rt_stream *s, const struct gpk_store *q,
					    const struct gpk_piece *piece, int pieces, const float *from, float *to,
					    uint8_t *room)
{
	if (pieces > 0)
		BY_CODEC(q->kind, C,
			 GPK_LAUNCH(s, round_trip_pieces<C>, (unsigned)gpk_store_slots((uint64_t)pieces),
				    GPK_STORE_THREADS, 0, *q, piece, pieces, from, to, room));
}

/* --- state -------------------------------------------------------------------------------------------------------- */

/* A block of an array of state: common/codec/moment_store.c. */
struct moment {
	uint8_t *place, *code; /* of the piece's block */
};

GPK_DEVICE struct moment moment_of(const struct gpk_store &q, const struct gpk_piece &p, uint8_t *state)
{
	const int64_t block = p.first / GPK_STORE_BLOCK, blocks = (p.count + GPK_STORE_BLOCK - 1) / GPK_STORE_BLOCK;
	const int64_t head = (blocks * PLACE_BYTES + ALIGN - 1) / ALIGN * ALIGN;
	uint8_t *const array = state + p.code;
	return {array + block * PLACE_BYTES, array + head + block * (int64_t)q.block_bytes};
}

/* The block: the first zero's place, from 1; 0 where there is none. */
GPK_DEVICE uint32_t find_zero(const float *x, int n)
{
	GPK_SHARED(uint32_t, room, [GPK_STORE_WARPS]);
	uint32_t behind = 0; /* elements from the zero to the end of a whole block */
	for (int i = (int)threadIdx.x; i < n && behind == 0; i += GPK_STORE_THREADS)
		behind = x[i] == 0.0f ? (uint32_t)(GPK_STORE_BLOCK - i) : 0;
	behind = gpk_block_max(behind, room);
	return behind ? GPK_STORE_BLOCK - behind + 1 : 0;
}

/* Zeros behind a payload, so that equal values give equal bytes. */
GPK_DEVICE void clear_rest(const struct gpk_store &q, int n, uint32_t bytes, uint8_t *payload)
{
	const uint32_t most =
		12 + gpk_packed_bytes((uint32_t)n, q.width) + gpk_packed_bytes((uint32_t)n, q.smaq.extra_width);
	for (uint32_t at = bytes + threadIdx.x; at < most; at += GPK_STORE_THREADS)
		payload[at] = 0;
}

template <typename C>
GPK_KERNEL GPK_BOUNDS(GPK_STORE_THREADS) encode_moments(struct gpk_store q, const struct gpk_piece *piece, float *room,
							int which, uint64_t first_draw, uint8_t *state)
{
	const struct gpk_piece p = piece[blockIdx.x];
	const gpk_run<float> run = {room + p.room};
	const struct moment to = moment_of(q, p, state);
	const int n = gpk_piece_elements(p);
	const struct gpk_store_draws draws = {p.stream[which], first_draw + (uint64_t)p.first};
	const uint32_t zero = find_zero(run.x, n), bytes = encode_block<C>(q, run, n, draws, to.code);
	if (threadIdx.x == 0)
		gpk_put_word(to.place, zero);
	if constexpr (C::has_extras)
		clear_rest(q, n, bytes, to.code + LENGTH_BYTES);
}

template <typename C>
GPK_KERNEL GPK_BOUNDS(GPK_STORE_THREADS)
	decode_moments(struct gpk_store q, const struct gpk_piece *piece, uint8_t *state, float *room)
{
	const struct gpk_piece p = piece[blockIdx.x];
	const gpk_run<float> run = {room + p.room};
	const struct moment from = moment_of(q, p, state);
	const int n = gpk_piece_elements(p);
	const uint32_t place = gpk_get_word(from.place);
	decode_block<C>(q, from.code, run, n);
	__syncthreads();
	if (place == 0 || place > (uint32_t)n)
		return;
	const float zero = run.x[place - 1];
	__syncthreads();
	for (int i = (int)threadIdx.x; i < n; i += GPK_STORE_THREADS)
		run.x[i] = run.x[i] == zero ? 0.0f : run.x[i];
}

extern "C" void gpk_moments_encode(struct gp_rt_stream *s, const struct gpk_store *q, const struct gpk_piece *piece,
				   int pieces, const float *room, int which, uint64_t first_draw, uint8_t *state)
{
	if (pieces > 0)
		BY_CODEC(q->kind, C,
			 GPK_LAUNCH(s, encode_moments<C>, (unsigned)pieces, GPK_STORE_THREADS, 0, *q, piece,
				    (float *)room, which, first_draw, state));
}

extern "C" void gpk_moments_decode(struct gp_rt_stream *s, const struct gpk_store *q, const struct gpk_piece *piece,
				   int pieces, const uint8_t *state, float *room)
{
	if (pieces > 0)
		BY_CODEC(q->kind, C,
			 GPK_LAUNCH(s, decode_moments<C>, (unsigned)pieces, GPK_STORE_THREADS, 0, *q, piece,
				    (uint8_t *)state, room));
}
