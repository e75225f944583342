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
 * Test: tests/unit/test_cuda_tiles.c
 */
#ifndef GPK_MMA_H
#define GPK_MMA_H

#include "kernels/cuda/gpk.h"

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
	if (zero)
		memset(to, 0, GPK_CHUNK_BYTES);
	else
		memcpy(to, from, GPK_CHUNK_BYTES);
}
GPK_DEVICE void gpk_copies_end_group(void)
{
}
template <int LEFT> GPK_DEVICE void gpk_copies_wait(void)
{
}

GPK_DEVICE void gpk_load_fragments(uint32_t (&words)[4], const void *row)
{
	const uint64_t *rows = gpk_emulated_exchange(GPK_ALL_LANES, (uint64_t)(uintptr_t)row);
	const unsigned lane = gpk_emulated.lane;
	for (unsigned i = 0; i < 4; i++)
		memcpy(&words[i], (const char *)(uintptr_t)rows[8 * i + lane / 4] + lane % 4 * 4, 4);
}

template <typename T> GPK_DEVICE uint32_t gpk_operand(uint32_t word)
{
	const bool finite = (word & 0x7f800000u) != 0x7f800000u;
	return sizeof(T) == 4 && finite ? (word + 0x1000u) & 0xffffe000u : word;
}

/* Element k of a row whose words are spread over 4 lanes: chunk k / (elements of a chunk), then words of that chunk. */
template <typename T> GPK_DEVICE float gpk_mma_element(const uint32_t (*words)[4], unsigned row, unsigned k, int rows)
{
	const unsigned in_word = 4 / sizeof(T), in_chunk = 16 / sizeof(T);
	const unsigned lane = row % 8 * 4 + k % in_chunk / in_word, at = row / 8 + k / in_chunk * (unsigned)(rows / 8);
	const uint32_t word = words[lane][at];
	return __uint_as_float(sizeof(T) == 4 ? word : k % 2 ? word & 0xffff0000u : word << 16);
}

template <typename T> GPK_DEVICE void gpk_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t *b)
{
	uint32_t all_a[32][4], all_b[32][4];
	for (int half = 0; half < 3; half++) {
		const uint32_t low = half < 2 ? a[2 * half] : b[0], high = half < 2 ? a[2 * half + 1] : b[1];
		const uint64_t *all = gpk_emulated_exchange(GPK_ALL_LANES, (uint64_t)high << 32 | low);
		for (int l = 0; l < 32; l++) {
			uint32_t *to = half < 2 ? &all_a[l][2 * half] : all_b[l];
			to[0] = (uint32_t)all[l];
			to[1] = (uint32_t)(all[l] >> 32);
		}
	}
	const unsigned lane = gpk_emulated.lane;
	for (unsigned i = 0; i < 4; i++)
		for (unsigned k = 0; k < 32 / sizeof(T); k++)
			c[i] += gpk_mma_element<T>(all_a, lane / 4 + i / 2 * 8, k, 16) *
				gpk_mma_element<T>(all_b, lane % 4 * 2 + i % 2, k, 8);
}

#endif

#endif
