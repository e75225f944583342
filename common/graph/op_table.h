/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of ops: what a graph, and so the protocol, knows. One row an op:
 * its id on the wire (pinned, never reused), its name in enum gp_op, and its
 * name everywhere else. From the rows come enum gp_op, the list of definitions
 * (op.h) and every device's list of implementations.
 *
 * To add an op:
 *   - a row here, and one in the table of PROTOCOL.md section 8
 *     (tests/unit/test_op_table.c compares the two);
 *   - ops/op_NAME.{c,h} with its attributes, inference and `gp_op_NAME`;
 *   - one file per device: kernels/cpu/ops/cpu_NAME.c with `gp_cpu_op_NAME`,
 *     kernels/cuda/ops/cuda_NAME.c with `gp_cuda_op_NAME`, and its CUDA kernels
 *     in k_NAME.{h,cu} there;
 *   - a case in tests/tools/dump_ops.py, which has to be run with PyTorch: it
 *     writes tests/golden/ops/ops.safetensors anew. tests/unit/test_cpu_ops.c
 *     runs every case there and fails for an op that has none;
 *   - a case for the tests that compare devices: a row in tests/unit/op_graphs.h,
 *     and its graph in the file there that has its kind.
 * Where it has a parameter that is no weight, bias or running statistic: a role
 * in enum gp_param_role (graph.h), its suffix in name_param (graph.c), and its
 * place in the order that PROTOCOL.md section 8 gives below the table.
 *
 * Threads: any (constant tables). Test: tests/unit/test_op_table.c
 */
#ifndef GP_OP_TABLE_H
#define GP_OP_TABLE_H

#define GP_OPS(X)                                                                                                      \
	X(1, CONV2D, conv2d)                                                                                           \
	X(2, CONV2D_TRANSPOSE, conv2d_transpose)                                                                       \
	X(3, BATCH_NORM, batch_norm)                                                                                   \
	X(4, RELU, relu)                                                                                               \
	X(5, RELU6, relu6)                                                                                             \
	X(6, ADD, add)                                                                                                 \
	X(7, AVG_POOL, avg_pool)                                                                                       \
	X(8, MAX_POOL, max_pool)                                                                                       \
	X(9, GLOBAL_AVG_POOL, global_avg_pool)                                                                         \
	X(10, LINEAR, linear)                                                                                          \
	X(11, FLATTEN, flatten)                                                                                        \
	X(12, DROPOUT, dropout)                                                                                        \
	X(13, SHORTCUT_PAD, shortcut_pad)                                                                              \
	X(14, IDENTITY, identity)                                                                                      \
	X(15, CONCAT, concat)                                                                                          \
	X(16, SPLIT, split)                                                                                            \
	X(17, EMBEDDING, embedding)                                                                                    \
	X(18, MASKED_MEAN, masked_mean)                                                                                \
	X(19, GELU, gelu)                                                                                              \
	X(20, TANH, tanh)                                                                                              \
	X(21, LAYER_NORM, layer_norm)                                                                                  \
	X(22, ATTENTION, attention)                                                                                    \
	X(23, ADD_ROWS, add_rows)                                                                                      \
	X(24, TAKE_ROW, take_row)                                                                                      \
	X(25, TAKE_ROWS, take_rows)                                                                                    \
	X(26, SWAP_LAST, swap_last)

#endif
