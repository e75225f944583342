/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor cores of compute capability 8.0 and up, for kernel files: copies into
 * shared memory that run on their own, fragments, and the product of two
 * fragments. All in units of 16 bytes (a "chunk": 4 floats read as TF32, or 8
 * bf16), so that one kernel serves both types. On the host the same, lane by
 * lane: PTX ISA, "Matrix fragments for mma.m16n8k8", "... mma.m16n8k16".
 *
 *   A  16 rows x 2 chunks, 4 words a lane      B  8 rows x 2 chunks, 2 words a lane (rows: columns of the product)
 *   C  16 x 8 floats, 4 a lane: (lane / 4, lane % 4 * 2 + {0, 1}), the same 8 rows below
 *
 * Operands lie in shared memory either with the depth of the sum innermost (gpk_load_fragments: a row's chunks are along
 * the depth) or outermost (gpk_load_deep_*: a row is one moment of the depth, its chunks are along the operand). On the
 * host an address that is not a multiple of 16 is one that UndefinedBehaviorSanitizer finds, as the device would.
 *
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_tiles.c
 */
#ifndef GPK_MMA_H
#define GPK_MMA_H

#include "kernels/cuda/runtime/gpk.h"

#define GPK_CHUNK_BYTES 16

#ifdef __CUDACC__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define GPK_NO_MMA 1 /* plans ask for the precisions that need it on newer cards only */
#endif

GPK_DEVICE unsigned gpk_shared_address(const void *at)
{
	return (unsigned)__cvta_generic_to_shared(at);
}

/* 16 bytes to shared memory, or zeros (the source is not read). Done at a later gpk_copies_wait. */
GPK_DEVICE void gpk_copy_async(void *to, const void *from, bool zero)
{
#ifndef GPK_NO_MMA
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(gpk_shared_address(to)), "l"(from),
		     "r"(zero ? 0 : GPK_CHUNK_BYTES)
		     : "memory");
#endif
}

/* Copies of this thread so far are one group; waits until at most `left` groups are under way. */
GPK_DEVICE void gpk_copies_end_group(void)
{
#ifndef GPK_NO_MMA
	asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int LEFT> GPK_DEVICE void gpk_copies_wait(void)
{
#ifndef GPK_NO_MMA
	asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

/* Four 8 x 16 byte matrices: lane l gives row l % 8 of matrix l / 8, and gets word l % 4 of row l / 4 of each. */
GPK_DEVICE void gpk_load_fragments(uint32_t (&words)[4], const void *row)
{
#ifndef GPK_NO_MMA
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
		     : "r"(gpk_shared_address(row))
		     : "memory");
#endif
}

/* The same, each matrix of 8 x 8 16-bit elements transposed: the lane gets elements l % 4 * 2 + {0, 1} of column l / 4. */
GPK_DEVICE void gpk_load_fragments_turned(uint32_t (&words)[4], const void *row)
{
#ifndef GPK_NO_MMA
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
		     : "r"(gpk_shared_address(row))
		     : "memory");
#endif
}

/* float to TF32, nearest, ties away; bf16 is as it is. */
template <typename T> GPK_DEVICE uint32_t gpk_operand(uint32_t word)
{
#ifndef GPK_NO_MMA
	if (sizeof(T) == 4)
		asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(__uint_as_float(word)));
#endif
	return word;
}

/* c += a b */
template <typename T> GPK_DEVICE void gpk_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
#ifndef GPK_NO_MMA
	if (sizeof(T) == 4)
		asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
			     "{%8, %9}, {%0, %1, %2, %3};"
			     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
	else
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, "
			     "%7}, {%8, %9}, {%0, %1, %2, %3};"
			     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

#else

GPK_DEVICE void gpk_copy_async(void *to, const void *from, bool zero)
{
	gpk_emulated_copy(static_cast<uint4 *>(to), zero ? nullptr : static_cast<const uint4 *>(from));
}
GPK_DEVICE void gpk_copies_end_group(void)
{
	gpk_emulated_copies_end_group();
}
template <int LEFT> GPK_DEVICE void gpk_copies_wait(void)
{
	gpk_emulated_copies_wait(LEFT);
}

GPK_DEVICE void gpk_load_fragments(uint32_t (&words)[4], const void *row)
{
	const uint64_t *rows = gpk_emulated_exchange(GPK_ALL_LANES, (uint64_t)(uintptr_t)row);
	const unsigned lane = gpk_emulated.lane;
	for (unsigned i = 0; i < 4; i++) {
		const uint4 chunk = *reinterpret_cast<const uint4 *>((uintptr_t)rows[8 * i + lane / 4]);
		memcpy(&words[i], reinterpret_cast<const char *>(&chunk) + lane % 4 * 4, 4);
	}
}

