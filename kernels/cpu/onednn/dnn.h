/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions and matrix products through oneDNN: three primitives over two
 * activations x and y that lie channels last, and a weight.
 *
 *   DNN_FORWARD  y  = W x (+ bias)
 *   DNN_DATA     x  = W' y
 *   DNN_WEIGHTS  dW = y x' (and dbias)
 *
 * A convolution runs them as they are. A transposed convolution is the same
 * three with forward and data exchanged. oneDNN chooses the weight's layout per
 * primitive: forward and data read copies ("packs") made after each change of
 * the parameters; the gradient stays in the layout DNN_WEIGHTS leaves, is
 * accumulated there, and is brought into PyTorch's layout once per step.
 * With bf16, what a primitive reads is bf16 and what it writes fp32: weights are
 * rounded once per step when they are packed, activations and gradients in
 * every call, into the op's working room. Where oneDNN has no kernel for that,
 * the node stays fp32; this depends on its shapes alone.
 * Only for kernels/cpu.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test:
 * tests/unit/test_cpu_ops.c
 */
#ifndef GP_CPU_DNN_H
#define GP_CPU_DNN_H

#include <dnnl.h>

#include "kernels/cpu/plan/cpu_plan.h"

enum dnn_role { DNN_FORWARD, DNN_DATA, DNN_WEIGHTS, DNN_ROLES };

/* oneDNN's operation descriptions, the only thing in which convolutions and matrix products differ. */
union dnn_desc {
	dnnl_convolution_desc_t conv;
	dnnl_inner_product_desc_t product;
};

struct dnn_prim {
	dnnl_primitive_desc_t desc; /* NULL: this role is not needed */
	dnnl_primitive_t prim;
	dnnl_memory_t x, y, weight, bias, scratch;
	dnnl_primitive_t reorder; /* PyTorch's layout to pack; for DNN_WEIGHTS gradient to PyTorch's layout */
	bool plain;               /* the weight's layout is PyTorch's */
	bool wanted;              /* false: forward, found only because the others need its description */
	uint64_t pack_offset, scratch_bytes, weight_bytes;
	int64_t weight_count; /* floats, with the layout's padding */
};

struct dnn_state {
	dnnl_memory_desc_t dense_md; /* weight in PyTorch's layout */
	dnnl_memory_t dense;
	bool bias;                 /* oneDNN adds it */
	bool bf16;                 /* as wanted before gp_dnn_prepare, as it is afterwards */
	uint64_t narrow_offset[2]; /* x and y in bf16: where in the op's working room */
	int64_t count[2];          /* elements of x and y */
	struct dnn_prim role[DNN_ROLES];
};

/* Fills the description of one role; calls gp_dnn_narrow. */
typedef dnnl_status_t (*dnn_describe_fn)(const void *geometry, enum dnn_role role, union dnn_desc *out);

/* GP_DEVICE with the op's and node's names unless status is success. */
enum gp_status gp_dnn_check(dnnl_status_t status, const struct cpu_node *n, const char *what, struct gp_err *err);

/* Gives fp32 descriptions of x, y and the weight the types that the role computes in. */
void gp_dnn_narrow(const struct dnn_state *s, enum dnn_role role, dnnl_memory_desc_t *x, dnnl_memory_desc_t *y,
		   dnnl_memory_desc_t *weight);

/*
 * For an op's prepare: finds implementations for the roles wanted (bit mask; forward is always found, the others
 * need it), and notes working room, pack and gradient sizes in node and plan.
 */
enum gp_status gp_dnn_prepare(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, unsigned roles,
			      dnn_describe_fn describe, const void *geometry, struct gp_err *err);
enum gp_status gp_dnn_create(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, struct gp_err *err);
/*
 * For chunks with fewer rows than `s` was made for: the same primitives, for what `describe` says of `geometry`, which has
 * the layouts of `s` (gp_dnn_weight), into the zeroed *out; parameters, packs, gradients and working room are those of s.
 * False where oneDNN has none that fits: *out is then released, and `s` can do.
 */
bool gp_dnn_vary(struct cpu_plan *p, struct cpu_node *n, const struct dnn_state *s, dnn_describe_fn describe,
		 const void *geometry, struct dnn_state *out);
/* How the weight of a role lies; NULL where the role is not needed. */
const dnnl_memory_desc_t *gp_dnn_weight(const struct dnn_state *s, enum dnn_role role);
void gp_dnn_release(struct dnn_state *s);
enum gp_status gp_dnn_repack(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, struct gp_err *err);
enum gp_status gp_dnn_grad_dense(struct cpu_plan *p, struct cpu_node *n, struct dnn_state *s, float *out,
				 struct gp_err *err);

/* y = W x, or x = W' y: the one that `role` computes is written. */
enum gp_status gp_dnn_run(const struct cpu_call *c, struct dnn_state *s, enum dnn_role role, const float *x,
			  const float *y, struct gp_err *err);
/*
 * Weight and bias gradient of x and y into the plan's gradients, by c->accumulate; then c->dx, if it is wanted, by
 * `role`: DNN_DATA of y, DNN_FORWARD of x.
 */
enum gp_status gp_dnn_backward(const struct cpu_call *c, struct dnn_state *s, enum dnn_role role, const float *x,
			       const float *y, struct gp_err *err);

#endif
