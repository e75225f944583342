/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of any shape on any processor, for the operations that neither an own kernel nor oneDNN takes. Every
 * element is one chain of fused multiply-adds over the inner index, ascending, from zero or from what is there, so that all
 * instruction sets give the same bits. The loops are those of lanes_product.h, compiled for each instruction set
 * (product_body.h); gemm.h's are faster where they run.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; a call starts none, callers share the work out. Test: tests/unit/test_product.c
 */
#ifndef GP_CPU_PRODUCT_H
#define GP_CPU_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* Columns of a packed panel. */
#define GP_PRODUCT_PANEL 16

/*
 * c (rows, columns) = a b with a (rows, inner) and b (inner, columns). Rows of each lie so many floats apart. turned: a lies
 * in memory as (inner, rows). ldb 0: b is packed. onto: c += a b.
 */
struct gp_product {
	float *c;
	int64_t ldc;
	const float *a;
	int64_t lda;
	const float *b;
	int64_t ldb;
	int64_t rows, inner, columns;
	bool turned, onto;
};

typedef void gp_product_fn(const struct gp_product *p);
typedef void gp_product_pack_fn(float *packed, const float *b, int64_t stride, int64_t columns, int64_t inner);

/* By gp_isa. */
gp_product_fn gp_product;
/* Packs b, which lies in memory as (columns, inner), rows `stride` floats apart. */
gp_product_pack_fn gp_product_pack_turned;

/* Floats of a packed (inner, columns) matrix, and where element (i, j) of one lies: panels of columns behind each other. */
static inline int64_t gp_product_packed_count(int64_t inner, int64_t columns)
{
	return (columns + GP_PRODUCT_PANEL - 1) / GP_PRODUCT_PANEL * GP_PRODUCT_PANEL * inner;
}
static inline int64_t gp_product_packed_at(int64_t inner, int64_t i, int64_t j)
{
	return (j / GP_PRODUCT_PANEL * inner + i) * GP_PRODUCT_PANEL + j % GP_PRODUCT_PANEL;
}

/*
 * The same for matrices that do not fit the caches: b, which lies as it is (p->ldb) or, with b_turned, as (columns, inner)
 * with rows p->ldb apart, is packed piece by piece into a room of GP_PRODUCT_ROOM floats.
 */
#define GP_PRODUCT_ROOM (1024 * 64)
void gp_product_large(const struct gp_product *p, bool b_turned, float *room);

/* The versions. */
gp_product_fn gp_product_portable, gp_product_avx2, gp_product_avx512, gp_product_neon;
gp_product_pack_fn gp_product_pack_turned_portable, gp_product_pack_turned_avx2, gp_product_pack_turned_avx512,
	gp_product_pack_turned_neon;

#endif