GPK_DEVICE void gpk_load_fragments_turned(uint32_t (&words)[4], const void *row)
{
	const uint64_t *rows = gpk_emulated_exchange(GPK_ALL_LANES, (uint64_t)(uintptr_t)row);
	const unsigned lane = gpk_emulated.lane;
	for (unsigned i = 0; i < 4; i++) {
		words[i] = 0;
		for (unsigned k = 0; k < 2; k++) {
			const uint64_t from = rows[8 * i + lane % 4 * 2 + k];
			const uint4 chunk = *reinterpret_cast<const uint4 *>((uintptr_t)from);
			uint16_t element;
			memcpy(&element, reinterpret_cast<const char *>(&chunk) + lane / 4 * 2, sizeof element);
			words[i] |= (uint32_t)element << 16 * k;
		}
	}
}

template <typename T> GPK_DEVICE uint32_t gpk_operand(uint32_t word)
{
	const bool finite = (word & 0x7f800000u) != 0x7f800000u;
	return sizeof(T) == 4 && finite ? (word + 0x1000u) & 0xffffe000u : word;
}

/* Most elements of a row: of 2 chunks of bf16. */
#define GPK_MMA_DEPTH 16

/*
 * What the lanes of a warp multiply, as floats, by turns in two places: who goes on before the others have read it writes
 * to the other place, and waits there until all have come.
 */
struct gpk_mma_place {
	float a[2][16][GPK_MMA_DEPTH], b[2][8][GPK_MMA_DEPTH];
	uint8_t turn[32];
};

/* Word lane % 4 of a chunk, to where its elements belong in their row. */
template <typename T> GPK_DEVICE void gpk_mma_give(float *row, unsigned chunk, uint32_t word)
{
	const unsigned in_word = 4 / sizeof(T), in_chunk = 16 / sizeof(T);
	float *const to = row + chunk * in_chunk + gpk_emulated.lane % 4 * in_word;
	to[0] = __uint_as_float(sizeof(T) == 4 ? word : word << 16);
	if (sizeof(T) == 2)
		to[1] = __uint_as_float(word & 0xffff0000u);
}

/* The exponent of a double, as it lies in memory: 0 for 0, 0x7ff for what is no number. */
GPK_DEVICE int gpk_mma_exponent(double v)
{
	uint64_t bits;
	memcpy(&bits, &v, sizeof bits);
	return (int)(bits >> 52 & 0x7ff);
}

GPK_DEVICE double gpk_mma_power(int exponent)
{
	const uint64_t bits = (uint64_t)exponent << 52;
	double v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* `sum` and `depth` products as a card's tensor cores add them up: what lies more than 24 bits below the largest is cut off. */
GPK_DEVICE float gpk_mma_cut_off(float sum, const float *row, const float *column, unsigned depth)
{
	double term[GPK_MMA_DEPTH + 1];
	int largest = 0;
	int64_t total = 0;
	term[depth] = (double)sum;
	for (unsigned k = 0; k < depth; k++)
		term[k] = (double)row[k] * (double)column[k];
	for (unsigned k = 0; k <= depth; k++)
		largest = gpk_mma_exponent(term[k]) > largest ? gpk_mma_exponent(term[k]) : largest;
	if (largest == 0 || largest == 0x7ff) {
		double all = 0;
		for (unsigned k = 0; k <= depth; k++)
			all += term[k];
		return (float)all;
	}
	int unit = largest - 24;
	for (unsigned k = 0; k <= depth; k++)
		total += (int64_t)(term[k] * gpk_mma_power(2 * 1023 - unit));
	while (total >> 24 != 0 && total >> 24 != -1) /* what is handed on has 24 bits, too */
		total /= 2, unit++;
	return (float)((double)total * gpk_mma_power(unit));
}

GPK_DEVICE float gpk_mma_sum(float sum, const float *row, const float *column, unsigned depth)
{
	if (gpk_emulates_card())
		return gpk_mma_cut_off(sum, row, column, depth);
	for (unsigned k = 0; k < depth; k++)
		sum += row[k] * column[k];
	return sum;
}

template <typename T> GPK_DEVICE void gpk_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
	static gpk_mma_place places[32];
	gpk_mma_place &place = places[gpk_emulated.warp];
	const unsigned lane = gpk_emulated.lane, turn = place.turn[lane] ^= 1;
	for (unsigned w = 0; w < 4; w++)
		gpk_mma_give<T>(place.a[turn][lane / 4 + w % 2 * 8], w / 2, a[w]);
	for (unsigned w = 0; w < 2; w++)
		gpk_mma_give<T>(place.b[turn][lane / 4], w, b[w]);
	__syncwarp();
	const float *const row = place.a[turn][lane / 4], *const low_row = place.a[turn][lane / 4 + 8],
			   *const column = place.b[turn][lane % 4 * 2],
			   *const next_column = place.b[turn][lane % 4 * 2 + 1];
	const unsigned depth = 32 / sizeof(T);
	const float sums[4] = {gpk_mma_sum(c[0], row, column, depth), gpk_mma_sum(c[1], row, next_column, depth),
			       gpk_mma_sum(c[2], low_row, column, depth),
			       gpk_mma_sum(c[3], low_row, next_column, depth)};
	memcpy(c, sums, sizeof sums);
}

