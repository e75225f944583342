/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs around every op, in the ways that make a device's plan do
 * otherwise: several readers of a value, odd sizes, what can be fused and what
 * only looks so. For tests that compare devices; not a test by itself.
 *
 * To add a case: a function that builds its graph, in the file of its kind
 * (op_case.h has what they begin with), and a row in `op_cases`.
 */
#ifndef GP_TEST_OP_GRAPHS_H
#define GP_TEST_OP_GRAPHS_H

#include "tests/unit/op_graphs_basic.h"
#include "tests/unit/op_graphs_language.h"
#include "tests/unit/op_graphs_norm.h"
#include "tests/unit/op_graphs_picture.h"

/* Shapes of samples are in the graphs. */
static const struct {
	const char *name;
	struct gp_graph *(*build)(void);
	int batch;
} op_cases[] = {
	{"relu", relu, 3},
	{"relu6 behind a view", relu6_behind_a_view, 2},
	{"views alone", views_alone, 3},
	{"sums", sums, 2},
	{"linear", linear, 5},
	{"linear of many readers", linear_of_many_readers, 3},
	{"flatten, linear", flatten_then_linear, 3},
	{"flatten", flatten_alone, 2},
	{"dropout", dropout, 3},
	{"shortcuts", shortcuts, 3},
	{"shortcuts of vectors", shortcuts_of_vectors, 3},
	{"global pool", global_pool, 3},
	{"many rows", many_rows, 1537},
	{"pointwise", pointwise, 3},
	{"pointwise, grouped", pointwise_grouped, 3},
	{"pointwise, strided", pointwise_strided, 3},
	{"3x3", conv_3x3, 3},
	{"5x2, asymmetric", conv_asymmetric, 2},
	{"3x3, grouped", conv_grouped, 3},
	{"3x3, a channel a group", conv_multiplied, 2},
	{"5x5 in bands", conv_in_bands, 1},
	{"5x5 in slices", conv_in_slices, 3},
	{"transposed", transposed, 3},
	{"transposed, pointwise", transposed_pointwise, 3},
	{"transposed, depthwise", transposed_depthwise, 3},
	{"depthwise 3x3", depthwise_3x3, 3},
	{"depthwise 3x3, strided", depthwise_3x3_strided, 3},
	{"depthwise 5x5", depthwise_5x5, 2},
	{"depthwise 7x7, strided", depthwise_7x7_strided, 2},
	{"batch norm", batch_norm, 3},
	{"batch norm of rows", batch_norm_of_rows, 7},
	{"inverted residuals", inverted_residuals, 3},
	{"residuals", residuals, 3},
	{"convolutions of many readers", convs_of_many_readers, 2},
	{"max pool", max_pool, 3},
	{"avg pool", avg_pool, 3},
	{"avg pool with padding", avg_pool_with_padding, 2},
	{"norms with activations", norms_with_activations, 4},
	{"norm with residual and activation", norm_with_residual_and_activation, 3},
	{"norm with residual", norm_with_residual_alone, 3},
	{"two norms that meet", two_norms_that_meet, 3},
	{"norm of two readers", norm_of_two_readers, 3},
	{"sum of two readers", sum_of_two_readers, 3},
	{"norm between readers", norm_between_readers, 3},
	{"frozen norm", frozen_norm, 3},
	{"frozen norms with activations", frozen_norms_with_activations, 4},
	{"frozen norm with residual and activation", frozen_norm_with_residual_and_activation, 3},
	{"frozen norm with residual", frozen_norm_with_residual_alone, 3},
	{"norms without their weights", norms_without_their_weights, 3},
	{"norms without their biases", norms_without_their_biases, 3},
	{"frozen convolutions", frozen_convolutions, 3},
	{"frozen biases", frozen_biases, 3},
	{"sums of many", sums_of_many, 3},
	{"identities", identities, 3},
	{"concats", concats, 5},
	{"splits", splits, 2},
	{"embedding", embedding, 4},
	{"embedding of many", embedding_of_many, 3},
	{"masked mean", masked_mean, 5},
	{"masked mean of one", masked_mean_of_one, 9},
	{"tokens", tokens, 4},
	{"gelu", gelu, 3},
	{"gelu by tanh", gelu_by_tanh, 2},
	{"tanh", tanh_alone, 3},
	{"curves of many readers", curves_of_many_readers, 5},
	{"linear, gelu", linear_then_gelu, 5},
	{"layer norm", layer_norm, 3},
	{"layer norm of one row", layer_norm_of_one_row, 5},
	{"layer norm of long rows", layer_norm_of_long_rows, 2},
	{"layer norm with residual", layer_norm_with_residual, 3},
	{"layer norms with dropout", layer_norms_with_dropout, 3},
	{"frozen layer norms", frozen_layer_norms, 3},
	{"layer norms without their biases", layer_norms_without_their_biases, 3},
	{"attention of one value", attention_of_one_value, 7},
	{"self-attention", self_attention, 5},
	{"self-attention with dropout", self_attention_with_dropout, 4},
	{"positions", positions, 3},
	{"one of rows", one_of_rows, 3},
	{"taken rows", taken_rows, 3},
	{"numbered rows", numbered_rows, 5},
	{"numbered rows, again", numbered_rows_again, 4},
	{"masked language model", masked_language_model, 3},
	{"encoder", encoder, 4},
	{"there and back", there_and_back, 3},
	{"linear along the positions", linear_along_the_positions, 3},
	{"deferred norm of rows", batch_norm_of_rows_deferred, 7},
	{"residuals with deferred norms", residuals_deferred, 3},
	{"running norm", batch_norm_running, 3},
	{"running norm of rows", batch_norm_of_rows_running, 7},
	{"inverted residuals with running norms", inverted_residuals_running, 3},
	{"residuals with running norms", residuals_running, 3},
	{"running norms with activations", norms_with_activations_running, 4},
	{"running norm with residual", norm_with_residual_alone_running, 3},
	{"running norms without their weights", norms_without_their_weights_running, 3},
	{"running norm behind a frozen one", frozen_norm_with_residual_and_activation_running, 3},
	{"renorm of rows", batch_norm_of_rows_renorm, 7},
	{"inverted residuals with renorm", inverted_residuals_renorm, 3},
	{"residuals with renorm", residuals_renorm, 3},
	{"renorms with activations", norms_with_activations_renorm, 4},
	{"renorms without their biases", norms_without_their_biases_renorm, 3},
};
enum { OP_CASES = sizeof op_cases / sizeof op_cases[0] };

#endif