#endif

/* --- operands with the depth outermost ---------------------------------------------------------------------------- */

/*
 * A row of shared memory holds one moment of the depth: chunks along the operand, of a number that is a multiple of 8,
 * exchanged among eight neighbours by moment. Of bf16, 8 x 8 elements are read and turned at once: 8 moments of one
 * chunk, in 8 different places of 16 bytes by `moment % 8`. Nothing turns 32-bit words: a lane reads a chunk of
 * moment t = lane % 4 (then of 4 moments later), 8 lanes at a time 2 neighbouring chunks of 4 moments, which are in 8
 * different places by `moment % 4 * 2`. Its four words are then rows of four fragments, so that rows and columns of
 * the product are in another order: gpk_deep_row, gpk_deep_column.
 */
template <typename T>
GPK_DEVICE unsigned char *gpk_deep_chunk(unsigned char *rows, unsigned pitch, unsigned moment, unsigned chunk)
{
	return rows + moment * pitch + (chunk ^ (sizeof(T) == 4 ? moment % 4 * 2 : moment % 8)) * GPK_CHUNK_BYTES;
}

/* Words of 4 chunks each: of this lane's moment, and of 4 moments later. */
struct gpk_deep_words {
	uint32_t low[4], high[4];
};

GPK_DEVICE struct gpk_deep_words gpk_load_deep_words(unsigned char *rows, unsigned pitch, unsigned moment,
						     unsigned chunk)
{
	const unsigned lane = threadIdx.x % GPK_WARP, at = moment + lane % 4, along = chunk + lane / 4;
	const uint4 low = *reinterpret_cast<const uint4 *>(gpk_deep_chunk<float>(rows, pitch, at, along)),
		    high = *reinterpret_cast<const uint4 *>(gpk_deep_chunk<float>(rows, pitch, at + 4, along));
	return {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
}

/* 32 rows of A from `chunk` on, at the 16 (bf16) or 8 moments from `moment` on. */
template <typename T>
GPK_DEVICE void gpk_load_deep_a(uint32_t (*a)[4], unsigned char *rows, unsigned pitch, unsigned moment, unsigned chunk)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	if constexpr (sizeof(T) == 4) {
		const struct gpk_deep_words w = gpk_load_deep_words(rows, pitch, moment, chunk);
		GPK_UNROLL
		for (int i = 0; i < 2; i++)
			GPK_UNROLL
		for (int k = 0; k < 2; k++) {
			a[i][k] = w.low[2 * i + k];
			a[i][2 + k] = w.high[2 * i + k];
		}
	} else {
		GPK_UNROLL
		for (unsigned i = 0; i < 2; i++)
			gpk_load_fragments_turned(a[i],
						  gpk_deep_chunk<T>(rows, pitch, moment + lane % 8 + lane / 16 * 8,
								    chunk + 2 * i + lane / 8 % 2));
	}
}

/* 32 columns of the product, the same: B's of column 8 j are b[j / 2][j % 2 * 2] and the next. */
template <typename T>
GPK_DEVICE void gpk_load_deep_b(uint32_t (*b)[4], unsigned char *rows, unsigned pitch, unsigned moment, unsigned chunk)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	if constexpr (sizeof(T) == 4) {
		const struct gpk_deep_words w = gpk_load_deep_words(rows, pitch, moment, chunk);
		GPK_UNROLL
		for (int j = 0; j < 4; j++) {
			b[j / 2][j % 2 * 2] = w.low[j];
			b[j / 2][j % 2 * 2 + 1] = w.high[j];
		}
	} else {
		GPK_UNROLL
		for (unsigned j = 0; j < 2; j++)
			gpk_load_fragments_turned(b[j],
						  gpk_deep_chunk<T>(rows, pitch, moment + lane % 8 + lane / 8 % 2 * 8,
								    chunk + 2 * j + lane / 16));
	}
}

/* Where element `e` of this lane's C is, of the i-th 16 rows and j-th 8 columns that such operands gave. */
template <typename T> GPK_DEVICE unsigned gpk_deep_row(unsigned i, unsigned e)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	return sizeof(T) == 4 ? 32 * (i / 2) + lane / 4 * 4 + i % 2 * 2 + e / 2 : 16 * i + lane / 4 + e / 2 * 8;
}
template <typename T> GPK_DEVICE unsigned gpk_deep_column(unsigned j, unsigned e)
{
	const unsigned lane = threadIdx.x % GPK_WARP;
	return sizeof(T) == 4 ? 32 * (j / 4) + (lane % 4 * 2 + e % 2) * 4 + j % 4 : 8 * j + lane % 4 * 2 + e % 2;
}

#endif
